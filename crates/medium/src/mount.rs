//! The disk as a file: FUSE with direct I/O, so that the kernel caches nothing above the disk.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Session, WriteFlags,
};
use manylogs_block::{Extent, SECTOR_BYTES, Sectors, to_usize};
use rustix::fs::FallocateFlags;
use rustix::mount::{UnmountFlags, unmount};

use crate::client::file::O_DSYNC;
use crate::disk::{Asked, Reply};
use crate::medium::Event;

const TTL: Duration = Duration::from_secs(3600);
const REQUEST_MAX: u32 = 1 << 20;
const BACKGROUND: u16 = 64;
/// Time for which the file may still be in use when it is unmounted.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(5);

/// The mounted file; dropping it unmounts it.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

/// A file system with one file. Its requests belong to one `generation` of the disk, so that
/// requests of a killed server do not reach the disk after the power cut.
#[derive(Debug)]
pub(crate) struct DiskFile {
    pub(crate) events: Sender<Event>,
    pub(crate) generation: u64,
    pub(crate) capacity: Sectors,
}

impl Mount {
    pub(crate) fn new(file: DiskFile, path: &Path) -> io::Result<Self> {
        std::fs::File::create(path)?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("medium".to_owned()), MountOption::NoAtime];
        let session = Session::new(file, path, &config)?.spawn()?;
        Ok(Self { path: path.to_owned(), session: Some(session) })
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        // A loop device over the file may take a moment to close it.
        let began = Instant::now();
        while unmount(&self.path, UnmountFlags::empty()).is_err() && began.elapsed() < PATIENCE {
            std::thread::sleep(RETRY);
        }
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = session.umount_and_join();
    }
}

impl DiskFile {
    fn attributes(&self) -> FileAttr {
        let then = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo::ROOT,
            size: self.capacity.bytes(),
            blocks: self.capacity.0,
            atime: then,
            mtime: then,
            ctime: then,
            crtime: then,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }

    /// The extent of a request, if it consists of whole sectors within the disk.
    fn sectors(&self, offset: u64, len: u64) -> Option<Extent> {
        let whole = offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES);
        let fits = len > 0 && offset + len <= self.capacity.bytes();
        (whole && fits).then(|| Extent::new(offset / SECTOR_BYTES, len / SECTOR_BYTES))
    }

    fn ask(&self, asked: Asked, reply: impl FnOnce(Vec<u8>) + Send + 'static) {
        let reply: Reply = Box::new(reply);
        let _ = self.events.send(Event::Disk { generation: self.generation, asked, reply });
    }
}

fn is_durable(flags: OpenFlags) -> bool {
    // The kernel sets O_DSYNC for RWF_DSYNC too; O_SYNC contains it.
    flags.0 & O_DSYNC != 0
}

impl Filesystem for DiskFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOENT);
    }

    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes());
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
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
        let end = (offset + u64::from(size)).min(self.capacity.bytes());
        if offset >= end {
            return reply.data(&[]);
        }
        let start = offset / SECTOR_BYTES;
        let extent = Extent::new(start, end.div_ceil(SECTOR_BYTES) - start);
        let (skip, len) = (to_usize(offset % SECTOR_BYTES), to_usize(end - offset));
        self.ask(Asked::Read { extent }, move |bytes| match bytes.get(skip..skip + len) {
            Some(bytes) => reply.data(bytes),
            None => reply.error(Errno::EIO),
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
        let Some(extent) = self.sectors(offset, data.len() as u64) else {
            return reply.error(Errno::EINVAL);
        };
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let (bytes, fua) = (Some(data.to_vec()), is_durable(flags));
        self.ask(Asked::Write { extent, bytes, fua }, move |_| reply.written(len));
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.ask(Asked::Flush, move |_| reply.ok());
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
        if offset >= self.capacity.bytes() || !mode.intersects(zeroing) {
            // A read is answered in full or not at all.
            return reply.ok();
        }
        let Some(extent) = self.sectors(offset, length) else { return reply.error(Errno::EINVAL) };
        let zeroes = Asked::Write { extent, bytes: None, fua: false };
        self.ask(zeroes, move |_| reply.ok());
    }
}
