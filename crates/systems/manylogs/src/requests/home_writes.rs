//! Home writes that bypassed the logs, and the order in which they and their supersede entries
//! become durable.

use manylogs_block::Extent;
use manylogs_logstore::store::{SlotId, Store, Ticket};

/// Writes to homes that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct HomeWrites {
    /// Whether there are acknowledged home writes that a power cut may still undo.
    pub(crate) is_dirty: bool,
    /// Supersede slots that wait for the flush that makes their home writes durable.
    pub(crate) deferred: Vec<SlotId>,
    /// Supersede entries that may not be durable yet, deferred or queued, and their extents.
    unsettled: Vec<(Ticket, Extent)>,
}

impl HomeWrites {
    /// Notes that a supersede entry of `extent` was queued.
    pub(crate) fn add(&mut self, store: &Store, entry: Ticket, extent: Extent) {
        self.unsettled.retain(|(entry, _)| !store.entries().tickets.is_done(*entry));
        self.unsettled.push((entry, extent));
    }

    /// Whether a large write took versions of `extent` out of the map and its supersede entry is
    /// not durable yet.
    pub(crate) fn is_unsettled(&self, store: &Store, extent: Extent) -> bool {
        self.unsettled_in(store).any(|other| other.overlaps(extent))
    }

    /// Number of supersede entries that wait for a flush or are not durable yet.
    pub(crate) fn supersedes(&self, store: &Store) -> usize {
        self.deferred.len() + self.unsettled_in(store).count()
    }

    fn unsettled_in(&self, store: &Store) -> impl Iterator<Item = Extent> {
        let open = |entry: &Ticket| !store.entries().tickets.is_done(*entry);
        self.unsettled.iter().filter(move |(entry, _)| open(entry)).map(|(_, extent)| *extent)
    }
}
