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
    /// Which opening it is: the first is 1.
    pub incarnation: u32,
    /// Random: tells it from the opening of that number of a copy of the base volume.
    pub token: u64,
}

/// A connection of an opening to a store. A store serves the newest only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// The opening.
    pub opening: Opening,
    /// Which session of it with this store.
    pub number: u32,
}

/// A call: what is asked for, by whom.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose data it is.
    pub base: BaseId,
    /// The session that it belongs to.
    pub session: Session,
    /// Which call of the session it is: a store does each once, however often it arrives.
    pub number: u64,
    /// What is asked for.
    pub ask: Ask,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// To begin the session. When this is answered, nothing of an earlier one is done any more: the
    /// store says what it holds.
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
    /// To forget what is not newer than the version. When answered no crash brings it back.
    Delete {
        /// Extent of the base volume.
        extent: Extent,
        /// The newest version to forget.
        version: Version,
    },
    /// What the store has of an extent.
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
