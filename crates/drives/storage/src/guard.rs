//! Locks on an opened file or disk, and on what lies below it.
//!
//! A file is locked twice: as a whole with `flock`, whose holder can be found, and in the bytes
//! that are used. A loop device shows a file, or parts of it, and its user locks those bytes of the
//! file. The kernel gives a disk one exclusive user. A user of a loop device over a disk becomes
//! that user.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manylogs_plant::{self as plant, Bug};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::holders::Holder;
use crate::ioctl::lock_bytes;
use crate::levels::{Level, Step};
use crate::loops::{FileId, Object};
use crate::open::{OpenError, OpenMode};
use crate::sysfs::{Disk, System};

/// How often a lock held by others is tried again, and at which interval. A killed process keeps
/// its files until it is gone. A new process has copies of its parent's files until it runs another
/// program.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Locks the opened file or disk.
pub(crate) fn lock(
    system: &System,
    path: &Path,
    file: &File,
    mode: OpenMode,
) -> Result<(), OpenError> {
    let operation = match mode {
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::Exclusive | OpenMode::Claimed => FlockOperation::NonBlockingLockExclusive,
    };
    let try_it = || {
        rustix::fs::flock(file, operation)?;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file { lock_range(file, &(0..u64::MAX), mode.is_writing()) } else { Ok(()) }
    };
    let mut locked = try_it();
    for _ in 0..LOCK_TRIES {
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        locked = try_it();
    }
    locked.map_err(|errno| match errno {
        Errno::WOULDBLOCK => {
            let files: Vec<FileId> = file.metadata().iter().map(FileId::of).collect();
            refused(path, path.to_owned(), system.holder(&files))
        }
        errno => OpenError::io(path, errno.into()),
    })
}

/// Locks what lies below the device, until the returned files are closed.
pub(crate) fn hold(
    system: &System,
    path: &Path,
    below: &[Level],
    mode: OpenMode,
) -> Result<Vec<File>, OpenError> {
    let mut held = Vec::new();
    for level in below.iter().filter(|_| !plant::is(Bug::BackingNotLocked)) {
        let taken = match (level.step, level.object) {
            (Step::Loop, Some(Object::File(file))) => hold_file(system, file, level, mode),
            (Step::Loop, Some(Object::Disk(number))) if mode.is_writing() => {
                claim(system, &system.disk(number))
            }
            _ => Ok(None),
        };
        let refused = |by| refused(path, level.path.clone(), by);
        held.extend(taken.map_err(refused)?);
    }
    Ok(held)
}

/// Locks bytes of a file behind a loop device.
fn hold_file(
    system: &System,
    id: FileId,
    level: &Level,
    mode: OpenMode,
) -> Result<Option<File>, Option<Holder>> {
    let alone = mode.is_writing() && !level.is_shared;
    let Some((file, alone)) = reach(&level.path, id, alone) else {
        // The file has no name here any more, or none for this user. Others can no longer open it
        // by name, but may have opened it before.
        return match system.holder(&[id]) {
            Some(holder) if mode.is_writing() => Err(Some(holder)),
            _ => Ok(None),
        };
    };
    match lock_range(&file, &level.bytes, alone) {
        Ok(()) => Ok(Some(file)),
        Err(_) => Err(system.holder(&[id])),
    }
}

/// Opens the file if the path still leads to it. Also returns whether it can be locked against all
/// others.
fn reach(path: &Path, id: FileId, alone: bool) -> Option<(File, bool)> {
    let open = |write| {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options().read(true).write(write).custom_flags(flags).open(path).ok()?;
        let is_it = opened.metadata().is_ok_and(|metadata| FileId::of(&metadata) == id);
        is_it.then_some((opened, write))
    };
    if Object::at(path) != Some(Object::File(id)) {
        return None;
    }
    alone.then(|| open(true)).flatten().or_else(|| open(false))
}

/// Locks bytes of a file, if the file system supports that.
fn lock_range(file: &File, bytes: &std::ops::Range<u64>, alone: bool) -> Result<(), Errno> {
    match lock_bytes(file, bytes, alone) {
        Err(Errno::ACCESS | Errno::AGAIN) => Err(Errno::WOULDBLOCK),
        _ => Ok(()),
    }
}

/// Becomes the exclusive user of a disk behind a loop device.
fn claim(system: &System, disk: &Disk) -> Result<Option<File>, Option<Holder>> {
    let flags = (OFlags::EXCL | OFlags::NONBLOCK).bits().cast_signed();
    let node = system.dev.join(disk.name());
    match File::options().read(true).custom_flags(flags).open(node) {
        Ok(claimed) => Ok(Some(claimed)),
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
            Err(system.holder(&nodes(system, disk)))
        }
        // The disk has another node, or none for this user.
        Err(_) => Ok(None),
    }
}

