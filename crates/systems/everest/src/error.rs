//! Errors of a store as a whole.

use manylogs_block::{IoError, Sectors};
use manylogs_logstore::{LogId, LogOffset};
use thiserror::Error;

/// Why a store cannot be created or opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// A device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No device was given, or more than a store can have.
    #[error("a store has 1 to 1024 devices, not {0}")]
    Devices(usize),
    /// A device is too small for three logs.
    #[error("device {device} has {} sectors, a store needs {} there", have.0, need.0)]
    TooSmall {
        /// Index of the device, in the order given.
        device: usize,
        /// Size of the device.
        have: Sectors,
        /// Least size that would do.
        need: Sectors,
    },
    /// A log length that makes no store.
    #[error("a log has {} to {} sectors, not {}", least.0, most.0, given.0)]
    LogLength {
        /// The value that was asked for.
        given: Sectors,
        /// The shortest.
        least: Sectors,
        /// The longest.
        most: Sectors,
    },
    /// Neither copy of the superblock is whole.
    #[error("device {device} holds no Everest store: neither superblock is whole")]
    NotAStore {
        /// Index of the device, in the order given.
        device: usize,
    },
    /// The devices are of different stores, or not in their order.
    #[error("device {device} is not the {device}th of this store: give its devices in order")]
    OtherDevice {
        /// Index of the device, in the order given.
        device: usize,
    },
    /// Written by another version of the program.
    #[error("the store has format version {found}, this program knows version {known} only")]
    Version {
        /// On the device.
        found: u32,
        /// Version that this program understands.
        known: u32,
    },
    /// Both root slots are damaged.
    #[error("both root slots are damaged: the store's state is unknown")]
    NoRoot,
    /// The root is older than records in the logs: an update of it was lost.
    #[error("the newest root is older than records in the logs: the store's state is unknown")]
    StaleRoot,
    /// A log has a damaged range in which there were durable records.
    #[error("log {} is damaged at sector {} over {} sectors", log.0, offset.0, sectors.0)]
    Damaged {
        /// The log.
        log: LogId,
        /// First damaged sector within the log.
        offset: LogOffset,
        /// Length of the damaged range.
        sectors: Sectors,
    },
    /// No sequence number is left.
    #[error("the store has no sequence numbers left: reclaim everything and make it anew")]
    Worn,
}
