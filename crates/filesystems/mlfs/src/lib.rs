//! MLFS: the file system of `manylogs_ext4` with one journal or another.
//!
//! An *adopted* disk has logs near every place of the head, and its journal is in them
//! (`manylogs_near`); [`adopt`] takes an ext4 over and gives it back. Any other disk is ext4 with
//! its own journal. [`Mounted`] is a mounted file system of either kind. Nothing here knows of a
//! kernel: `manylogs_mount` serves a mounted file system to one, and the lab and the crash
//! campaigns use it in virtual time.

pub mod adopt;
mod clock;
mod mode;
mod mounted;

use thiserror::Error;

use manylogs_near::NearError;

pub use clock::now;
pub use manylogs_ext4::{AccessTimes, DURABLE_XATTR};
pub use mode::JournalMode;
pub use mounted::Mounted;

/// Why a file system is not mounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// The file system is refused, damaged, or cannot be read.
    #[error(transparent)]
    FileSystem(#[from] manylogs_ext4::Error),
    /// The marks of an adopted file system do not fit together, or it cannot be read.
    #[error(transparent)]
    Marks(#[from] adopt::AdoptError),
    /// It is adopted, and the mode is one of plain ext4.
    #[error(
        "it is adopted, and the mode {0} writes past its logs: mount it in the mode manylogs, \
         manylogs+lazy or adaptive, or give it back with manylogs fs release"
    )]
    Adopted(JournalMode),
    /// It is plain ext4, and the mode needs logs.
    #[error("the mode {0} needs logs: adopt it first: manylogs fs adopt")]
    NotAdopted(JournalMode),
    /// The volume of its logs is refused, damaged, or cannot be read.
    #[error(transparent)]
    Logs(NearError),
}

impl MountError {
    /// Whether something on the disk is damaged and must be repaired before a mount.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::FileSystem(error) => error.is_damage(),
            Self::Logs(NearError::Volume(error)) => adopt::is_damage(error),
            _ => false,
        }
    }
}
