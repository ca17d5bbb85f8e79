//! Why a device was not opened.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a device was not opened, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no file or disk of that name.
    #[error("{path} does not exist: check the name, or create an image first")]
    NotFound {
        /// Path of the file or disk.
        path: PathBuf,
    },
    /// The user has no permission to open the device.
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
    /// A file system on the disk is mounted.
    #[error("{device} is mounted on {mount_point}: unmount it first (umount {mount_point})")]
    Mounted {
        /// The disk, or the partition of it.
        device: String,
        /// Path.
        mount_point: String,
    },
    /// Another device is made of the disk, or the disk is swap space.
    #[error("{device} is used by {by}: stop that first")]
    Held {
        /// The disk, or the partition of it.
        device: String,
        /// The device or swap that uses the disk.
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
    /// Another device shows the same bytes.
    #[error(
        "{path} and /dev/{device} show the same bytes: detach one of them first (losetup -d \
         /dev/{device})"
    )]
    ShownTwice {
        /// Path of the disk.
        path: PathBuf,
        /// Name of the loop device.
        device: String,
    },
    /// The system or another program has the disk open exclusively.
    #[error(
        "{path} is in use by {}: stop that first (lsblk and fuser -v tell more)",
        by.as_deref().unwrap_or("the system or another program")
    )]
    Busy {
        /// Path of the file or disk.
        path: PathBuf,
        /// The process that has it with its command line, if it can be found.
        by: Option<String>,
        /// Whether the process was killed and only its last requests are still under way.
        ending: bool,
    },
    /// Another process has locked the file, or a file or disk below the device.
    #[error(
        "{path}{} is locked by {}: stop that first (fuser -v {} names it)",
        below(path, on),
        by.as_deref().unwrap_or("another process"),
        on.display()
    )]
    Locked {
        /// Path of the file or disk.
        path: PathBuf,
        /// The locked file: the one at `path`, or one behind a loop device.
        on: PathBuf,
        /// The process that has it with its command line, if it can be found.
        by: Option<String>,
        /// Whether the process was killed and only its last requests are still under way.
        ending: bool,
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
    /// The kernel drops flushes to the device, so no write would ever be durable.
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
    /// The physical sector is not a power of two.
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
            ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => {
                Self::Busy { path, by: None, ending: false }
            }
            _ => Self::Io { path, source },
        }
    }
}

/// The locked file below the device, as a part of a sentence.
fn below(path: &Path, on: &Path) -> String {
    if on == path { String::new() } else { format!(" lies on {}, which", on.display()) }
}
