//! The export as one file, through FUSE. A loop device can be attached to it.
//!
//! The mount point is itself the file, so that nothing else is visible. What arrives for which
//! request of the block layer: `docs/operations.md`.

mod calls;
mod seek;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Session, WriteFlags,
};
use manylogs_block::{Capabilities, IoError, Payload, Request, SECTOR_BYTES};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::Shelf;
use thiserror::Error;

use crate::log::{Level, line};
use crate::loop_device::{LoopDevice, Orphan};
use crate::port::Port;
use crate::runtime_dir::is_dead;
use crate::translate::{Call, Operation};
use calls::Durable;
#[cfg(all(test, feature = "plant"))]
pub(crate) use calls::tests;
use seek::{Seek, seek};

/// The file never changes but by its content.
const TTL: Duration = Duration::from_secs(3600);
/// Longest request that the kernel may send: 256 pages.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests that the kernel keeps under way: as many as a drive's queue and the engine's use.
const BACKGROUND: u16 = 128;

/// Why the file cannot be offered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FuseError {
    /// The kernel has no FUSE.
    #[error("there is no /dev/fuse: load the module (modprobe fuse), or serve over NBD")]
    NoFuse,
    /// The file system cannot be mounted.
    #[error("cannot mount {}: {source}", path.display())]
    Mount {
        /// Mount point.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A mounted file; dropping it unmounts it.
#[derive(Debug)]
pub struct FuseFile {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl FuseFile {
    /// Mounts the export behind `port` as the file `path`, for its user alone. A mount that a
    /// server left there when it was killed is taken away.
    ///
    /// # Errors
    /// See [`FuseError`].
    pub fn mount(port: Port, capabilities: Capabilities, path: &Path) -> Result<Self, FuseError> {
        if !Path::new("/dev/fuse").exists() {
            return Err(FuseError::NoFuse);
        }
        let failed = |source| FuseError::Mount { path: path.to_owned(), source };
        make_mount_point(path).map_err(failed)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("manylogs".to_owned()),
            MountOption::Subtype("manylogs".to_owned()),
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::NoAtime,
        ];
        let shelf = Arc::new(Shelf::default());
        let export = Export { port, capabilities, shelf, began: SystemTime::now() };
        let session = Session::new(export, path, &config).and_then(Session::spawn);
        Ok(Self { path: path.to_owned(), session: Some(session.map_err(failed)?) })
    }

    /// Leaves the file to those who have it open: they see errors once the process is gone.
    pub fn abandon(mut self) {
        if let Some(session) = self.session.take() {
            std::mem::forget(session);
        }
        // Otherwise the end of the process would wait for users of the mount.
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // If it is in use it goes with its last user.
            let _ = session.umount_and_join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// An empty file to mount on.
fn make_mount_point(path: &Path) -> io::Result<()> {
    if is_dead(path) {
        // Users of the file see errors since its server was killed.
        for Orphan { device, users } in LoopDevice::detach_from(path) {
            let message = format!(
                "{} is left of a server that was killed, and in use ({}): its users see errors \
                 until they close it",
                device.display(),
                users.join(", ")
            );
            line(Level::Warning, None, &message, &[]);
        }
        rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)?;
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

struct Export {
    port: Port,
    capabilities: Capabilities,
    /// Memory for what is written, as the device below likes it.
    shelf: Arc<Shelf>,
    began: SystemTime,
}

impl Export {
    fn attributes(&self) -> FileAttr {
        let bytes = self.capabilities.capacity.bytes();
        FileAttr {
            ino: INodeNo::ROOT,
            size: bytes,
            blocks: bytes / SECTOR_BYTES,
            atime: self.began,
            mtime: self.began,
            ctime: self.began,
            crtime: self.began,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            flags: 0,
            // What a loop device takes for the granularity of its discards.
            blksize: 4096,
        }
    }

    /// Carries out a call and answers it. Without a request there is nothing to do.
    fn answer(&self, asked: Result<Option<Request>, Errno>, reply: ReplyEmpty) {
        match asked {
            Ok(Some(request)) => self.port.submit(request, move |result| match result {
                Ok(_) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }),
            Ok(None) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

/// What a file was opened for, in its handle: the kernel does not tell it to `fallocate`, and it
/// never changes.
const PLAIN: FileHandle = FileHandle(0);
const DURABLE: FileHandle = FileHandle(1);

fn durable(handle: FileHandle) -> Durable {
    if handle == DURABLE { Durable::AtOnce } else { Durable::WithFsync }
}

fn errno(error: &IoError) -> Errno {
    Errno::from_i32(crate::errno(error).raw_os_error())
}

impl Filesystem for Export {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Features that the kernel lacks are not needed.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_congestion_threshold(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, _: INodeNo, _: &std::ffi::OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOENT);
    }

    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes());
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, opened: OpenFlags, reply: ReplyOpen) {
        // The kernel need not cache, as the engine does; and writes need not wait for one another.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        let handle = match Durable::of(opened) {
            Durable::AtOnce => DURABLE,
            Durable::WithFsync => PLAIN,
        };
        reply.opened(handle, flags);
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = Call::new(Operation::Read, offset, size.into());
        let Some(around) = read.around(self.capabilities.capacity) else {
            reply.data(&[]);
            return;
        };
        self.port.submit(Request::Read { extent: around.extent }, move |result| {
            match result.and_then(|sectors| around.cut(&sectors)) {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (len, durable) = (data.len(), Durable::of(flags));
        let payload = || Payload::bytes(self.shelf.copy(data));
        match calls::write(self.capabilities.capacity, offset, len, durable, payload) {
            Ok(write) => self.port.submit(write, move |result| match result {
                Ok(_) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
                Err(error) => reply.error(errno(&error)),
            }),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A close promises nothing.
        reply.ok();
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer(Ok(calls::sync()), reply);
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        assert!(!plant::is(Bug::FrontEndPanics), "planted");
        let (capacity, durable) = (self.capabilities.capacity, durable(handle));
        self.answer(calls::allocate(capacity, offset, length, mode, durable), reply);
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let capacity = self.capabilities.capacity;
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < capacity.bytes());
        match (Seek::of(whence), offset) {
            (None, _) => reply.error(Errno::EINVAL),
            (_, None) => reply.error(Errno::ENXIO),
            (Some(what), Some(offset)) => seek(&self.port, capacity, what, offset, reply),
        }
    }

    fn setattr(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.is_some_and(|size| size != self.capabilities.capacity.bytes());
        if resized || mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else {
            reply.attr(&TTL, &self.attributes());
        }
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.capabilities.capacity.0 / 8;
        reply.statfs(blocks, 0, 0, 1, 0, 4096, 255, 4096);
    }
}
