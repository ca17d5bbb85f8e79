//! What can go wrong with a volume as a whole.

use manylogs_block::{IoError, Sectors};
use thiserror::Error;

/// Why a volume cannot be created, opened or maintained.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeError {
    /// The device below failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The device cannot hold the volume's structures and one group.
    #[error("device of {} sectors is too small: at least {} are needed", have.0, need.0)]
    TooSmall {
        /// Size of the device.
        have: Sectors,
        /// Smallest size that would do.
        need: Sectors,
    },
    /// A parameter, or a combination, that makes no sense.
    #[error("{0}")]
    Config(String),
    /// Neither superblock is one of ours.
    #[error("no Manylogs volume: neither superblock is valid (format the device first)")]
    NotAVolume,
    /// The volume was written by a newer program.
    #[error("volume has format version {found}, this program knows {known}")]
    Version {
        /// On the disk.
        found: u32,
        /// Newest that is understood.
        known: u32,
    },
    /// Both root slots are damaged.
    #[error("both root slots are damaged: the volume's state is unknown")]
    NoRoot,
    /// The volume was opened more often than incarnations can count.
    #[error("volume was opened 2^20 times: drain it and format it anew")]
    Worn,
}
