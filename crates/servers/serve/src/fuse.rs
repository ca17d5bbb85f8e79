//! The export as one file, through FUSE. A loop device can be attached to it.
//!
//! The mount point itself is the file, so that nothing else is visible. `docs/operations.md` says
//! which calls arrive for the requests of the block layer.

mod calls;
mod seek;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use manylogs_block::{Capabilities, IoError, Payload, Request, SECTOR_BYTES};
use manylogs_fuse::request::{Allocate, Open, Read, Seek as SeekTo, SetAttributes, Sync, Write};
use manylogs_fuse::{
    Attributes, BackgroundSession, Context, Device, Entry, Errno, FileHandle, Filesystem, Found,
    InitFlags, Known, MountFlags, MountOptions, NodeId, NodeKind, Opened, OpenedFlags, Reply,
    Source, Superblock, Time, Usage, Wanted, Written,
};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::Shelf;
use thiserror::Error;

use crate::loop_device::{LoopDevice, Orphan};
use crate::port::Port;
use crate::translate::{Call, Operation};
use calls::Durable;
#[cfg(all(test, feature = "plant"))]
pub(crate) use calls::tests;
use manylogs_operate::log::{Level, line};
use manylogs_operate::runtime_dir::is_dead;
use seek::{Seek, seek};

/// How long attributes stay valid: of the file only the content ever changes.
const TTL: Duration = Duration::from_secs(3600);
/// Requests that the kernel keeps under way: enough for the queues of a drive and of the engine.
const BACKGROUND: u16 = 128;
/// The protocol options wanted of the kernel.
const WANTED: Wanted = Wanted {
    required: InitFlags::empty(),
    desired: InitFlags::ASYNC_READ.union(InitFlags::ASYNC_DIO),
    // 256 pages.
    max_write: 1 << 20,
    max_background: BACKGROUND,
    congestion_threshold: BACKGROUND,
};

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
    /// killed server left there is removed.
    ///
    /// # Errors
    /// See [`FuseError`].
    pub fn mount(port: Port, capabilities: Capabilities, path: &Path) -> Result<Self, FuseError> {
        if !Path::new("/dev/fuse").exists() {
            return Err(FuseError::NoFuse);
        }
        let failed = |source| FuseError::Mount { path: path.to_owned(), source };
        make_mount_point(path).map_err(failed)?;
        let options = MountOptions {
            source: Source::Named("manylogs".to_owned()),
            subtype: None,
            allow_other: false,
            default_permissions: false,
            flags: MountFlags::NO_SUID
                | MountFlags::NO_DEV
                | MountFlags::NO_EXEC
                | MountFlags::NO_ATIME,
        };
        let shelf = Arc::new(Shelf::default());
        let began = Time::of(SystemTime::now());
        let export = Export { port, capabilities, shelf, began };
        let session = Superblock::create(path, &options)
            .and_then(|superblock| superblock.attach(&WANTED)?.spawn(export));
        Ok(Self { path: path.to_owned(), session: Some(session.map_err(failed)?) })
    }

    /// Leaves the file mounted for its users, who see errors once the process has ended.
    pub fn abandon(mut self) {
        if let Some(session) = self.session.take() {
            std::mem::forget(session);
        }
        // Without this the end of the process would wait for users of the mount.
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
            // If it is in use it ends with its last user.
            let _ = session.unmount_and_join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates an empty file to mount on.
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
    /// Memory for written data, aligned for the device below.
    shelf: Arc<Shelf>,
    began: Time,
}

impl Export {
    fn known(&self) -> Known {
        let bytes = self.capabilities.capacity.bytes();
        let attributes = Attributes {
            node: NodeId::ROOT,
            number: NodeId::ROOT.0,
            size: bytes,
            sectors: bytes / SECTOR_BYTES,
            accessed: self.began,
            modified: self.began,
            changed: self.began,
            kind: NodeKind::File,
            permissions: 0o600,
            links: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            device: Device::default(),
            // A loop device takes this as the granularity of its discards.
            block_bytes: 4096,
        };
        Known { attributes, valid: TTL }
    }

