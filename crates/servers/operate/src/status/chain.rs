//! The status of a chain of drives.

use serde::{Deserialize, Serialize};

/// A chain of drives that is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStatus {
    /// Id of the chain.
    pub id: String,
    /// Paths of its drives, in the order of the chain.
    pub members: Vec<String>,
    /// The halves of mirrored pairs; empty if the chain is of single drives.
    #[serde(default)]
    pub halves: Vec<HalfStatus>,
    /// The drives or pairs, in the order of their places.
    #[serde(default)]
    pub links: Vec<LinkStatus>,
    /// The drive or pair at the tail, by its number from 0.
    pub tail: u64,
    /// How cleaning makes room.
    pub cleaning: String,
    /// Why writes are refused, if they are.
    pub read_only: Option<String>,
    /// Content that clients wrote since the server began.
    pub written_bytes: u64,
    /// Content that cleaning appended again.
    pub renewed_bytes: u64,
    /// Length of all records: content, headers and padding.
    pub appended_bytes: u64,
    /// Segments that were emptied.
    pub emptied_segments: u64,
    /// How often the tail went to another drive.
    pub hops: u64,
    /// How often clients waited for room, for cleaning, or for memory.
    pub waited_writes: u64,
    /// Memory of the map, of checksums, and of the segments' contents lists.
    pub table_bytes: u64,
    /// Memory of the tail cache: content that was appended last.
    #[serde(default)]
    pub cache_bytes: u64,
    /// The most memory that the tail cache may take; 0 if there is none.
    #[serde(default)]
    pub cache_bytes_max: u64,
    /// Reads of the tail's drive that the tail cache answered.
    #[serde(default)]
    pub tail_hits: u64,
    /// Reads of the tail's drive that the drive answered.
    #[serde(default)]
    pub tail_misses: u64,
    /// Reads of other drives that the tail cache answered.
    #[serde(default)]
    pub body_hits: u64,
    /// The SSD of the tail cache, if one was named.
    #[serde(default)]
    pub flash: Option<FlashStatus>,
}

/// A drive of a chain, or a mirrored pair of drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its place, from 0. Links that were removed leave places empty.
    pub link: u64,
    /// Paths of its current drives.
    pub paths: Vec<String>,
    /// Whether it is being emptied, and then leaves the chain.
    pub leaving: bool,
    /// If so, how many of its segments still hold something.
    pub segments_left: u64,
    /// And what clients can read there.
    pub bytes_left: u64,
    /// Whether its drive is gone: reads of what it holds fail.
    #[serde(default)]
    pub lost: bool,
    /// Why it is emptied no further, if so.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The SSD of a tail cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashStatus {
    /// Its path; empty if none was found.
    pub path: String,
    /// Why it is not used, if so.
    pub problem: Option<String>,
    /// Its size, as far as it is used.
    pub size_bytes: u64,
    /// Content there that reads may still ask for.
    pub held_bytes: u64,
    /// What was written to it since the server began.
    pub written_bytes: u64,
    /// What was ever written to it as the cache of this chain: its wear.
    pub written_ever_bytes: u64,
    /// Reads that it answered.
    pub hits: u64,
    /// Requests that failed, and reads that answered something else than was written.
    pub faults: u64,
    /// Whether it is used no more, because of its faults, or because it did not answer.
    pub given_up: bool,
    /// Whether it did not answer a request in time.
    #[serde(default)]
    pub silent: bool,
}

/// A half of a mirrored pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfStatus {
    /// The pair, from 0.
    pub pair: u64,
    /// Which half of it, 0 or 1. One that joins takes the place of the half with this number.
    pub half: u64,
    /// Its drive; `None` if the half is missing.
    pub path: Option<String>,
    /// `current` if it has everything, `joining` while it is copied to, else `missing`.
    pub state: String,
    /// The opening since which it is current.
    pub since: Option<u32>,
    /// Segments of which the content was copied, of one that joins.
    pub copied_segments: u64,
    /// Segments in all.
    pub segments: u64,
    /// Its power, if halves of the chain may sleep.
    #[serde(default)]
    pub power: Option<PowerStatus>,
}

/// The power of a half that may sleep. Times count from the beginning of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerStatus {
    /// `awake`, `spinning up`, `standby`, or `unsupported` if nothing commands its power.
    pub state: String,
    /// Seconds with requests under way.
    pub active_seconds: u64,
    /// Seconds without, the spindle turning.
    pub idle_seconds: u64,
    /// Seconds in which the spindle started.
    pub spin_up_seconds: u64,
    /// Seconds in standby.
    pub standby_seconds: u64,
    /// How often the spindle was started.
    pub starts: u64,
    /// Starts that are left of those of 24 hours.
    pub starts_left: u64,
    /// Requests that waited for a start, those of cleaning included.
    pub waited: u64,
    /// Energy by the figures of the drive's model; `None` if the catalogue does not have it.
    pub milliwatt_hours: Option<u64>,
}
