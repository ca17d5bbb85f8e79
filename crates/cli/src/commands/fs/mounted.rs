//! What is mounted, and ending it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use manylogs_storage::{FileDevice, OpenError, OpenMode, OpenOptions, Reactor};
use rustix::mount::UnmountFlags;

use crate::failure::Failure;

/// What the kernel calls mounts of `manylogs fs mount`: of images, and of disks.
const TYPES: [&str; 2] = ["fuse.manylogs", "fuseblk.manylogs"];
/// How often to look whether a server has ended.
const STEP: Duration = Duration::from_millis(10);

/// Where the file system that is mounted on `target` comes from; `None` if none of ours is.
pub(super) fn source_of(target: &Path) -> Result<Option<PathBuf>, Failure> {
    let named = |error| Failure::input(format!("{}: {error}", target.display()));
    let target = fs::canonicalize(target).map_err(named)?;
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(Failure::failed)?;
    Ok(find(&table, &target))
}

/// The source of the last mount of ours on `target` in a table as the kernel writes it.
fn find(table: &str, target: &Path) -> Option<PathBuf> {
    let mut ours = mounts(table).filter(|(point, _)| point == target);
    ours.next_back().map(|(_, source)| source)
}

/// Whether `source` is mounted anywhere.
fn is_mounted(table: &str, source: &Path) -> bool {
    mounts(table).any(|(_, other)| other == source)
}

/// Mounts of ours, each with its source.
fn mounts(table: &str) -> impl DoubleEndedIterator<Item = (PathBuf, PathBuf)> {
    table.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = unescaped(mount.split(' ').nth(4)?);
        let mut kind = kind.split(' ');
        let ours = TYPES.contains(&kind.next()?);
        let source = unescaped(kind.next()?);
        ours.then(|| (point.into(), source.into()))
    })
}

/// Blanks, tabs, newlines and backslashes stand there as three octal digits.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// Unmounts, and waits until the server has let the device go: the last write is there then.
pub(super) fn unmount(target: &Path) -> Result<(), Failure> {
    let nothing = || format!("{}: no file system of manylogs is mounted there", target.display());
    let source = source_of(target)?.ok_or_else(|| Failure::input(nothing()))?;
    rustix::mount::unmount(target, UnmountFlags::empty()).map_err(|error| {
        let message = format!("{}: {error}", target.display());
        if error == rustix::io::Errno::BUSY {
            Failure::Busy(message + ": somebody uses it (fuser -vm names them)")
        } else {
            Failure::failed(message)
        }
    })?;
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(Failure::failed)?;
    if is_mounted(&table, &source) {
        // It was one of several places: the server goes on.
        return Ok(());
    }
    let reactor = Reactor::new().map_err(Failure::failed)?;
    loop {
        match FileDevice::open(&reactor, &source, &OpenOptions::new(OpenMode::Exclusive)) {
            Err(OpenError::Locked { .. } | OpenError::Busy { .. }) => thread::sleep(STEP),
            // It is free, or gone.
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_ours_counts() {
        let table = "36 35 98:0 / /mnt rw - ext4 /dev/sda rw\n\
            40 35 0:50 / /mnt\\040two rw,nosuid shared:7 - fuse.manylogs /a\\134b\\040c rw,x\n\
            41 35 0:51 / /mnt rw - fuse.manylogs /first rw\n\
            42 35 0:52 / /mnt rw - fuse.manylogs /second rw\n\
            43 35 8:1 / /disk rw - fuseblk.manylogs /dev/sda1 rw\n";
        assert_eq!(find(table, Path::new("/mnt")), Some("/second".into()));
        assert_eq!(find(table, Path::new("/mnt two")), Some("/a\\b c".into()));
        assert_eq!(find(table, Path::new("/disk")), Some("/dev/sda1".into()));
        assert_eq!(find(table, Path::new("/other")), None);
        let mounted = ["/first", "/a\\b c", "/dev/sda1", "/dev/sda", "/mnt"];
        let mounted = mounted.map(|source| is_mounted(table, Path::new(source)));
        assert_eq!(mounted, [true, true, true, false, false]);
    }
}
