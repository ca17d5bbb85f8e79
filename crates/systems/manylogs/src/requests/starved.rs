//! Requests that wait for room in the logs.

use std::collections::BTreeMap;

use manylogs_logstore::store::{Room, Store};

/// A request's place among those that wait, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// What requests that wait for room need. That may be more than any entry needs under the present
/// settings: a request that was accepted keeps its length.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    needs: BTreeMap<Place, Room>,
    next: u64,
}

impl Starved {
    /// A request begins to wait.
    pub(crate) fn add(&mut self, needed: Room) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.needs.insert(place, needed);
        place
    }

    /// A request waits no longer.
    pub(crate) fn remove(&mut self, place: Place) {
        self.needs.remove(&place);
    }

    /// Whether nobody has waited longer.
    pub(crate) fn is_first(&self, place: Place) -> bool {
        self.needs.first_key_value().is_none_or(|(first, _)| *first == place)
    }

    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.needs.len()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Whether there is room in `store` for one of them.
    pub(crate) fn any_served_by(&self, store: &mut Store) -> bool {
        self.needs.values().any(|needed| store.fits(*needed))
    }
}
