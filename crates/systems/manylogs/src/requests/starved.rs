//! Requests that wait for room in the logs.

use std::collections::BTreeMap;

use manylogs_logstore::store::{Room, Store};

/// A request's place in the queue of those that wait, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

/// The rooms that waiting requests need. One may exceed the need of any entry under the present
/// settings, because an accepted request keeps its length.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    needs: BTreeMap<Arrival, Room>,
    next: u64,
}

impl Starved {
    /// Adds a request that begins to wait.
    pub(crate) fn add(&mut self, needed: Room) -> Arrival {
        let place = Arrival(self.next);
        self.next += 1;
        self.needs.insert(place, needed);
        place
    }

    /// Removes a request that no longer waits.
    pub(crate) fn remove(&mut self, place: Arrival) {
        self.needs.remove(&place);
    }

    /// Whether this request has waited longest.
    pub(crate) fn is_first(&self, place: Arrival) -> bool {
        self.needs.first_key_value().is_none_or(|(first, _)| *first == place)
    }

    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.needs.len()
    }

    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Whether there is room in `store` for one of the waiting requests.
    pub(crate) fn any_served_by(&self, store: &mut Store) -> bool {
        self.needs.values().any(|needed| store.fits(*needed))
    }
}
