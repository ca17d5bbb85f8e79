//! Writes that went home past the logs, and the order in which they and their supersede entries
//! become durable.

use manylogs_block::Extent;

use super::{SlotId, Store};

/// Writes to homes that are not durable yet.
#[derive(Debug, Default)]
pub struct HomeWrites {
    /// Whether home writes were acknowledged that a power cut may still undo.
    pub is_dirty: bool,
    /// Supersede slots that wait for the flush that makes their home writes durable.
    pub deferred: Vec<SlotId>,
    /// Supersede slots that are not durable yet, deferred or not, and their extents.
    pub unsettled: Vec<(SlotId, Extent)>,
}

impl Store {
    /// Whether versions of `extent` were taken out of the map by a large write whose supersede
    /// entry a crash would still lose.
    pub fn has_unsettled_supersede(&self, extent: Extent) -> bool {
        self.home.unsettled.iter().any(|(_, other)| other.overlaps(extent))
    }
}
