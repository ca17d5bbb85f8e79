//! Waiting requests of one class, in the order of an upward sweep over the addresses.

use std::collections::BTreeMap;

use manylogs_block::{Lba, Nanos, Time};

use crate::queue::{Departing, Waiting};

/// Deadline: a request that has waited this long goes first, wherever it is ...
const DEADLINE: Nanos = Nanos::from_millis(250);
/// ... and the sweep continues from there for this many requests, so that seeks stay worthwhile
/// even if all requests are overdue.
const BATCH: u32 = 16;

/// First sector of a request, and its place in the order of arrival.
type Key = (Lba, u64);

/// Waiting requests of one class. See the module.
#[derive(Default)]
pub(crate) struct Line {
    by_address: BTreeMap<Key, Waiting>,
    by_arrival: BTreeMap<u64, Lba>,
    /// Position from which the sweep continues.
    sweep: Key,
    /// Whether a part of the request at `sweep` has gone. Its rest goes next.
    begun: bool,
    /// Number of requests that go before deadlines are checked again.
    batch: u32,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_address.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.by_address.values()
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        let key = waiting.key();
        self.by_arrival.insert(key.1, key.0);
        self.by_address.insert(key, waiting);
    }

    pub(crate) fn oldest(&self) -> Option<&Waiting> {
        let (&sequence, &start) = self.by_arrival.first_key_value()?;
        self.by_address.get(&(start, sequence))
    }

    /// The request that goes next at `now`.
    pub(crate) fn next(&self, now: Time) -> Option<&Waiting> {
        self.by_address.get(&self.next_key(now)?)
    }

    /// Takes the next request or a piece of it.
    pub(crate) fn take_next(&mut self, now: Time, in_pieces: bool) -> Option<Departing> {
        let key = self.next_key(now)?;
        if !self.begun {
            self.batch = if self.batch > 0 { self.batch - 1 } else { self.batch_at(now) };
        }
        self.sweep = key;
        self.take(key, in_pieces)
    }

    /// Takes the rest of the request at `key`.
    pub(crate) fn take_whole(&mut self, key: Key) -> Option<Departing> {
        self.take(key, false)
    }

    fn take(&mut self, key: Key, in_pieces: bool) -> Option<Departing> {
        let departing = self.by_address.get_mut(&key)?.take(in_pieces);
        if departing.last {
            self.by_address.remove(&key);
            self.by_arrival.remove(&key.1);
        }
        if key == self.sweep {
            self.begun = !departing.last;
        }
        Some(departing)
    }

    fn next_key(&self, now: Time) -> Option<Key> {
        if !self.begun && self.batch == 0 && self.batch_at(now) > 0 {
            return self.oldest().map(Waiting::key);
        }
        let ahead = self.by_address.range(self.sweep..).next();
        ahead.or_else(|| self.by_address.first_key_value()).map(|(key, _)| *key)
    }

    /// Number of requests in a batch that begins now: zero if the oldest request is not overdue.
    fn batch_at(&self, now: Time) -> u32 {
        let overdue = self.oldest().is_some_and(|oldest| now.since(oldest.arrived) >= DEADLINE);
        if overdue { BATCH } else { 0 }
    }
}
