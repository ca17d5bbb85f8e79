//! The results of a checkpoint, and of arranging metadata.

use manylogs::CheckpointReport;
use serde::{Deserialize, Serialize};

use super::seconds;

/// Result of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// Bytes written home.
    pub home_bytes: u64,
    /// Number of writes home.
    pub home_writes: u64,
    /// Duration.
    pub seconds: f64,
    /// Extents that stay logged because their home cannot be written.
    pub kept_extents: u64,
    /// Extents whose logged copy is damaged.
    pub lost_extents: u64,
    /// Extents whose logged copy could not be read this time.
    #[serde(default)]
    pub unread_extents: u64,
}

/// Result of arranging metadata that stays in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrangeStatus {
    /// Directories that were walked.
    pub directories: u64,
    /// Blocks of 4096 bytes that were written to the journal anew.
    pub blocks: u64,
    /// Whether the whole tree was walked; else half of the journal is full of what was.
    pub is_whole: bool,
    /// Duration.
    pub seconds: f64,
}

impl From<CheckpointReport> for CheckpointStatus {
    fn from(report: CheckpointReport) -> Self {
        Self {
            home_bytes: report.home_write_sectors.bytes(),
            home_writes: report.home_writes,
            seconds: seconds(report.duration),
            kept_extents: report.kept_extents,
            lost_extents: report.lost_extents,
            unread_extents: report.unread_extents,
        }
    }
}
