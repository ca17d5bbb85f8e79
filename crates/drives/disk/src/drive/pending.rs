//! Events that will happen at a known time.

use manylogs_block::Time;

use crate::cache::write::Destage;
use crate::command::Completion;

#[derive(Clone, Debug)]
pub(super) enum Pending {
    Complete(Completion),
    Destaged(Destage),
}

/// The events, soonest last. There are mostly one or two, a few dozen at most: a list beats a heap.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingEvents {
    /// In reverse order of time; equal times in reverse order of arrival.
    entries: Vec<(Time, Pending)>,
}

impl PendingEvents {
    pub(super) fn push(&mut self, at: Time, pending: Pending) {
        let index = self.entries.iter().rposition(|entry| entry.0 > at).map_or(0, |i| i + 1);
        self.entries.insert(index, (at, pending));
    }

    pub(super) fn earliest(&self) -> Option<Time> {
        self.entries.last().map(|entry| entry.0)
    }

    /// Removes the earliest entry if it is not later than `at`.
    pub(super) fn take_until(&mut self, at: Time) -> Option<(Time, Pending)> {
        self.earliest().filter(|earliest| *earliest <= at)?;
        self.entries.pop()
    }
}