    /// Carries out a call and answers it; `None` succeeds without work.
    fn answer(&self, asked: Result<Option<Request>, Errno>, reply: Reply<()>) {
        match asked {
            Ok(Some(request)) => self.port.submit(request, move |result| match result {
                Ok(_) => reply.send(&()),
                Err(error) => reply.error(errno(&error)),
            }),
            Ok(None) => reply.send(&()),
            Err(error) => reply.error(error),
        }
    }
}

/// Handles that record whether a file was opened for durable writes, because the kernel does not
/// send the open flags with `fallocate`.
const PLAIN: FileHandle = FileHandle(0);
const DURABLE: FileHandle = FileHandle(1);

fn durable(handle: FileHandle) -> Durable {
    if handle == DURABLE { Durable::AtOnce } else { Durable::WithFsync }
}

fn errno(error: &IoError) -> Errno {
    crate::errno(error)
}

impl Filesystem for Export {
    fn lookup(&self, _: Context, _: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOENT);
    }

    fn attributes(&self, _: Context, reply: Reply<Known>) {
        reply.send(&self.known());
    }

    fn open(&self, _: Context, open: Open, reply: Reply<Opened>) {
        // The engine caches, so the kernel need not; and writes need not wait for one another.
        let flags = OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES;
        let handle = match Durable::of(open.flags) {
            Durable::AtOnce => DURABLE,
            Durable::WithFsync => PLAIN,
        };
        reply.send(&Opened { handle, flags });
    }

    fn read(&self, _: Context, read: Read, reply: Reply<[u8]>) {
        let read = Call::new(Operation::Read, read.offset, read.size.into());
        let Some(around) = read.around(self.capabilities.capacity) else {
            reply.send(&[]);
            return;
        };
        self.port.submit(Request::Read { extent: around.extent }, move |result| {
            match result.and_then(|sectors| around.cut(&sectors)) {
                Ok(bytes) => reply.send(&bytes),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(&self, _: Context, write: Write<'_>, reply: Reply<Written>) {
        let Write { offset, data, flags, .. } = write;
        let (len, durable) = (data.len(), Durable::of(flags));
        let payload = || Payload::bytes(self.shelf.copy(data));
        match calls::write(self.capabilities.capacity, offset, len, durable, payload) {
            Ok(write) => self.port.submit(write, move |result| match result {
                Ok(_) => reply.send(&Written(u32::try_from(len).unwrap_or(u32::MAX))),
                Err(error) => reply.error(errno(&error)),
            }),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: Context, _: FileHandle, reply: Reply<()>) {
        // A close makes nothing durable.
        reply.send(&());
    }

    fn sync(&self, _: Context, _: Sync, reply: Reply<()>) {
        self.answer(Ok(calls::sync()), reply);
    }

    fn allocate(&self, _: Context, allocate: Allocate, reply: Reply<()>) {
        assert!(!plant::is(Bug::FrontEndPanics), "planted");
        let Allocate { handle, offset, len, mode } = allocate;
        let (capacity, durable) = (self.capabilities.capacity, durable(handle));
        self.answer(calls::allocate(capacity, offset, len, mode, durable), reply);
    }

    fn seek(&self, _: Context, to: SeekTo, reply: Reply<Found>) {
        let capacity = self.capabilities.capacity;
        match Seek::of(to.whence) {
            None => reply.error(Errno::INVAL),
            Some(_) if to.offset >= capacity.bytes() => reply.error(Errno::NXIO),
            Some(what) => seek(&self.port, capacity, what, to.offset, reply),
        }
    }

    fn set_attributes(&self, _: Context, change: SetAttributes, reply: Reply<Known>) {
        let SetAttributes { permissions, uid, gid, size, .. } = change;
        let resized = size.is_some_and(|size| size != self.capabilities.capacity.bytes());
        if resized || permissions.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::PERM);
        } else {
            reply.send(&self.known());
        }
    }

    fn usage(&self, _: Context, reply: Reply<Usage>) {
        let blocks = self.capabilities.capacity.0 / 8;
        let (block_bytes, longest_name) = (4096, 255);
        reply.send(&Usage { block_bytes, blocks, inodes: 1, longest_name, ..Usage::default() });
    }
}
