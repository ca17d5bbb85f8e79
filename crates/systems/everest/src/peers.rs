//! The stores of a client: more may come while it is open, and each keeps its number.

use std::cell::{Cell, OnceCell};
use std::ops::Index;

use crate::header::STORES_MAX;
use crate::peer::Peer;

/// Up to [`STORES_MAX`] stores, numbered in the order in which they came.
#[derive(Default)]
pub(crate) struct Peers {
    all: [OnceCell<Peer>; STORES_MAX],
    count: Cell<usize>,
}

impl Peers {
    /// The first [`STORES_MAX`] of `peers`.
    pub(crate) fn new(peers: Vec<Peer>) -> Self {
        let all = Self::default();
        for peer in peers.into_iter().take(STORES_MAX) {
            all.push(peer);
        }
        all
    }

    /// Adds a store. Returns its number, or nothing if there are too many.
    pub(crate) fn push(&self, peer: Peer) -> Option<usize> {
        let number = self.count.get();
        self.all.get(number)?.set(peer).ok()?;
        self.count.set(number + 1);
        Some(number)
    }

    pub(crate) const fn len(&self) -> usize {
        self.count.get()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.all.iter().filter_map(OnceCell::get)
    }
}

impl Index<usize> for Peers {
    type Output = Peer;

    fn index(&self, number: usize) -> &Peer {
        let found = self.all[number].get();
        found.unwrap_or_else(|| unreachable!("store {number} has come"))
    }
}
