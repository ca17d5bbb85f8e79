//! MLFS: the file system of `manylogs_ext4`, served to the kernel through FUSE.
//!
//! One thread has the file system and its device and runs all its tasks. FUSE's thread translates
//! what the kernel asks for into jobs for that thread, and the answers are sent from there. An
//! inode is in use for as long as the kernel knows it, whether or not it has a name.

mod answers;
mod callers;
mod convert;
mod engine;
mod front;
mod jobs;
mod mounted;
mod options;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{Config, MountOption, Session, SessionACL};
use manylogs_storage::OpenError;
use thiserror::Error;

use engine::Engine;
use front::Front;
use jobs::Jobs;
use manylogs_near::NearError;

pub use manylogs_ext4::{AccessTimes, Mode};
pub use options::{Between, MountOptions, NearJournal, OnError, OptionError};

/// Why a file system is not served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("there is no /dev/fuse: load the module (modprobe fuse)")]
    NoFuse,
    /// The device or image cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file system is refused, damaged, or cannot be read.
    #[error(transparent)]
    FileSystem(#[from] manylogs_ext4::Error),
    /// The volume of its logs is refused, damaged, or cannot be read.
    #[error(transparent)]
    Logs(NearError),
    /// The kernel does not mount it.
    #[error("cannot mount on {}: {source}", path.display())]
    Mount {
        /// Where.
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
/// serves it until it is unmounted. `mounted` is called when it is there.
///
/// # Errors
/// See [`MountError`]. After an error other than [`MountError::Mount`] nothing is mounted, and the
/// next mount replays the journal if it must.
pub fn serve(
    source: &Path,
    target: &Path,
    options: MountOptions,
    mounted: impl FnOnce(),
) -> Result<(), MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.mount_options = options.for_kernel(rustix::process::geteuid().is_root());
    config.mount_options.extend([
        MountOption::FSName(source.display().to_string()),
        // fuser gives a subtype to fusermount alone; the kernel takes it as well.
        MountOption::CUSTOM("subtype=manylogs".to_owned()),
        MountOption::DefaultPermissions,
    ]);
    let files = options.access_times;
    let directories = if options.no_directory_times { AccessTimes::Off } else { files };
    let on_error = options.on_error;
    let engine = Engine::start(source, options)?;
    let jobs = Jobs::new(Arc::clone(engine.queue()), on_error);
    let served = Session::new(Front::new(jobs, files, directories), target, &config);
    let served = served.and_then(|session| {
        mounted();
        session.run()
    });
    let closed = engine.stop();
    served.map_err(|source| MountError::Mount { path: target.to_owned(), source })?;
    closed
}
