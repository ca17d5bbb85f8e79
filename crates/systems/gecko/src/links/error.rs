//! Why a link was not added, or not removed.

use manylogs_block::{IoError, Sectors};
use thiserror::Error;

use crate::join::ReplaceFault;
use crate::keeper::NotChanged;
use crate::roster::Impossible;

/// Why a link was not added, or not removed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The chain has no such link.
    #[error("the chain has no link {}: manylogs member list names them", link + 1)]
    NoSuchLink {
        /// The link, counted from 0.
        link: usize,
    },
    /// The chain has as few links as a chain may have.
    #[error("a chain has at least two links, or pairs: add another one first (member add)")]
    Last,
    /// The other links could not hold the export.
    #[error(
        "the other links bear an export of {} MiB, and the chain has {}: add a link first \
         (member add)", limit.bytes() >> 20, export.bytes() >> 20
    )]
    Room {
        /// What the others bear.
        limit: Sectors,
        /// The size of the exported device.
        export: Sectors,
    },
    /// All places are used.
    #[error("the chain has seven links, and takes no more")]
    Full,
    /// A link is one drive, or two.
    #[error("a link of this chain has {wanted} drives, not {given}")]
    Drives {
        /// Drives of each link.
        wanted: usize,
        /// Drives that were named.
        given: usize,
    },
    /// A drive is too small.
    #[error("a new drive has {} sectors, the chain uses {} of each", have.0, need.0)]
    TooSmall {
        /// Size of the drive.
        have: Sectors,
        /// Least size that would do.
        need: Sectors,
    },
    /// A drive writes larger sectors than the chain's records fill.
    #[error("a new drive writes sectors of 4096 bytes at a time, the chain's records fill 512")]
    LargeSectors,
    /// Zoned drives cannot be added.
    #[error("a drive of the chain, or a new one, is zoned: such links cannot be added yet")]
    Zoned,
    /// Another link is added or leaves, or a drive of the link is copied to.
    #[error(
        "a link is being added or leaves, or a drive joins: wait until that has ended (member list)"
    )]
    Busy,
    /// The drive of a link is gone.
    #[error(
        "the drive of link {} is gone, and what it holds cannot be moved: attach it and open the \
         chain again, or let the link leave with what only it holds (member remove --accept-loss)",
        link + 1
    )]
    Lost {
        /// The link, counted from 0.
        link: usize,
    },
    /// A segment of a link that leaves cannot be read.
    #[error(
        "link {} cannot be emptied, because a part of it cannot be read ({error}): try again \
         (member remove), or accept that what cannot be read there is lost (--accept-loss)",
        link + 1
    )]
    Unreadable {
        /// The link, counted from 0.
        link: usize,
        /// The error of its drive.
        error: IoError,
    },
    /// The chain was closed. A link that leaves goes on with that at the next opening.
    #[error("the chain was closed: a link that leaves goes on with that at the next opening")]
    Closed,
    /// The chain takes no writes.
    #[error("the chain takes no writes any more: {0}")]
    ReadOnly(&'static str),
    /// A drive failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl LinkError {
    /// Who can help.
    #[must_use]
    pub const fn fault(&self) -> ReplaceFault {
        match self {
            Self::Busy => ReplaceFault::Busy,
            Self::Closed
            | Self::ReadOnly(_)
            | Self::Io(_)
            | Self::Lost { .. }
            | Self::Unreadable { .. } => ReplaceFault::Failure,
            _ => ReplaceFault::Order,
        }
    }
}

impl From<NotChanged> for LinkError {
    fn from(why: NotChanged) -> Self {
        match why {
            NotChanged::Impossible(Impossible::Busy) => Self::Busy,
            NotChanged::Impossible(_) => Self::Last,
            NotChanged::Io(error) => Self::Io(error),
        }
    }
}
