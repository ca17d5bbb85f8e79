//! Metadata that stays in the logs.

use manylogs::VolumeStats;
use serde::{Deserialize, Serialize};

/// Metadata that stays in the logs (mode `manylogs+lazy` of MLFS), in bytes. Homes are older.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMetadata {
    /// That is there now.
    pub live_bytes: u64,
    /// That went home since the server began.
    pub home_bytes: u64,
    /// That moved from log to log.
    pub moved_bytes: u64,
}

impl KeptMetadata {
    /// That of a volume.
    pub(crate) const fn of(stats: &VolumeStats) -> Self {
        Self {
            live_bytes: stats.kept_metadata_bytes,
            home_bytes: stats.kept_metadata_home_bytes,
            moved_bytes: stats.kept_metadata_moved_bytes,
        }
    }
}
