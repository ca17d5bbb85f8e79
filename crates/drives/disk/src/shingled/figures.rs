//! Counters of the work that a shingled drive did behind the host's back.

use manylogs_block::{Nanos, Sectors};

/// Counters of a drive's translation layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShingledFigures {
    /// Sectors of the persistent cache in use now.
    pub cache_used: Sectors,
    /// Sectors of the persistent cache.
    pub cache: Sectors,
    /// Stretches in the cache's table now.
    pub cached_extents: u64,
    /// The most memory that the table took.
    pub table_bytes_max: u64,
    /// Number of bands with cached data now.
    pub dirty_bands: u64,
    /// Sectors that the host wrote and that went to the cache.
    pub cached_sectors: Sectors,
    /// Sectors that the host wrote and that bypassed the cache.
    pub streamed_sectors: Sectors,
    /// Journal entries for which the cache had no room.
    pub refused_entries: u64,
    /// Number of times that one log's content was moved to another.
    pub log_swaps: u64,
    /// For each band that was cleaned, the time that the mechanism spent on it.
    pub band_clean: Vec<Nanos>,
    /// Time the mechanism spent on cleaning bands and moving logs, including the job under way.
    pub cleaning: Nanos,
}
