//! Our mounts, and how they are ended.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use manylogs_fuse::unmount_from;
use manylogs_operate::log::{Level, line};
use manylogs_operate::runtime_dir::is_dead;
use manylogs_storage::{FileDevice, OpenError, OpenMode, OpenOptions, Reactor};

use crate::commands::write_cache;
use crate::failure::Failure;

/// The kernel's type names of mounts by `manylogs fs mount`: of images, and of disks.
const TYPES: [&str; 2] = ["fuse.manylogs", "fuseblk.manylogs"];
/// The state of a mount whose server was killed.
pub(crate) const KILLED: &str = "its server was killed";
/// How long a server may take to answer that it is alive.
const ANSWER: Duration = Duration::from_secs(2);
/// Interval at which to check whether a server has ended.
const STEP: Duration = Duration::from_millis(10);

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) on: PathBuf,
    pub(crate) source: PathBuf,
}

impl Mounted {
    /// Whether its server has ended without unmounting it: the kernel fails everything there.
    pub(crate) fn is_dead(&self) -> bool {
        has_no_server(&self.on)
    }

    /// The message about a dead mount.
    fn in_words(&self) -> String {
        let (on, source) = (self.on.display(), self.source.display());
        format!(
            "{on}: the server of {source}, which is mounted there, was killed: what was synced is \
             safe. manylogs fs mount {source} {on} goes on, manylogs fs unmount {on} ends it"
        )
    }

    /// Whether its source is the file or disk at `source`, by whatever path.
    fn is_of(&self, source: &Path) -> bool {
        let identity = |path: &Path| {
            let found = fs::metadata(path).ok()?;
            let is_disk = found.file_type().is_block_device();
            Some(if is_disk { (0, found.rdev()) } else { (found.dev(), found.ino()) })
        };
        self.source == source
            || identity(source).is_some_and(|own| identity(&self.source) == Some(own))
    }
}

/// Mounts of ours, in the order in which they were made.
pub(crate) fn all() -> Result<Vec<Mounted>, Failure> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(Failure::failed)?;
    Ok(mounts(&table).collect())
}

/// The mount of ours on `target`.
fn mounted_on(target: &Path) -> Result<Option<Mounted>, Failure> {
    let target = resolved(target)?;
    Ok(all()?.into_iter().rfind(|mounted| mounted.on == target))
}

/// The path without symbolic links. Works also for a mount whose server was killed.
pub(super) fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let named = |error: io::Error| Failure::at(path, &error);
    match fs::canonicalize(path) {
        Err(_) if has_no_server(path) => {
            let whole = std::path::absolute(path).map_err(named)?;
            match (whole.parent().map(fs::canonicalize), whole.file_name()) {
                (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
                _ => Ok(whole),
            }
        }
        found => found.map_err(named),
    }
}

/// Whether a mount is there whose server has ended. A server that is slow to answer, or paused,
/// counts as alive.
fn has_no_server(path: &Path) -> bool {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        // The receiver is gone if this took too long.
        let _ = tell.send(is_dead(&path));
    });
    told.recv_timeout(ANSWER).unwrap_or(false)
}

/// The source of our file system mounted on `target`; `None` if none of ours is.
///
/// # Errors
/// If its server was killed.
pub(super) fn source_of(target: &Path) -> Result<Option<PathBuf>, Failure> {
    match mounted_on(target)? {
        Some(mounted) if mounted.is_dead() => Err(Failure::Failed(mounted.in_words())),
        found => Ok(found.map(|mounted| mounted.source)),
    }
}

/// Whether `place` is a directory. A mount point whose server was killed counts, although it does
/// not look like one.
pub(super) fn is_directory(place: &Path) -> bool {
    place.is_dir() || has_no_server(place)
}

/// Our mounts in the kernel's mount table.
fn mounts(table: &str) -> impl Iterator<Item = Mounted> {
    table.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let on = unescaped(mount.split(' ').nth(4)?);
        let mut kind = kind.split(' ');
        let ours = TYPES.contains(&kind.next()?);
        let source = unescaped(kind.next()?);
        ours.then(|| Mounted { on: on.into(), source: source.into() })
    })
}

