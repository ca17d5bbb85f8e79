//! Errors of a chain as a whole.

use manylogs_block::{IoError, Sectors};
use manylogs_logstore::{LogId, LogOffset};
use thiserror::Error;

use crate::cache::CacheError;

/// Why a chain cannot be made or opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainError {
    /// A drive failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The SSD of the tail cache is refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A chain cannot have this number of drives.
    #[error("a chain has 2 to 7 drives, or pairs, not {0}: the one at the tail only writes")]
    Drives(usize),
    /// Drives cannot be mirrored in pairs.
    #[error("{0} drives cannot be mirrored: give an even number, of which two each are a pair")]
    Odd(usize),
    /// Zoned drives cannot be mirrored.
    #[error("zoned drives cannot be mirrored yet: give drives that need no resets")]
    ZonedPair,
    /// A half of a mirrored link is not there.
    #[error(
        "half {} of pair {} is missing: attach it, or go on without it (--degraded); then it \
         leaves the pair, and is replaced by member replace", half + 1, link + 1
    )]
    HalfMissing {
        /// The link, counted from 0.
        link: usize,
        /// The half, 0 or 1.
        half: usize,
    },
    /// A drive left its link, and the one that has all is not there.
    #[error("drive {drive} left its pair: it missed writes, and the half that has them is missing")]
    Former {
        /// Index of the drive, in the order given.
        drive: usize,
    },
    /// Labels of the same age tell different things.
    #[error("the drives disagree about which of them are current: leave out the one that was away")]
    NoRoster,
    /// A drive is too small for the segments that it must have.
    #[error("drive {drive} has {} sectors, a chain of such segments needs {}", have.0, need.0)]
    TooSmall {
        /// Index of the drive, in the order given.
        drive: usize,
        /// Size of the drive.
        have: Sectors,
        /// Least size that would do.
        need: Sectors,
    },
    /// A segment length that makes no chain.
    #[error("a segment has {} to {} sectors, a multiple of 8, not {}", least.0, most.0, given.0)]
    SegmentLength {
        /// The value that was asked for.
        given: Sectors,
        /// The shortest.
        least: Sectors,
        /// The longest.
        most: Sectors,
    },
    /// Cleaning could not bear so large an export.
    #[error(
        "such a chain exports at most {} sectors, not {}: cleaning needs the rest", limit.0, given.0
    )]
    Export {
        /// The size that was asked for.
        given: Sectors,
        /// The largest.
        limit: Sectors,
    },
    /// Neither copy of the superblock is whole.
    #[error("drive {drive} holds no chain: neither of its superblocks is whole")]
    NotAChain {
        /// Index of the drive, in the order given.
        drive: usize,
    },
    /// The drives are of different chains.
    #[error("drive {drive} belongs to another chain than the drives before it")]
    Foreign {
        /// Index of the drive, in the order given.
        drive: usize,
    },
    /// A drive is given twice.
    #[error("drive {drive} is given twice: it is member {member} of the chain, as one before it")]
    Twice {
        /// Index of the drive, in the order given.
        drive: usize,
        /// Its number in the chain.
        member: usize,
    },
    /// Some of the drives of the chain are not there.
    #[error("the chain has {wanted} drives, and {missing:?} of them (counted from 0) are missing")]
    Missing {
        /// Number of drives of the chain.
        wanted: usize,
        /// The members that were not given.
        missing: Vec<usize>,
    },
    /// Written by another version of the program.
    #[error("the chain has format version {found}, this program knows version {known} only")]
    Version {
        /// On the drive.
        found: u32,
        /// Version that this program understands.
        known: u32,
    },
    /// All places of the root are damaged.
    #[error("every copy of the root is damaged: the state of the chain is unknown")]
    NoRoot,
    /// A drive holds an older state than the others, e.g. it is a copy that was made earlier.
    #[error(
        "a drive is older than the others, or lost an update: it holds opening {found} of the \
         chain, the others {newest} (drive {drive})"
    )]
    Stale {
        /// Index of the drive, in the order given.
        drive: usize,
        /// The last opening that the drive took part in.
        found: u32,
        /// The newest opening.
        newest: u32,
    },
    /// The root is older than records in the segments: an update of it was lost.
    #[error("the newest root is older than records in the segments: the chain's state is unknown")]
    StaleRoot,
    /// A segment has a damaged range in which there were durable records.
    #[error("segment {} is damaged at sector {} over {} sectors", segment.0, offset.0, sectors.0)]
    Damaged {
        /// The segment.
        segment: LogId,
        /// First damaged sector within it.
        offset: LogOffset,
        /// Length of the damaged range.
        sectors: Sectors,
    },
    /// No sequence number is left.
    #[error("the chain has no sequence numbers left: copy what it holds and make it anew")]
    Worn,
}

impl ChainError {
    /// The drive that the error is about: its number in the order in which drives were given.
    #[must_use]
    pub const fn drive(&self) -> Option<usize> {
        match self {
            Self::TooSmall { drive, .. }
            | Self::NotAChain { drive }
            | Self::Foreign { drive }
            | Self::Twice { drive, .. }
            | Self::Former { drive }
            | Self::Stale { drive, .. } => Some(*drive),
            _ => None,
        }
    }
}
