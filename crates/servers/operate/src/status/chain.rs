//! The status of a chain of drives.

use serde::{Deserialize, Serialize};

/// A chain of drives that is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStatus {
    /// Id of the chain.
    pub id: String,
    /// Paths of its drives, in the order of the chain.
    pub members: Vec<String>,
    /// The drive at the tail, by its number from 0.
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
}
