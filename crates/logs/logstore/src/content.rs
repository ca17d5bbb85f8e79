//! Content of a log without its place, as a snapshot keeps it.

use manylogs_block::Extent;

use crate::{DataSequence, UnitTable};

/// A supersede entry that the log holds and recovery may still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supersede {
    /// The extent whose older versions are dead.
    pub extent: Extent,
    /// Versions before this one are dead.
    pub data_sequence: DataSequence,
    /// Whether kept versions may be among these: see [`crate::Entry::over_kept`].
    pub kept: bool,
}

/// Content of a log as a snapshot keeps it.
#[derive(Clone, Debug, Default)]
pub struct LogContent {
    /// Checksums of the payload.
    pub units: UnitTable,
    /// Supersedes that recovery may still need.
    pub supersedes: Vec<Supersede>,
    /// See [`crate::Log::bound`].
    pub bound: DataSequence,
}
