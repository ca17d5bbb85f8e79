//! The disk as a file: FUSE with direct I/O, so that the kernel caches nothing above the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use manylogs_block::{Extent, SECTOR_BYTES, Sectors, to_usize};
use manylogs_fuse::request::{Allocate, Open, Read, Sync, Write};
use manylogs_fuse::{
    Attributes, BackgroundSession, Context, Device, Entry, Errno, FileHandle, Filesystem,
    InitFlags, Known, MountFlags, MountOptions, NodeId, NodeKind, OpenFlags, Opened, OpenedFlags,
    Reply, Source, Superblock, Time, Wanted, Written,
};
use rustix::fs::FallocateFlags;
use rustix::mount::{UnmountFlags, unmount};

use crate::client::file::O_DSYNC;
use crate::disk::{Asked, Reply as DiskReply};
use crate::medium::Event;

const TTL: Duration = Duration::from_secs(3600);
const WANTED: Wanted = Wanted {
    required: InitFlags::empty(),
    desired: InitFlags::ASYNC_READ.union(InitFlags::ASYNC_DIO),
    // 256 pages.
    max_write: 1 << 20,
    max_background: 64,
    congestion_threshold: 48,
};
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
        let options = MountOptions {
            source: Source::Named("medium".to_owned()),
            subtype: None,
            allow_other: false,
            default_permissions: false,
            flags: MountFlags::NO_ATIME | MountFlags::NO_DEV | MountFlags::NO_SUID,
        };
        let session = Superblock::create(path, &options)?.attach(&WANTED)?.spawn(file)?;
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
        let _ = session.unmount_and_join();
    }
}

impl DiskFile {
    fn known(&self) -> Known {
        let then = Time::default();
        let attributes = Attributes {
            node: NodeId::ROOT,
            number: NodeId::ROOT.0,
            size: self.capacity.bytes(),
            sectors: self.capacity.0,
            accessed: then,
            modified: then,
            changed: then,
            kind: NodeKind::File,
            permissions: 0o600,
            links: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            device: Device::default(),
            block_bytes: 4096,
        };
        Known { attributes, valid: TTL }
    }

    /// The extent of a request, if it consists of whole sectors within the disk.
    fn sectors(&self, offset: u64, len: u64) -> Option<Extent> {
        let whole = offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES);
        let fits = len > 0 && offset.saturating_add(len) <= self.capacity.bytes();
        (whole && fits).then(|| Extent::new(offset / SECTOR_BYTES, len / SECTOR_BYTES))
    }

    fn ask(&self, asked: Asked, reply: impl FnOnce(Vec<u8>) + Send + 'static) {
        let reply: DiskReply = Box::new(reply);
        let _ = self.events.send(Event::Disk { generation: self.generation, asked, reply });
    }
}

fn is_durable(flags: OpenFlags) -> bool {
    // The kernel sets O_DSYNC for RWF_DSYNC too; O_SYNC contains it.
    flags.0 & O_DSYNC.cast_unsigned() != 0
}

impl Filesystem for DiskFile {
    fn lookup(&self, _: Context, _: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOENT);
    }

    fn attributes(&self, _: Context, reply: Reply<Known>) {
        reply.send(&self.known());
    }

    fn open(&self, _: Context, _: Open, reply: Reply<Opened>) {
        let flags = OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES;
        reply.send(&Opened { handle: FileHandle(0), flags });
    }

    fn read(&self, _: Context, read: Read, reply: Reply<[u8]>) {
        let offset = read.offset;
        let end = offset.saturating_add(read.size.into()).min(self.capacity.bytes());
        if offset >= end {
            return reply.send(&[]);
        }
        let start = offset / SECTOR_BYTES;
        let extent = Extent::new(start, end.div_ceil(SECTOR_BYTES) - start);
        let (skip, len) = (to_usize(offset % SECTOR_BYTES), to_usize(end - offset));
        self.ask(Asked::Read { extent }, move |bytes| match bytes.get(skip..skip + len) {
            Some(bytes) => reply.send(bytes),
            None => reply.error(Errno::IO),
        });
    }

    fn write(&self, _: Context, write: Write<'_>, reply: Reply<Written>) {
        let Some(extent) = self.sectors(write.offset, write.data.len() as u64) else {
            return reply.error(Errno::INVAL);
        };
        let len = u32::try_from(write.data.len()).unwrap_or(u32::MAX);
        let (bytes, fua) = (Some(write.data.to_vec()), is_durable(write.flags));
        self.ask(Asked::Write { extent, bytes, fua }, move |_| reply.send(&Written(len)));
    }

    fn flush(&self, _: Context, _: FileHandle, reply: Reply<()>) {
        reply.send(&());
    }

    fn sync(&self, _: Context, _: Sync, reply: Reply<()>) {
        self.ask(Asked::Flush, move |_| reply.send(&()));
    }

    fn allocate(&self, _: Context, allocate: Allocate, reply: Reply<()>) {
        let Allocate { offset, len, mode, .. } = allocate;
        let mode = FallocateFlags::from_bits_retain(mode);
        let zeroing = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if offset >= self.capacity.bytes() || !mode.intersects(zeroing) {
            // A read is answered in full or not at all.
            return reply.send(&());
        }
        let Some(extent) = self.sectors(offset, len) else { return reply.error(Errno::INVAL) };
        let zeroes = Asked::Write { extent, bytes: None, fua: false };
        self.ask(zeroes, move |_| reply.send(&()));
    }
}
