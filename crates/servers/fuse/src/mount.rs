//! Mounting and unmounting.
//!
//! First the kernel makes a superblock, which claims the disk. Once the server is ready the kernel
//! shows the superblock under a path. A failure before that leaves nothing behind.

use std::ffi::CString;
use std::fs::{Metadata, canonicalize};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bitflags::bitflags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, CWD, Mode, OFlags, access};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};

use crate::helper;
use crate::negotiate::Wanted;
use crate::session::{Channel, Session};

const DEVICE: &str = "/dev/fuse";
/// Block size in bytes that the kernel's cache of the mounted disk uses.
const DISK_BLOCK_BYTES: &str = "4096";

bitflags! {
    /// What a mount forbids, and how it works.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Nothing can be written.
        const READ_ONLY = 1 << 0;
        /// Device files are not devices.
        const NO_DEV = 1 << 1;
        /// Set-id bits do nothing.
        const NO_SUID = 1 << 2;
        /// Nothing can be executed.
        const NO_EXEC = 1 << 3;
        /// The kernel keeps no times of access.
        const NO_ATIME = 1 << 4;
        /// Writes are durable when they return.
        const SYNC = 1 << 5;
        /// Changes of directories are durable when they return.
        const DIR_SYNC = 1 << 6;
    }
}

/// What a file system is mounted from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// No device; the name is for people (type `fuse`).
    Named(String),
    /// A block device, which the kernel claims for the mount (`fuseblk`). `syncfs` arrives, and
    /// unmounting waits for the server.
    Disk(PathBuf),
}

/// How a file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the file system is mounted from.
    pub source: Source,
    /// The part of the type's name behind the point, as in `fuse.manylogs`.
    pub subtype: Option<&'static str>,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Other flags.
    pub flags: MountFlags,
}

/// A file system that the kernel knows and that is not yet served. Dropping it takes it back.
#[derive(Debug)]
pub struct Superblock {
    device: OwnedFd,
    mount: Prepared,
    target: PathBuf,
}

#[derive(Debug)]
enum Prepared {
    /// The kernel's handle of the mount, and the flags to show it with.
    Handle(OwnedFd, MountFlags),
    /// `fusermount3` has shown it already.
    Shown(Mount),
}

/// A mounted file system; dropping it unmounts it, lazily.
#[derive(Debug)]
pub(crate) struct Mount {
    target: PathBuf,
    /// The connection to the kernel, while a session serves it.
    device: Weak<OwnedFd>,
    gone: AtomicBool,
}

