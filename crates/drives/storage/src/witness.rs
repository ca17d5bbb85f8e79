//! A file for tests, served through FUSE past the page cache. It records the kernel's requests, and
//! so what really arrives below a device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manylogs_block::{SECTOR_BYTES, to_usize};
use manylogs_fuse::request::{Open, Read, Sync, Write};
use manylogs_fuse::{
    Attributes, BackgroundSession, Context, Device, Errno, FileHandle, Filesystem, InitFlags,
    Known, MountFlags, MountOptions, NodeId, NodeKind, Opened, OpenedFlags, Reply, Source,
    Superblock, Time, Wanted, Written,
};

mod tests;

const WANTED: Wanted = Wanted {
    required: InitFlags::empty(),
    desired: InitFlags::ASYNC_READ,
    max_write: 1 << 20,
    max_background: 16,
    congestion_threshold: 12,
};

/// How the file behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Offsets and lengths must be multiples of this number of bytes.
    pub(crate) alignment: u64,
    /// The most bytes that one write takes.
    pub(crate) longest_write: usize,
    /// Whether the page cache is used, which mapped files need.
    pub(crate) cached: bool,
}

/// A file that records the requests to it; removed when dropped.
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
    /// A file of `sectors` sectors of zeroes, or `None` if this machine does not allow it.
    pub(crate) fn new(sectors: u64, behaviour: Behaviour) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("witness");
        File::create(&path).unwrap();
        let content = Mutex::new(vec![0; to_usize(sectors * SECTOR_BYTES)]);
        let seen = Mutex::default();
        let next_sync_fails = AtomicBool::new(false);
        let shared = Arc::new(Shared { behaviour, content, seen, next_sync_fails });
        let served = Served(Arc::clone(&shared));
        let options = MountOptions {
            source: Source::Named("witness".to_owned()),
            subtype: None,
            allow_other: false,
            default_permissions: false,
            flags: MountFlags::NO_DEV | MountFlags::NO_SUID,
        };
        let session = Superblock::create(&path, &options)
            .and_then(|superblock| superblock.attach(&WANTED)?.spawn(served));
        match session {
            Ok(session) => Some(Self { shared, session: Some(session), path, _dir: dir }),
            Err(error) => {
                manylogs_testkit::skip(format_args!("no FUSE file ({error})"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the next sync fail, and no later one.
    pub(crate) fn fail_next_sync(&self) {
        self.shared.next_sync_fails.store(true, Ordering::SeqCst);
    }

    /// The writes and syncs since the last call, in order.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    /// Drops the record, and puts `byte` everywhere.
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
            // If the file is in use, it goes with its last user.
            let _ = session.unmount_and_join();
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
    fn attributes(&self, _: Context, reply: Reply<Known>) {
        let size = self.0.content.lock().unwrap().len() as u64;
        let then = Time::default();
        let attributes = Attributes {
            node: NodeId::ROOT,
            number: NodeId::ROOT.0,
            size,
            sectors: size / SECTOR_BYTES,
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
        reply.send(&Known { attributes, valid: Duration::from_secs(3600) });
    }

    fn open(&self, _: Context, _: Open, reply: Reply<Opened>) {
        let direct = OpenedFlags::DIRECT_IO;
        let flags = if self.0.behaviour.cached { OpenedFlags::empty() } else { direct };
        reply.send(&Opened { handle: FileHandle(0), flags });
    }

    fn read(&self, _: Context, read: Read, reply: Reply<[u8]>) {
        let len = to_usize(read.size.into());
        if !self.is_aligned(read.offset, len) {
            return reply.error(Errno::INVAL);
        }
        let content = self.0.content.lock().unwrap();
        let start = to_usize(read.offset).min(content.len());
        reply.send(&content[start..(start + len).min(content.len())]);
    }

    fn write(&self, _: Context, write: Write<'_>, reply: Reply<Written>) {
        let Write { offset, data, flags, .. } = write;
        if !self.is_aligned(offset, data.len()) {
            return reply.error(Errno::INVAL);
        }
        let durably = flags.0 & libc::O_DSYNC.cast_unsigned() != 0;
        let how = if durably { " durably" } else { "" };
        self.note(format!("write {offset}+{}{how}", data.len()));
        let taken = &data[..data.len().min(self.0.behaviour.longest_write)];
        let start = to_usize(offset);
        self.0.content.lock().unwrap()[start..start + taken.len()].copy_from_slice(taken);
        reply.send(&Written(u32::try_from(taken.len()).unwrap()));
    }

    fn flush(&self, _: Context, _: FileHandle, reply: Reply<()>) {
        reply.send(&());
    }

    fn sync(&self, _: Context, _: Sync, reply: Reply<()>) {
        self.note("sync".to_owned());
        if self.0.next_sync_fails.swap(false, Ordering::SeqCst) {
            reply.error(Errno::IO);
        } else {
            reply.send(&());
        }
    }
}
