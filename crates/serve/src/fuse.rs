//! The export as one file, through FUSE: what a loop device wants below it.
//!
//! The mount point is itself the file, so that nothing else is visible. What arrives for which
//! request of the block layer: `docs/operations.md`.

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
use manylogs_block::{
    Capabilities, Extent, Hint, IoError, Payload, Request, SECTOR_BYTES, to_usize,
};
use manylogs_storage::Shelf;
use rustix::fs::FallocateFlags;
use thiserror::Error;

use crate::loop_device::LoopDevice;
use crate::port::{Port, content};
use crate::range::{sectors_around, sectors_exactly};
use crate::runtime_dir::is_dead;

/// The file never changes but by its content.
const TTL: Duration = Duration::from_secs(3600);
/// Longest request that the kernel may send: 256 pages.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests that the kernel keeps under way: as many as a drive's queue and the engine's use.
const BACKGROUND: u16 = 128;
/// Where `lseek` looks for data and for holes.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Why the file cannot be offered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FuseError {
    /// The kernel has no FUSE.
    #[error("there is no /dev/fuse: load the module (modprobe fuse), or serve over NBD")]
    NoFuse,
    /// It cannot be mounted.
    #[error("cannot mount {}: {source}", path.display())]
    Mount {
        /// Where.
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
        // What is mounted there would be waited for.
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }

    /// Where it is.
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
        // Whoever still uses it has seen errors since then.
        LoopDevice::detach_from(path);
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

    fn exactly(&self, offset: u64, len: u64) -> Option<Extent> {
        sectors_exactly(self.capabilities.capacity, offset, len)
    }
}

fn errno(error: &IoError) -> Errno {
    Errno::from_i32(crate::errno(error).raw_os_error())
}

fn empty(reply: ReplyEmpty) -> impl FnOnce(manylogs_block::IoResult) + Send {
    move |result| match result {
        Ok(_) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Export {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel does not offer it does without.
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

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The engine is the cache; and writes of one file need not wait for one another.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
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
        let Some(extent) = sectors_around(self.capabilities.capacity, offset, size.into()) else {
            reply.data(&[]);
            return;
        };
        let skip = to_usize(offset - extent.start.0 * SECTOR_BYTES);
        let len = to_usize(u64::from(size).min(self.capabilities.capacity.bytes() - offset));
        self.port.submit(Request::Read { extent }, move |result| match result {
            Ok(payload) => reply.data(&content(&payload)[skip..skip + len]),
            Err(error) => reply.error(errno(&error)),
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
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(extent) = self.exactly(offset, data.len() as u64) else {
            reply.error(Errno::EINVAL);
            return;
        };
        let (payload, len) = (Payload::bytes(self.shelf.copy(data)), data.len());
        let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
        self.port.submit(write, move |result| match result {
            Ok(_) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        });
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
        self.port.submit(Request::Flush, empty(reply));
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let zeroing = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        let Some(extent) = self.exactly(offset, length) else {
            reply.error(Errno::EINVAL);
            return;
        };
        if mode.intersects(zeroing) {
            // Discards and zeroes arrive alike, and file systems rely on zeroes after both.
            let zeroes = Request::WriteZeroes { extent, fua: false };
            self.port.submit(zeroes, empty(reply));
        } else if mode.is_empty() || mode == FallocateFlags::KEEP_SIZE {
            // All of it is there.
            reply.ok();
        } else {
            reply.error(Errno::EOPNOTSUPP);
        }
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
        let end = i64::try_from(self.capabilities.capacity.bytes()).unwrap_or(i64::MAX);
        match whence {
            _ if !(0..end).contains(&offset) => reply.error(Errno::ENXIO),
            // Nobody knows what is home: all of it counts as data.
            SEEK_DATA => reply.offset(offset),
            SEEK_HOLE => reply.offset(end),
            _ => reply.error(Errno::EINVAL),
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
