//! What the kernel asks for, as jobs for the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use manylogs_ext4::{Attributes, Change, Error, Ext4, FileKind, New, Taken};

use crate::convert::{
    to_allocation, to_attr, to_device, to_errno, to_ino, to_node, to_seek, to_timestamp, to_type,
};
use crate::engine::Queue;

/// Nobody else changes names.
const NAMES_TTL: Duration = Duration::from_secs(3600);
/// Blocks in use change when data is written back.
const ATTRIBUTES_TTL: Duration = Duration::from_secs(1);
/// Longest request that the kernel may send: 256 pages.
const REQUEST_MAX: u32 = 1 << 20;

/// Translates.
pub(crate) struct Front {
    queue: Arc<Queue>,
}

impl Front {
    pub(crate) const fn new(queue: Arc<Queue>) -> Self {
        Self { queue }
    }

    /// Runs `job` on the file system's thread.
    fn run<F: Future<Output = ()> + 'static>(&self, job: impl FnOnce(Ext4) -> F + Send + 'static) {
        self.queue.push(Box::new(move |fs| Box::pin(job(fs))));
    }

    fn empty<F: Future<Output = Result<(), Error>> + 'static>(
        &self,
        reply: ReplyEmpty,
        job: impl FnOnce(Ext4) -> F + Send + 'static,
    ) {
        self.run(async move |fs| match job(fs).await {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    /// Answers with an inode, which the kernel knows from now on.
    fn entry<F: Future<Output = Result<Attributes, Error>> + 'static>(
        &self,
        reply: ReplyEntry,
        job: impl FnOnce(Ext4) -> F + Send + 'static,
    ) {
        self.run(async move |fs| match job(fs.clone()).await {
            Ok(known) => {
                fs.open(known.ino);
                let generation = Generation(known.generation.into());
                reply.entry_with_ttls(&ATTRIBUTES_TTL, &NAMES_TTL, &to_attr(&known), generation);
            }
            Err(error) => reply.error(to_errno(&error)),
        });
    }
}

/// What is created, for whoever asks.
fn new(request: &Request, kind: FileKind, mode: u32) -> New {
    let permissions = u16::try_from(mode & 0o7777).unwrap_or(0);
    New { uid: request.uid(), gid: request.gid(), ..New::plain(kind, permissions) }
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What a kernel does not offer it does without.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(REQUEST_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (dir, name) = (to_ino(parent), owned(name));
        self.entry(reply, async move |fs| fs.lookup(dir, &name).await);
    }

    fn forget(&self, _: &Request, node: INodeNo, times: u64) {
        let (ino, times) = (to_ino(node), u32::try_from(times).unwrap_or(u32::MAX));
        // A failure leaves an orphan, which the next mount ends.
        self.run(async move |fs| drop(fs.close(ino, times).await));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ino = to_ino(node);
        self.run(async move |fs| match fs.attributes(ino).await {
            Ok(known) => reply.attr(&ATTRIBUTES_TTL, &to_attr(&known)),
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let permissions = mode.map(|mode| u16::try_from(mode & 0o7777).unwrap_or(0));
        let (accessed, modified) = (accessed.map(to_timestamp), modified.map(to_timestamp));
        let change = Change { permissions, uid, gid, size, accessed, modified };
        let ino = to_ino(node);
        self.run(async move |fs| match fs.change(ino, change).await {
            Ok(known) => reply.attr(&ATTRIBUTES_TTL, &to_attr(&known)),
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let ino = to_ino(node);
        self.run(async move |fs| match fs.read_link(ino).await {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = FileKind::of_mode(u16::try_from(mode & 0o170_000).unwrap_or(0));
        let Some(kind) = kind else { return reply.error(Errno::EINVAL) };
        let new = New { device: to_device(rdev), ..new(request, kind, mode) };
        let (dir, name) = (to_ino(parent), owned(name));
        self.entry(reply, async move |fs| fs.create(dir, &name, new).await);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let new = new(request, FileKind::Directory, mode);
        let (dir, name) = (to_ino(parent), owned(name));
        self.entry(reply, async move |fs| fs.create(dir, &name, new).await);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (to_ino(parent), owned(name));
        self.empty(reply, async move |fs| fs.unlink(dir, &name).await);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (to_ino(parent), owned(name));
        self.empty(reply, async move |fs| fs.remove_directory(dir, &name).await);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        let new = New { target, ..new(request, FileKind::Symlink, 0o777) };
        let (dir, name) = (to_ino(parent), owned(name));
        self.entry(reply, async move |fs| fs.create(dir, &name, new).await);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let taken = if flags.is_empty() {
            Taken::Replaced
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Taken::Kept
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Taken::Exchanged
        } else {
            return reply.error(Errno::EINVAL);
        };
        let from = (to_ino(parent), owned(name));
        let to = (to_ino(to_parent), owned(to_name));
        self.empty(reply, async move |fs| fs.rename((from.0, &from.1), (to.0, &to.1), taken).await);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (ino, dir, name) = (to_ino(node), to_ino(parent), owned(name));
        self.entry(reply, async move |fs| fs.link(ino, dir, &name).await);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let new = new(request, FileKind::File, mode);
        let (dir, name) = (to_ino(parent), owned(name));
        self.run(async move |fs| match fs.create(dir, &name, new).await {
            Ok(known) => {
                fs.open(known.ino);
                let generation = Generation(known.generation.into());
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                let (ttl, attr) = (&ATTRIBUTES_TTL, to_attr(&known));
                reply.created(ttl, &attr, generation, FileHandle(0), flags);
            }
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let ino = to_ino(node);
        self.run(async move |fs| match fs.read(ino, offset, size as usize).await {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (ino, data) = (to_ino(node), Bytes::copy_from_slice(data));
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let durable = flags.0 & (rustix::fs::OFlags::DSYNC.bits().cast_signed()) != 0;
        self.run(async move |fs| {
            let written = async {
                fs.write(ino, offset, data).await?;
                if durable { fs.sync(ino).await } else { Ok(()) }
            };
            match written.await {
                Ok(()) => reply.written(len),
                Err(error) => reply.error(to_errno(&error)),
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close promises nothing.
        reply.ok();
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = to_ino(node);
        self.empty(reply, async move |fs| fs.sync(ino).await);
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = to_ino(node);
        self.empty(reply, async move |fs| fs.sync(ino).await);
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let ino = to_ino(node);
        self.run(async move |fs| match fs.list(ino, offset).await {
            Ok(listed) => {
                for entry in listed {
                    // What the directory does not say is said when somebody looks.
                    let kind = entry.kind.map_or(FileType::RegularFile, to_type);
                    let name = OsStr::from_bytes(&entry.name);
                    if reply.add(to_node(entry.ino), entry.next, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some((what, keep_size)) = to_allocation(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let (ino, range) = (to_ino(node), offset..offset.saturating_add(length));
        self.empty(reply, async move |fs| fs.allocate(ino, range, what, keep_size).await);
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Some(what) = to_seek(whence) else { return reply.error(Errno::EINVAL) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let ino = to_ino(node);
        self.run(async move |fs| match fs.seek(ino, offset, what).await {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(to_errno(&error)),
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.run(async move |fs| {
            let usage = fs.usage();
            let (free, available) = (usage.free_blocks, usage.available_blocks);
            let (inodes, free_inodes) = (usage.inodes, usage.free_inodes);
            reply.statfs(usage.blocks, free, available, inodes, free_inodes, 4096, 255, 4096);
        });
    }
}
