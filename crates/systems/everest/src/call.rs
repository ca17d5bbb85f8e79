//! What a client asks a store for, and what a store answers.

use manylogs_block::{Extent, Payload};
use manylogs_logstore::VolumeId;

use crate::versions::{Range, Version};

/// Name of a base volume: random, given when its header is written.
pub type BaseId = VolumeId;

/// Name of a store: random, given when it is made.
pub type StoreId = VolumeId;

/// One opening of a base volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opening {
    /// Number of the opening: the first is 1.
    pub incarnation: u32,
    /// Random: tells it from an opening with the same number of a copy of the base volume.
    pub token: u64,
}

/// A connection of an opening to a store. A store serves the newest only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// The opening.
    pub opening: Opening,
    /// Number of the session with this store within the opening.
    pub number: u32,
}

/// A call of a client to a store.
#[derive(Clone, Debug)]
pub struct Call {
    /// The base volume whose data it is about.
    pub base: BaseId,
    /// The session that it belongs to.
    pub session: Session,
    /// Number of the call in the session: a store does each call once, however often it arrives.
    pub number: u64,
    /// What is asked for.
    pub ask: Ask,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// To begin the session. The answer says what the store holds. After it, the store does no call
    /// of an earlier session.
    Claim {
        /// The last openings of the base volume, this one too.
        lineage: Vec<Opening>,
    },
    /// To store a version; `None` is zeroes. Durable when answered.
    Write {
        /// Extent of the base volume.
        extent: Extent,
        /// Its version.
        version: Version,
        /// Its content.
        content: Option<Payload>,
    },
    /// To forget the versions up to this one. Once it is answered, no crash brings them back.
    Delete {
        /// Extent of the base volume.
        extent: Extent,
        /// The newest version to forget.
        version: Version,
    },
    /// To read what the store holds of an extent.
    Read {
        /// Extent of the base volume.
        extent: Extent,
    },
}

/// A part of an extent, and what a store has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part.
    pub extent: Extent,
    /// Version and content; `None` if the store has none.
    pub stored: Option<(Version, Payload)>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// All that a store holds of the base volume: the answer to a claim.
    Held(Vec<Range>),
    /// It was done.
    Done,
    /// The parts of an extent, in order.
    Found(Vec<Part>),
}
