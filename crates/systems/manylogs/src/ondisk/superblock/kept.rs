//! What a superblock says of versions that are kept in the logs.

use manylogs_block::to_usize;

use super::{
    HEAD_BYTES, KEPT_METADATA, KEPT_VERSIONS, RUN_BYTES, RUNS_BEFORE_DURABLE, Raw, Superblock,
};
use crate::error::VolumeError;

impl Superblock {
    /// Whether all runs fit if the settings of kept versions take some of their room.
    pub(crate) fn may_keep(&self) -> bool {
        let parts = self.layout.parts();
        let behind = parts.entries().saturating_sub(RUNS_BEFORE_DURABLE);
        HEAD_BYTES + behind * RUN_BYTES <= to_usize(parts.superblock.bytes())
    }

    /// The bits of kept versions.
    pub(super) const fn kept_features(&self) -> u64 {
        match (self.keeps, self.keeps_metadata) {
            (_, true) => KEPT_VERSIONS | KEPT_METADATA,
            (true, false) => KEPT_VERSIONS,
            (false, false) => 0,
        }
    }
}

/// Whether versions may be kept, and metadata.
///
/// # Errors
/// If metadata may be kept and versions may not.
pub(super) fn take(raw: &Raw) -> Result<(bool, bool), VolumeError> {
    let keeps_metadata = raw.features_incompatible.get() & KEPT_METADATA != 0;
    match (keeps_of(raw), keeps_metadata) {
        (false, true) => Err(VolumeError::Impossible("kept metadata")),
        kept => Ok(kept),
    }
}

/// Whether versions may be kept.
pub(super) fn keeps_of(raw: &Raw) -> bool {
    raw.features_incompatible.get() & KEPT_VERSIONS != 0
}