/// The nodes of a disk, of its partitions, and of the disk that contains it.
fn nodes(system: &System, disk: &Disk) -> Vec<FileId> {
    let parts = disk.with_partitions().into_iter().chain(disk.whole_disk());
    let paths = parts.map(|part| system.dev.join(part.name()));
    paths.filter_map(|path| Some(FileId::of(&path.metadata().ok()?))).collect()
}

/// Adds the process that uses a busy disk to the error.
pub(crate) fn named(error: OpenError, system: &System, disk: Option<&Disk>) -> OpenError {
    match (error, disk) {
        (OpenError::Busy { path, .. }, Some(disk)) => {
            let holder = system.holder(&nodes(system, disk));
            let ending = holder.as_ref().is_some_and(|holder| holder.is_ending);
            OpenError::Busy { path, by: holder.map(|holder| holder.to_string()), ending }
        }
        (error, _) => error,
    }
}

fn refused(path: &Path, on: PathBuf, by: Option<Holder>) -> OpenError {
    let ending = by.as_ref().is_some_and(|holder| holder.is_ending);
    let by = by.map(|holder| holder.to_string());
    OpenError::Locked { path: path.to_owned(), on, by, ending }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;
    use crate::levels::tests::Machine;

    const MIB: u64 = 1 << 20;

    /// Opens bytes of one file twice, through loop devices at these places. Returns whether the
    /// second opening succeeds.
    fn second_succeeds(first: (u64, u64), second: (u64, u64), modes: [OpenMode; 2]) -> bool {
        let machine = Machine::new();
        let (path, _) = machine.file("image");
        let attach = |which, (offset, bytes)| machine.looped(which, &path, offset, bytes);
        let disks = [attach(("loop3", "7:3"), first), attach(("loop4", "7:4"), second)];
        let hold_one = |disk: &Disk, mode| {
            let below = machine.system.below(disk, disk.bytes());
            hold(&machine.system, Path::new("/dev/loop"), &below, mode)
        };
        let held = hold_one(&disks[0], modes[0]).unwrap();
        assert_eq!(held.len(), 1);
        let both = hold_one(&disks[1], modes[1]);
        let free = hold_one(&disks[1], modes[1]).is_ok();
        drop((held, both));
        assert!(hold_one(&disks[1], OpenMode::Exclusive).is_ok(), "a lock ends with its file");
        free
    }

    #[test]
    fn bytes_behind_loop_devices_have_one_writer() {
        use OpenMode::{Exclusive, ReadOnly};
        let (whole, head, tail) = ((0, 10 * MIB), (0, 5 * MIB), (5 * MIB, 5 * MIB));
        for (first, second, modes, both) in [
            (whole, whole, [Exclusive, Exclusive], false),
            (whole, tail, [Exclusive, Exclusive], false),
            (whole, tail, [ReadOnly, Exclusive], false),
            (tail, whole, [Exclusive, ReadOnly], false),
            (whole, whole, [ReadOnly, ReadOnly], true),
            (head, tail, [Exclusive, ReadOnly], true),
        ] {
            let found = second_succeeds(first, second, modes);
            assert_eq!(found, both, "{first:?} {second:?} {modes:?}");
        }
    }

    #[test]
    fn the_file_behind_a_loop_device_is_locked_with_it() {
        let machine = Machine::new();
        let (path, _) = machine.file("image");
        let disk = machine.looped(("loop3", "7:3"), &path, 0, 10 * MIB);
        let below = machine.system.below(&disk, disk.bytes());
        let system = System::this();
        let lock_file = |mode| lock(&system, &path, &reach_any(&path), mode);
        let held = hold(&machine.system, Path::new("/dev/loop3"), &below, OpenMode::Exclusive);
        for mode in [OpenMode::Exclusive, OpenMode::ReadOnly] {
            let error = lock_file(mode).unwrap_err().to_string();
            // The error names this process.
            assert!(error.contains(&format!("process {} (", std::process::id())), "{error}");
        }
        drop(held);
        let direct = reach_any(&path);
        lock(&system, &path, &direct, OpenMode::Exclusive).unwrap();
        let error = hold(&system, Path::new("/dev/loop3"), &below, OpenMode::Exclusive);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("/dev/loop3 lies on "), "{error}");
        // The file has no name any more, but the loop device still shows it.
        fs::rename(&path, machine.dir.path().join("elsewhere")).unwrap();
        assert!(hold(&system, Path::new("/dev/loop3"), &below, OpenMode::Exclusive).is_err());
        drop(direct);
        assert!(hold(&system, Path::new("/dev/loop3"), &below, OpenMode::Exclusive).is_ok());
    }

    fn reach_any(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }
}
