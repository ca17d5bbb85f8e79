//! MLFS: the file system of `manylogs_ext4`, served to the kernel through FUSE.
//!
//! One thread has the file system and its device and runs all its tasks. FUSE's thread translates
//! what the kernel asks for into jobs for that thread, and the answers are sent from there. An
//! inode is in use for as long as the kernel knows it, whether or not it has a name.

mod convert;
mod engine;
mod front;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{Config, MountOption, Session, SessionACL};
use manylogs_storage::OpenError;
use thiserror::Error;

use engine::Engine;
use front::Front;

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
    /// The kernel does not mount it.
    #[error("cannot mount on {}: {source}", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
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
pub fn serve(source: &Path, target: &Path, mounted: impl FnOnce()) -> Result<(), MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    let engine = Engine::start(source)?;
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.mount_options = vec![
        MountOption::FSName(source.display().to_string()),
        MountOption::Subtype("manylogs".to_owned()),
        MountOption::DefaultPermissions,
    ];
    let front = Front::new(Arc::clone(engine.queue()));
    let served = Session::new(front, target, &config).and_then(|session| {
        mounted();
        session.run()
    });
    let closed = engine.stop();
    served.map_err(|source| MountError::Mount { path: target.to_owned(), source })?;
    closed
}
