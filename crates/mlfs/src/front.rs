//! What the kernel asks for, as jobs for the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use manylogs_ext4::{AccessTimes, Change, FileKind, New, Taken};
use rustix::fs::OFlags;

use crate::answers;
use crate::callers::Caller;
use crate::convert::{
    has, to_allocation, to_attr, to_device, to_ino, to_open, to_order, to_seek, to_sync,
    to_timestamp,
};
use crate::jobs::{ATTRIBUTES_TTL, Jobs};

/// Longest request that the kernel may send: 256 pages.
const REQUEST_MAX: u32 = 1 << 20;

/// Translates.
pub(crate) struct Front {
    jobs: Jobs,
    files: AccessTimes,
    directories: AccessTimes,
}

impl Front {
    pub(crate) const fn new(jobs: Jobs, files: AccessTimes, directories: AccessTimes) -> Self {
        Self { jobs, files, directories }
    }
}

/// What is created, for whoever asks.
fn new(request: &Request, kind: FileKind, mode: u32, umask: u32) -> New {
    let umask = permissions(umask);
    New { uid: request.uid(), gid: request.gid(), umask, ..New::plain(kind, permissions(mode)) }
}

/// The lower twelve bits of a mode.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What a kernel does not offer it does without.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_HAS_IOCTL_DIR);
        // The kernel checks lists of access; the umask is ours, as a default list may replace it.
        let acl = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        config.add_capabilities(acl).map_err(|_| std::io::ErrorKind::Unsupported)?;
        let _ = config.set_max_write(REQUEST_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.entry(reply, async move |fs| fs.lookup(dir, &name).await);
    }

    fn forget(&self, _: &Request, node: INodeNo, times: u64) {
        let (ino, times) = (to_ino(node), u32::try_from(times).unwrap_or(u32::MAX));
        // A failure leaves an orphan, which the next mount ends.
        self.jobs.run(async move |fs, _| drop(fs.close(ino, times).await));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ino = to_ino(node);
        self.jobs.attributes(reply, async move |fs| fs.attributes(ino).await);
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
        let permissions = mode.map(permissions);
        let (accessed, modified) = (accessed.map(to_timestamp), modified.map(to_timestamp));
        let change = Change { permissions, uid, gid, size, accessed, modified };
        let ino = to_ino(node);
        self.jobs.attributes(reply, async move |fs| fs.change(ino, change).await);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let (ino, times) = (to_ino(node), self.files);
        self.jobs.content(reply, ino, times, async move |fs| fs.read_link(ino).await);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = FileKind::of_mode(u16::try_from(mode & 0o170_000).unwrap_or(0));
        let Some(kind) = kind else { return reply.error(Errno::EINVAL) };
        let new = New { device: to_device(rdev), ..new(request, kind, mode, umask) };
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.entry(reply, async move |fs| fs.create(dir, &name, new).await);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new(request, FileKind::Directory, mode, umask);
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.entry(reply, async move |fs| fs.create(dir, &name, new).await);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.empty(reply, async move |fs| fs.unlink(dir, &name).await);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.empty(reply, async move |fs| fs.remove_directory(dir, &name).await);
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
        let new = New { target, ..new(request, FileKind::Symlink, 0o777, 0) };
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.entry(reply, async move |fs| fs.create(dir, &name, new).await);
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
        self.jobs
            .empty(reply, async move |fs| fs.rename((from.0, &from.1), (to.0, &to.1), taken).await);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (ino, dir, name) = (to_ino(node), to_ino(parent), owned(name));
        self.jobs.entry(reply, async move |fs| fs.link(ino, dir, &name).await);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let what = to_open(flags);
        if !what.write && !what.truncate {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
        let ino = to_ino(node);
        self.jobs.run(async move |fs, refuse| match fs.check_open(ino, what).await {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let new = new(request, FileKind::File, mode, umask);
        let (dir, name) = (to_ino(parent), owned(name));
        self.jobs.run(async move |fs, refuse| match fs.create(dir, &name, new).await {
            Ok(known) => {
                fs.open(known.ino);
                let generation = Generation(known.generation.into());
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                let (ttl, attr) = (&ATTRIBUTES_TTL, to_attr(&known));
                reply.created(ttl, &attr, generation, FileHandle(0), flags);
            }
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let ino = to_ino(node);
        let unnoticed = has(flags, OFlags::NOATIME);
        let times = if unnoticed { AccessTimes::Off } else { self.files };
        self.jobs
            .content(reply, ino, times, async move |fs| fs.read(ino, offset, size as usize).await);
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
        let sync = to_sync(flags);
        self.jobs.run(async move |fs, refuse| {
            answers::write(&fs, refuse, (ino, offset), data, sync, reply).await;
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close promises nothing.
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        content_alone: bool,
        reply: ReplyEmpty,
    ) {
        let ino = to_ino(node);
        self.jobs.empty(reply, async move |fs| {
            if content_alone { fs.sync_content(ino).await } else { fs.sync(ino).await }
        });
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = to_ino(node);
        self.jobs.empty(reply, async move |fs| fs.sync(ino).await);
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (ino, times) = (to_ino(node), self.directories);
        self.jobs.run(async move |fs, refuse| {
            answers::list(&fs, refuse, (ino, offset), times, reply).await;
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
        self.jobs.empty(reply, async move |fs| fs.allocate(ino, range, what, keep_size).await);
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
        self.jobs.run(async move |fs, refuse| match fs.seek(ino, offset, what).await {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.jobs.run(async move |fs, _| answers::usage(&fs, reply));
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (ino, name) = (to_ino(node), owned(name));
        self.jobs.xattr(reply, size, async move |fs| fs.xattr(ino, &name).await);
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let (ino, trusted) = (to_ino(node), request.uid() == 0);
        self.jobs.xattr(reply, size, async move |fs| answers::xattrs(&fs, ino, trusted).await);
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (ino, name, value) = (to_ino(node), owned(name), Bytes::copy_from_slice(value));
        let caller = Caller::of(request);
        self.jobs.empty(reply, async move |fs| {
            answers::set_xattr(&fs, ino, &name, value, (flags, caller)).await
        });
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (ino, name) = (to_ino(node), owned(name));
        self.jobs.empty(reply, async move |fs| fs.remove_xattr(ino, &name).await);
    }

    fn ioctl(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let Some(order) = to_order(command, data) else { return reply.error(Errno::ENOTTY) };
        let ino = to_ino(node);
        self.jobs.run(async move |fs, refuse| {
            answers::inode_flags(&fs, refuse, ino, order, reply).await;
        });
    }
}
