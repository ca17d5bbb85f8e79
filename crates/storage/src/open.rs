//! Opening a device that nobody else uses.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manylogs_plant::{self as plant, Bug};
use rustix::fs::{FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;
use thiserror::Error;

use crate::in_use::{Use, use_of};
use crate::sysfs::{DeviceNumber, Disk, loop_device_of};

/// `udev` locks a disk for a moment while it probes the content.
const UDEV_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts at a device that is in use.
const RETRY: Duration = Duration::from_millis(50);

/// Purpose of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To read it, beside other readers.
    ReadOnly,
    /// To read and write it while nobody else does.
    Exclusive,
    /// As [`OpenMode::Exclusive`], if the system has the disk for a mount of the caller's own.
    Claimed,
}

impl OpenMode {
    pub(crate) const fn is_writing(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }
}

/// Why a device was not opened, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing of that name.
    #[error("{path} does not exist: check the name, or create an image first")]
    NotFound {
        /// Path of the file or disk.
        path: PathBuf,
    },
    /// The user may not open it.
    #[error("no permission to open {path}: run as root, or change its owner or mode")]
    Permission {
        /// Path of the file or disk.
        path: PathBuf,
    },
    /// The path is neither a file nor a disk.
    #[error("{path} is {found}: give a block device or an ordinary file")]
    WrongKind {
        /// Path of the file or disk.
        path: PathBuf,
        /// Kind of the object at the path.
        found: &'static str,
    },
    /// A file system on it is mounted.
    #[error("{device} is mounted on {mount_point}: unmount it first (umount {mount_point})")]
    Mounted {
        /// The disk, or the partition of it.
        device: String,
        /// Path.
        mount_point: String,
    },
    /// Another device is made of it, or it is swap space.
    #[error("{device} is used by {by}: stop that first")]
    Held {
        /// The disk, or the partition of it.
        device: String,
        /// User of the disk.
        by: String,
    },
    /// The file is attached to a loop device.
    #[error(
        "{path} is attached to /dev/{device}: detach it first (losetup -d /dev/{device}), or \
         open /dev/{device} instead"
    )]
    LoopBacking {
        /// The file.
        path: PathBuf,
        /// Name of the loop device.
        device: String,
    },
    /// Something has the disk open for itself.
    #[error("{path} is in use by the system or another program: lsblk and fuser -v tell which")]
    Busy {
        /// Path of the file or disk.
        path: PathBuf,
    },
    /// Another process has locked the file.
    #[error("{path} is locked by another process: stop it first (fuser -v {path} names it)")]
    Locked {
        /// Path of the file or disk.
        path: PathBuf,
    },
    /// The file or disk cannot be written.
    #[error(
        "{path} is read-only: lift its write protection (blockdev --setrw for a disk), or remount \
         the file system that holds it"
    )]
    ReadOnly {
        /// Path of the file or disk.
        path: PathBuf,
    },
    /// The kernel drops flushes, so that nothing on it would ever be durable.
    #[error(
        "the kernel drops flushes to {device}, so that nothing would be durable in the file behind \
         it: echo 'write back' > /sys/class/block/{device}/queue/write_cache"
    )]
    FlushesDropped {
        /// Name of the loop device.
        device: String,
    },
    /// The kernel refuses an io_uring.
    #[error("io_uring is not available here ({source}): use the threads backend")]
    NoUring {
        /// The kernel's answer.
        source: io::Error,
    },
    /// No such sectors exist.
    #[error("a physical sector of {sectors} sectors is not a power of two")]
    PhysicalSector {
        /// Size that was asked for.
        sectors: u64,
    },
    /// Something else went wrong.
    #[error("cannot open {path}: {source}")]
    Io {
        /// Path of the file or disk.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound => Self::NotFound { path },
            ErrorKind::PermissionDenied => Self::Permission { path },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => Self::Busy { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Opened file or disk.
pub(crate) struct Opened {
    pub(crate) file: File,
    /// The disk, if it is one.
    pub(crate) disk: Option<Disk>,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// Whether a file or a disk could be opened in [`OpenMode::Exclusive`] now, or while `patience`
/// lasts, if somebody has it who may be leaving.
///
/// # Errors
/// Why not.
pub fn check_unused(path: &Path, patience: Duration) -> Result<(), OpenError> {
    open(path, OpenMode::Exclusive, patience).map(drop)
}

/// Opens and locks `path`, and tries again while another process has it.
pub(crate) fn open(path: &Path, mode: OpenMode, patience: Duration) -> Result<Opened, OpenError> {
    let began = Instant::now();
    loop {
        let opened = open_once(path, mode);
        let patience = match &opened {
            Err(OpenError::Locked { .. }) if is_disk(path) => patience.max(UDEV_PATIENCE),
            Err(OpenError::Locked { .. } | OpenError::Busy { .. }) => patience,
            _ => return opened,
        };
        if began.elapsed() >= patience {
            return opened;
        }
        std::thread::sleep(RETRY);
    }
}

fn is_disk(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn open_once(path: &Path, mode: OpenMode) -> Result<Opened, OpenError> {
    let failed = |source| OpenError::io(path, source);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    // The type is checked before opening, as opening changes some devices.
    let disk = disk_of(path, &metadata)?;
    if mode.is_writing() {
        refuse_if_used(path, disk.as_ref())?;
    }
    let file = open_file(path, mode, disk.is_some()).map_err(failed)?;
    let now = file.metadata().map_err(failed)?;
    if (now.dev(), now.ino()) != (metadata.dev(), metadata.ino()) {
        // Another file was put in its place meanwhile.
        return Err(OpenError::Busy { path: path.to_owned() });
    }
    lock(path, &file, mode)?;
    let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|errno| failed(errno.into()))?;
    Ok(Opened { file, disk, size })
}

fn disk_of(path: &Path, metadata: &Metadata) -> Result<Option<Disk>, OpenError> {
    let kind = metadata.file_type();
    let found = if kind.is_file() {
        return Ok(None);
    } else if kind.is_block_device() {
        return Ok(Some(Disk::new(DeviceNumber::new(metadata.rdev()))));
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    };
    Err(OpenError::WrongKind { path: path.to_owned(), found })
}

fn refuse_if_used(path: &Path, disk: Option<&Disk>) -> Result<(), OpenError> {
    let Some(disk) = disk else {
        return match loop_device_of(path) {
            Some(device) => Err(OpenError::LoopBacking { path: path.to_owned(), device }),
            None => Ok(()),
        };
    };
    match use_of(disk) {
        Some(Use::Mounted { device, at }) => Err(OpenError::Mounted { device, mount_point: at }),
        Some(Use::Held { device, by }) => Err(OpenError::Held { device, by }),
        None if disk.is_read_only() => Err(OpenError::ReadOnly { path: path.to_owned() }),
        None => refuse_if_flushes_are_dropped(disk),
    }
}

/// A loop device has a volatile cache by its nature: the page cache of the file behind it, or that
/// of the file's disk. If the kernel thinks otherwise, then somebody wrote so into `write_cache`,
/// perhaps for another file long ago: the mode outlives detaching.
fn refuse_if_flushes_are_dropped(disk: &Disk) -> Result<(), OpenError> {
    let dropping = disk.loops_below().into_iter().find(Disk::drops_flushes);
    match dropping.filter(|_| !plant::is(Bug::DroppedFlushesAccepted)) {
        Some(loop_device) => Err(OpenError::FlushesDropped { device: loop_device.name() }),
        None => Ok(()),
    }
}

fn open_file(path: &Path, mode: OpenMode, is_disk: bool) -> io::Result<File> {
    // Of a disk, O_EXCL asks that nobody else (a mount, say) has it for himself.
    let flags = if mode == OpenMode::Exclusive && is_disk { OFlags::EXCL } else { OFlags::empty() };
    std::fs::OpenOptions::new()
        .read(true)
        .write(mode.is_writing())
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn lock(path: &Path, file: &File, mode: OpenMode) -> Result<(), OpenError> {
    let operation = match mode {
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::Exclusive | OpenMode::Claimed => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(file, operation).map_err(|errno| match errno {
        Errno::WOULDBLOCK => OpenError::Locked { path: path.to_owned() },
        errno => OpenError::io(path, errno.into()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A disk as the kernel shows it.
    fn disk(dir: &Path, name: &str, cache: &str) -> PathBuf {
        let dir = dir.join(name);
        fs::create_dir_all(dir.join("queue")).unwrap();
        fs::create_dir_all(dir.join("slaves")).unwrap();
        fs::write(dir.join("dev"), "7:3\n").unwrap();
        fs::write(dir.join("queue/write_cache"), cache).unwrap();
        dir
    }

    #[test]
    fn loop_devices_that_drop_flushes_are_found() {
        for (cache, refused) in [("write back\n", false), ("write through\n", true)] {
            let dir = tempfile::tempdir().unwrap();
            let looped = disk(dir.path(), "loop3", cache);
            fs::create_dir(looped.join("loop")).unwrap();
            let partition = looped.join("loop3p1");
            fs::create_dir(&partition).unwrap();
            fs::write(partition.join("partition"), "1\n").unwrap();
            fs::write(partition.join("dev"), "259:0\n").unwrap();
            // A mapped device over the partition believes whatever it was told when it was made.
            let mapped = disk(dir.path(), "dm-0", "write back\n");
            std::os::unix::fs::symlink(&partition, mapped.join("slaves/loop3p1")).unwrap();
            let other = disk(dir.path(), "sda", cache);
            for (dir, refused) in
                [(looped, refused), (partition, refused), (mapped, refused), (other, false)]
            {
                let disk = Disk::in_dir(dir.clone()).unwrap();
                let answer = refuse_if_flushes_are_dropped(&disk);
                assert_eq!(answer.is_err(), refused, "{}: {answer:?}", dir.display());
            }
        }
    }
}
