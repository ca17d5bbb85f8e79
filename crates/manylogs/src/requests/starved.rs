//! Requests that wait for room in the logs.

use std::collections::BTreeMap;

use manylogs_logstore::store::{Room, Store};

/// What requests that wait for room need, and how many need the same. That may be more than any
/// entry needs under the present settings: a request that was accepted keeps its length.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    needs: BTreeMap<Room, usize>,
}

impl Starved {
    /// A request begins to wait.
    pub(crate) fn add(&mut self, needed: Room) {
        *self.needs.entry(needed).or_insert(0) += 1;
    }

    /// A request waits no longer.
    pub(crate) fn remove(&mut self, needed: Room) {
        if let Some(count) = self.needs.get_mut(&needed) {
            *count -= 1;
            if *count == 0 {
                self.needs.remove(&needed);
            }
        }
    }

    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.needs.values().sum()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Whether there is room in `store` for one of them.
    pub(crate) fn any_served_by(&self, store: &mut Store) -> bool {
        self.needs.keys().any(|needed| store.fits(*needed))
    }
}