impl Superblock {
    /// Makes a superblock for a mount on `target`. Where the caller may not do so,
    /// `fusermount3` does.
    ///
    /// # Errors
    /// `EBUSY` if something else has claimed the disk; `ENOENT` if there is no `/dev/fuse`; those
    /// of the kernel or of `fusermount3`.
    pub fn create(target: &Path, options: &MountOptions) -> io::Result<Self> {
        let target = canonicalize(target)?;
        if access(DEVICE, Access::READ_OK | Access::WRITE_OK) == Err(Errno::ACCESS) {
            let message = format!("no permission to use {DEVICE}: run as root, or have it opened");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        match create(&target.metadata()?, options) {
            Ok((device, handle)) => {
                Ok(Self { device, mount: Prepared::Handle(handle, options.flags), target })
            }
            Err(Errno::PERM) => {
                let device = helper::mount(&target, options)?;
                let shown = Mount::new(target.clone(), Weak::new());
                Ok(Self { device, mount: Prepared::Shown(shown), target })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Negotiates with the kernel, and shows the file system.
    ///
    /// # Errors
    /// [`crate::InitError`], as [`io::ErrorKind::Unsupported`]; those of the kernel.
    pub fn attach(self, wanted: &Wanted) -> io::Result<Session> {
        let Self { device, mount, target } = self;
        let (handle, flags) = match mount {
            Prepared::Handle(handle, flags) => (handle, flags),
            Prepared::Shown(mut mount) => {
                let channel = Channel::open(device, wanted)?;
                mount.device = Arc::downgrade(channel.device());
                return Ok(Session::new(channel, mount));
            }
        };
        let channel = Channel::open(device, wanted)?;
        if let Err(error) = show(handle.as_fd(), flags, &target) {
            // The connection is closed first, because nobody would answer the kernel's last
            // request.
            drop(channel);
            return Err(error);
        }
        let mount = Mount::new(target, Arc::downgrade(channel.device()));
        Ok(Session::new(channel, mount))
    }
}

/// The kernel's end of the connection, and the superblock.
fn create(target: &Metadata, options: &MountOptions) -> Result<(OwnedFd, OwnedFd), Errno> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (kind, source) = match &options.source {
        Source::Named(name) => ("fuse", CString::new(name.as_bytes())),
        Source::Disk(path) => ("fuseblk", CString::new(path.as_os_str().as_bytes())),
    };
    let source = source.map_err(|_| Errno::INVAL)?;
    let handle = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let fs = handle.as_fd();
    let set = |key: &str, value: String| fsconfig_set_string(fs, key, value);
    fsconfig_set_string(fs, "source", source)?;
    set("fd", device.as_raw_fd().to_string())?;
    set("rootmode", format!("{:o}", target.mode() & 0o170_000))?;
    set("user_id", rustix::process::getuid().as_raw().to_string())?;
    set("group_id", rustix::process::getgid().as_raw().to_string())?;
    if let Some(subtype) = options.subtype {
        set("subtype", subtype.to_owned())?;
    }
    if matches!(options.source, Source::Disk(_)) {
        set("blksize", DISK_BLOCK_BYTES.to_owned())?;
    }
    let superblock_flags = [
        ("allow_other", options.allow_other),
        ("default_permissions", options.default_permissions),
        ("ro", options.flags.contains(MountFlags::READ_ONLY)),
        ("sync", options.flags.contains(MountFlags::SYNC)),
        ("dirsync", options.flags.contains(MountFlags::DIR_SYNC)),
    ];
    for (flag, _) in superblock_flags.iter().filter(|(_, on)| *on) {
        fsconfig_set_flag(fs, *flag)?;
    }
    fsconfig_create(fs)?;
    Ok((device, handle))
}

/// Shows a superblock under a path.
fn show(handle: BorrowedFd<'_>, flags: MountFlags, target: &Path) -> io::Result<()> {
    let attributes = [
        (MountFlags::READ_ONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NO_DEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NO_SUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NO_EXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NO_ATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
    ];
    let told = attributes.into_iter().filter(|(flag, _)| flags.contains(*flag));
    let told = told.fold(MountAttrFlags::empty(), |all, (_, attribute)| all | attribute);
    let mount = fsmount(handle, FsMountFlags::FSMOUNT_CLOEXEC, told)?;
    move_mount(mount, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

impl Mount {
    const fn new(target: PathBuf, device: Weak<OwnedFd>) -> Self {
        Self { target, device, gone: AtomicBool::new(false) }
    }

    /// Notes that the kernel has unmounted the file system.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Unmounts the file system, unless it is unmounted already.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        self.unmount_with(UnmountFlags::empty())
    }

    fn unmount_with(&self, flags: UnmountFlags) -> io::Result<()> {
        let ended = self.device.upgrade().is_some_and(|device| has_ended(&device));
        if ended || self.gone.load(Ordering::Acquire) {
            // Something else may be mounted there by now.
            return Ok(());
        }
        match unmount(&self.target, flags) {
            Err(Errno::PERM) => helper::unmount(&self.target),
            result => Ok(result?),
        }
    }
}

/// Unmounts the file system on `target`, whether it is served or not. `lazily` hides it now and
/// ends it with its last user. Where the caller may not do so, `fusermount3` does.
///
/// # Errors
/// `EBUSY` if somebody uses it; those of the kernel or of `fusermount3`.
pub fn unmount_from(target: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(target, flags) {
        Err(Errno::PERM) => helper::unmount(target),
        result => Ok(result?),
    }
}

/// Whether the kernel has ended a connection.
fn has_ended(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that nobody serves would keep its users waiting.
        let _ = self.unmount_with(UnmountFlags::DETACH);
    }
}
