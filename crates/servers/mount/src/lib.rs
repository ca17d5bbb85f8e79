//! Serves MLFS (`manylogs_mlfs`) to the kernel through FUSE.
//!
//! One thread owns the file system and its device and runs all its tasks. It also reads the
//! kernel's requests, which become jobs, and sends the answers, because handing a request to
//! another thread takes longer than most requests. An inode is in use for as long as the kernel
//! knows it, whether or not it has a name.

mod agreed;
mod answers;
mod asker;
mod asking;
mod caches;
mod changed_name;
mod convert;
mod engine;
mod front;
pub mod fstab;
mod hidden;
mod jobs;
mod kept;
mod listings;
mod memory;
mod options;
mod served;
mod tasks;
mod teller;

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use manylogs_ext4::AccessTimes;
use manylogs_fuse::{InitFlags, MountOptions as Mounting, Source, Superblock, ring_queues};
use manylogs_mlfs::MountError;
use manylogs_storage::{OpenError, OpenMode};
use thiserror::Error;

use agreed::wanted;
use engine::{Engine, Queue, order};
use front::Front;
use hidden::Hidden;
use jobs::Jobs;
use listings::Listings;
use manylogs_operate::control::ControlSocket;
use manylogs_operate::log::{Level, line};
use served::Served;
use teller::Teller;

pub use options::{Between, Ignored, MountOptions, OnError, OptionError};

/// How long we wait for a disk in use by an unknown user. A file system that is being unmounted is
/// no longer in the mount table, and keeps the disk until its last write is done. The kernel's own
/// file systems wait for that as well.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// The kernel's switch of FUSE over io_uring (Linux 6.14 and later).
const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Why a file system is not served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountServerError {
    /// The kernel has no FUSE.
    #[error("there is no /dev/fuse: load the module (modprobe fuse)")]
    NoFuse,
    /// The device or image cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file system on it cannot be mounted.
    #[error(transparent)]
    FileSystem(#[from] MountError),
    /// The kernel does not mount it.
    #[error("cannot mount on {}: {source}", path.display())]
    Mount {
        /// The directory to mount on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// What was to be put over the device does not fit it.
    #[error("{0}")]
    Between(String),
    /// The system has no threads or descriptors left.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The thread of the file system panicked: the next mount recovers.
    #[error("the file system's thread ended early: the next mount replays the journal")]
    Lost,
}

/// Mounts the file system on the disk or in the image `source` on the directory `target`, and
/// serves it until it is unmounted. `mounted` is called once it is mounted.
///
/// A disk is mounted as one (`fuseblk`), if the caller is root: the kernel claims it, `syncfs`
/// makes everything durable, and `umount` returns when the file system has ended. None of this
/// holds for an image.
///
/// # Errors
/// See [`MountServerError`]. After an error other than [`MountServerError::Mount`] nothing is
/// mounted, and the next mount replays the journal if it must.
pub fn serve(
    source: &Path,
    target: &Path,
    options: MountOptions,
    mounted: impl FnOnce(),
) -> Result<(), MountServerError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountServerError::NoFuse);
    }
    let failed = |source| MountServerError::Mount { path: target.to_owned(), source };
    let root = rustix::process::geteuid().is_root();
    let claimed = root && is_disk(source);
    // Checked first: the kernel's error says less than ours, and comes after changes were made.
    if options.read_only {
        manylogs_storage::check_readable(source)?;
    } else {
        let patience = if claimed { UNMOUNT_PATIENCE } else { Duration::ZERO };
        manylogs_storage::check_unused(source, patience)?;
    }
    // The mount table needs an absolute path: its readers have other working directories.
    let source = &std::path::absolute(source)?;
    let mounting = Mounting {
        source: match claimed {
            true => Source::Disk(source.to_owned()),
            false => Source::Named(source.display().to_string()),
        },
        subtype: Some("manylogs"),
        allow_other: true,
        default_permissions: true,
        flags: options.for_kernel(root),
    };
    let superblock = Superblock::create(target, &mounting).map_err(|error| match error.kind() {
        // Our check names the user that has claimed the disk.
        io::ErrorKind::ResourceBusy if claimed => {
            let busy = manylogs_storage::check_unused(source, Duration::ZERO);
            busy.err().map_or_else(|| failed(error), MountServerError::Open)
        }
        _ => failed(error),
    })?;
    let open = match (options.read_only, claimed) {
        (true, _) => OpenMode::ReadOnly,
        (false, true) => OpenMode::Claimed,
        (false, false) => OpenMode::Exclusive,
    };
    let files = options.access_times;
    let directories = if options.no_directory_times { AccessTimes::Off } else { files };
    let on_error = options.on_error;
    let (memory, caches, by_ring) = (options.account(), options.caches(), options.by_ring());
    let (teller, to_tell) = Teller::new();
    let engine = Engine::start(source, target, (options, memory.clone()), open)?;
    // A read-only mount may share the source with others: only a sole owner gets a control socket.
    let control = (open != OpenMode::ReadOnly).then(|| listen(source, engine.queue()));
    let listings = Listings::new(&memory);
    let hidden = Hidden(engine.is_adopted());
    let front = move |served: &Served| {
        let jobs = Jobs::new(served, on_error, caches);
        Front::new(jobs, hidden, (files, directories), (listings, teller))
    };
    let by_ring = by_ring && engine.has_ring() && ring_queues().is_some();
    let mut guard = None;
    let served = superblock.attach(&wanted(caches, by_ring)).and_then(|session| {
        mounted();
        guard = Some(session.guard());
        if by_ring && !session.agreed().flags.contains(InitFlags::OVER_IO_URING) {
            tell_switch(source);
        }
        engine.serve(session, front, to_tell)
    });
    let closed = engine.stop();
    // The guard goes after the engine's thread: an unmount may wait until that has closed its ring.
    drop((guard, control));
    // Unmounting a disk waits for this answer.
    drop(served.map_err(failed)?);
    closed
}

/// Takes orders for the file system on `source`. It is served even if the socket cannot be made.
fn listen(source: &Path, queue: &Queue) -> Option<ControlSocket> {
    let queue = queue.clone();
    match ControlSocket::listen(source, Arc::new(move |asked| order(&queue, asked))) {
        Ok(socket) => Some(socket),
        Err(error) => {
            let message = format!("no status, and no orders: {error}");
            line(Level::Warning, Some(source), &message, &[]);
            None
        }
    }
}

/// Says how requests could come through an io_uring, if that is switched off on this machine.
fn tell_switch(source: &Path) {
    if std::fs::read(RING_SWITCH).is_ok_and(|says| says.starts_with(b"N")) {
        let message = format!(
            "requests come through /dev/fuse, because io_uring is switched off: \
             `echo Y > {RING_SWITCH}` before the mount switches it on"
        );
        line(Level::Info, Some(source), &message, &[]);
    }
}

/// Whether this is a block device, which the kernel can claim for a mount.
fn is_disk(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}