/// Decodes blanks, tabs, newlines and backslashes, which the table has as octal escapes.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// Makes room for a mount of `source` on `target`: ends mounts of `source` whose server was killed.
///
/// # Errors
/// If a dead mount of something else is there.
pub(super) fn take_over(source: &Path, target: &Path) -> Result<(), Failure> {
    if has_no_server(target)
        && let Some(other) = mounted_on(target)?.filter(|mounted| !mounted.is_of(source))
    {
        return Err(Failure::Busy(other.in_words()));
    }
    let dead = all()?.into_iter().filter(|mounted| mounted.is_of(source) && mounted.is_dead());
    for mounted in dead.collect::<Vec<_>>() {
        end_dead(&mounted)?;
        let message = format!("{}: takes over from a server that was killed", mounted.on.display());
        line(Level::Warning, None, &message, &[]);
    }
    Ok(())
}

/// Unmounts a mount without a server: no writes can be pending. Programs that still have files open
/// there get errors until they close them.
fn end_dead(mounted: &Mounted) -> Result<(), Failure> {
    let ended = match unmount_from(&mounted.on, false) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            unmount_from(&mounted.on, true)
        }
        ended => ended,
    };
    ended.map_err(|error| Failure::of_io(&error, format!("{}: {error}", mounted.on.display())))
}

/// Unmounts, and waits until the server has closed the device: all its writes are done then.
pub(super) fn unmount(target: &Path) -> Result<(), Failure> {
    let nothing = || format!("{}: no file system of manylogs is mounted there", target.display());
    let mounted = mounted_on(target)?.ok_or_else(|| Failure::input(nothing()))?;
    if mounted.is_dead() {
        end_dead(&mounted)?;
        write_cache::settle(&mounted.source);
        let message = format!(
            "{}: its server had been killed; the next mount of {} recovers it",
            mounted.on.display(),
            mounted.source.display()
        );
        line(Level::Warning, None, &message, &[]);
        return Ok(());
    }
    unmount_from(&mounted.on, false).map_err(|error| {
        let message = format!("{}: {error}", target.display());
        if error.kind() == io::ErrorKind::ResourceBusy {
            Failure::Busy(message + ": somebody uses it (fuser -vm names them)")
        } else {
            Failure::of_io(&error, message)
        }
    })?;
    let source = &mounted.source;
    if all()?.iter().any(|other| other.source == *source) {
        // The source is mounted in other places too: the server goes on.
        return Ok(());
    }
    let reactor = Reactor::new().map_err(Failure::failed)?;
    loop {
        match FileDevice::open(&reactor, source, &OpenOptions::new(OpenMode::Exclusive)) {
            Err(OpenError::Locked { .. } | OpenError::Busy { .. }) => thread::sleep(STEP),
            // The device is free, or no longer there.
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_ours_are_found() {
        let table = "36 35 98:0 / /mnt rw - ext4 /dev/sda rw\n\
            40 35 0:50 / /mnt\\040two rw,nosuid shared:7 - fuse.manylogs /a\\134b\\040c rw,x\n\
            41 35 0:51 / /mnt rw - fuse.manylogs /first rw\n\
            42 35 0:52 / /mnt rw - fuse.manylogs /second rw\n\
            43 35 8:1 / /disk rw - fuseblk.manylogs /dev/sda1 rw\n";
        let found: Vec<(PathBuf, PathBuf)> = mounts(table).map(|m| (m.on, m.source)).collect();
        let expected = [
            ("/mnt two", "/a\\b c"),
            ("/mnt", "/first"),
            ("/mnt", "/second"),
            ("/disk", "/dev/sda1"),
        ];
        assert_eq!(found, expected.map(|(on, source)| (on.into(), source.into())));
    }

    #[test]
    fn a_source_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["image", "hard-link", "symlink", "other"].map(|name| dir.path().join(name));
        fs::write(&names[0], "").unwrap();
        fs::hard_link(&names[0], &names[1]).unwrap();
        std::os::unix::fs::symlink(&names[0], &names[2]).unwrap();
        fs::write(&names[3], "").unwrap();
        let mounted = Mounted { on: "/mnt".into(), source: names[0].clone() };
        assert_eq!(names.map(|name| mounted.is_of(&name)), [true, true, true, false]);
    }
}
