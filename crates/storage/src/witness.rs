//! A file for tests that is served through FUSE past the page cache, and notes what the kernel asks
//! of it: what really arrives below a device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite,
    Session, WriteFlags,
};
use manylogs_block::{SECTOR_BYTES, to_usize};

mod tests;

/// How the file behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Bytes that offsets and lengths must be multiples of.
    pub(crate) alignment: u64,
    /// Most bytes that one write takes.
    pub(crate) longest_write: usize,
    /// Whether the page cache is used, as mapped files need it.
    pub(crate) cached: bool,
}

/// A file that notes what is asked of it; gone when dropped.
pub(crate) struct Witness {
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

struct Shared {
    behaviour: Behaviour,
    content: Mutex<Vec<u8>>,
    seen: Mutex<Vec<String>>,
    next_sync_fails: AtomicBool,
}

impl Witness {
    /// A file of `sectors` sectors of zeroes, or `None` where this machine does not let us.
    pub(crate) fn new(sectors: u64, behaviour: Behaviour) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("witness");
        File::create(&path).unwrap();
        let content = Mutex::new(vec![0; to_usize(sectors * SECTOR_BYTES)]);
        let seen = Mutex::default();
        let next_sync_fails = AtomicBool::new(false);
        let shared = Arc::new(Shared { behaviour, content, seen, next_sync_fails });
        let served = Served(Arc::clone(&shared));
        let session = Session::new(served, &path, &Config::default()).and_then(Session::spawn);
        match session {
            Ok(session) => Some(Self { shared, session: Some(session), path, _dir: dir }),
            Err(error) => {
                println!("skipped: no FUSE file ({error})");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the next sync fail, and no later one.
    pub(crate) fn fail_next_sync(&self) {
        self.shared.next_sync_fails.store(true, Ordering::SeqCst);
    }

    /// What was written and synced since the last look, in order.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    /// Forgets what was seen, and puts `byte` everywhere.
    pub(crate) fn fill(&self, byte: u8) {
        self.seen();
        self.shared.content.lock().unwrap().fill(byte);
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.shared.content.lock().unwrap().clone()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // A file in use goes with its last user.
            let _ = session.umount_and_join();
        }
    }
}

struct Served(Arc<Shared>);

impl Served {
    fn note(&self, what: String) {
        self.0.seen.lock().unwrap().push(what);
    }

    fn is_aligned(&self, offset: u64, len: usize) -> bool {
        (offset | len as u64).is_multiple_of(self.0.behaviour.alignment)
    }
}

impl Filesystem for Served {
    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let size = self.0.content.lock().unwrap().len() as u64;
        let now = SystemTime::UNIX_EPOCH;
        let attributes = FileAttr {
            ino: INodeNo::ROOT,
            size,
            blocks: size / SECTOR_BYTES,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            flags: 0,
            blksize: 4096,
        };
        reply.attr(&Duration::from_secs(3600), &attributes);
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        let flags = if self.0.behaviour.cached { FopenFlags::empty() } else { direct };
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
        let len = to_usize(size.into());
        if !self.is_aligned(offset, len) {
            return reply.error(Errno::EINVAL);
        }
        let content = self.0.content.lock().unwrap();
        let start = to_usize(offset).min(content.len());
        reply.data(&content[start..(start + len).min(content.len())]);
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
        if !self.is_aligned(offset, data.len()) {
            return reply.error(Errno::EINVAL);
        }
        let how = if flags.0 & libc::O_DSYNC == 0 { "" } else { " durably" };
        self.note(format!("write {offset}+{}{how}", data.len()));
        let taken = &data[..data.len().min(self.0.behaviour.longest_write)];
        let start = to_usize(offset);
        self.0.content.lock().unwrap()[start..start + taken.len()].copy_from_slice(taken);
        reply.written(u32::try_from(taken.len()).unwrap());
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
        self.note("sync".to_owned());
        if self.0.next_sync_fails.swap(false, Ordering::SeqCst) {
            reply.error(Errno::EIO);
        } else {
            reply.ok();
        }
    }
}
