//! Ranges that could not leave their stores, though nothing says that they are damaged: they are
//! tried after all others. Who waits for a store to become empty is told why it does not, once a
//! pass is over.

use std::collections::BTreeMap;

use manylogs_block::{Extent, IoError, Nanos, Sectors, Time};

use crate::offload::Client;
use crate::read::Again;
use crate::reclaim::PIECE;
use crate::table::Candidate;
use crate::versions::Versions;

/// Ranges that failed count as untried again after this.
const FORGIVEN_AFTER: Nanos = Nanos::from_secs(60);

/// Why a range did not leave a store.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The base volume failed.
    Base(IoError),
    /// The disk of this store failed, and did not say that what it has is damaged.
    Store(usize, IoError),
}

/// What failed to leave its stores.
#[derive(Debug)]
pub(crate) struct Failures {
    /// What failed since `since`, each range up to a version.
    ranges: Versions,
    since: Option<Time>,
    /// What failed in the pass that is under way, in order.
    pass: Option<Vec<(Extent, Trouble)>>,
    /// Why nothing left these stores in the last whole pass that tried what they hold.
    told: BTreeMap<usize, Trouble>,
}

impl Failures {
    pub(crate) const fn new() -> Self {
        Self { ranges: Versions::new(), since: None, pass: None, told: BTreeMap::new() }
    }
}

/// The ranges of a pass.
pub(crate) struct Pass {
    /// In order of address.
    pub(crate) ranges: Vec<Candidate>,
    /// Those for which it has no room, and which did not fail lately.
    pub(crate) untried: Vec<Candidate>,
    /// What stores that leave hold of its ranges when it begins.
    held: Vec<(usize, Sectors)>,
}

/// What a pass did.
pub(crate) struct Passed {
    /// Whether stores hold less now.
    pub(crate) some: bool,
    /// Why a range did not leave its stores: the first of these.
    pub(crate) trouble: Option<Trouble>,
    /// Whether the next pass tries ranges that this one had no room for.
    pub(crate) goes_on: bool,
}

impl Client {
    /// Begins a pass of these ranges, with those that it has no room for.
    pub(crate) fn begin_pass(&self, ranges: Vec<Candidate>, mut untried: Vec<Candidate>) -> Pass {
        untried.retain(|one| !self.has_failed(one) && !self.is_noted(one));
        self.failures.borrow_mut().pass = Some(Vec::new());
        let leaves = |store: &usize| self.peers[*store].leaving.get().is_some();
        let leaving = (0..self.peers.len()).filter(leaves);
        let held = leaving.map(|store| (store, self.held_of(store, &ranges))).collect();
        Pass { ranges, untried, held }
    }

    fn held_of(&self, store: usize, ranges: &[Candidate]) -> Sectors {
        let table = self.table.borrow();
        let held = |one: &Candidate| table.held_sectors(store, one.range.extent).0;
        Sectors(ranges.iter().map(held).sum())
    }

    /// Ends a pass. With `is_whole` all of its ranges were tried.
    pub(crate) fn end_pass(&self, pass: &Pass, some: bool, is_whole: bool) -> Passed {
        let failed = self.failures.borrow_mut().pass.take().unwrap_or_default();
        for &(store, before) in &pass.held {
            let left = self.held_of(store, &pass.ranges) < before;
            let table = self.table.borrow();
            let untried = |one: &Candidate| table.is_held_by(store, one.range.extent);
            let is_its = |(extent, trouble): &&(Extent, Trouble)| {
                matches!(trouble, Trouble::Store(of, _) if *of == store)
                    || table.is_held_by(store, *extent)
            };
            let told = &mut self.failures.borrow_mut().told;
            if left {
                told.remove(&store);
            } else if is_whole
                && !pass.untried.iter().any(untried)
                && let Some((_, why)) = failed.iter().find(is_its)
            {
                told.insert(store, why.clone());
            }
        }
        let trouble = failed.into_iter().next().map(|(_, trouble)| trouble);
        Passed { some, trouble, goes_on: is_whole && !pass.untried.is_empty() }
    }

    /// Why a store that leaves did not become emptier in the last whole pass. It is told once.
    pub(crate) fn take_trouble(&self, store: usize) -> Option<Trouble> {
        self.failures.borrow_mut().told.remove(&store)
    }

    /// Adds to what the pass under way is in trouble with.
    pub(crate) fn note_trouble(&self, extent: Extent, trouble: Trouble) {
        if let Some(pass) = &mut self.failures.borrow_mut().pass {
            pass.push((extent, trouble));
        }
    }

    /// Notes that what stores hold of `extent` did not leave them.
    pub(crate) fn note_failed(&self, extent: Extent, trouble: Option<Trouble>) {
        let parts = self.table.borrow().lookup(extent);
        let failures = &mut *self.failures.borrow_mut();
        failures.since.get_or_insert_with(|| self.runtime.now());
        for (part, known) in parts {
            let version = known.map_or_else(|| self.last_version(), |(version, _)| version);
            failures.ranges.insert(part, version);
        }
        if let (Some(pass), Some(trouble)) = (&mut failures.pass, trouble) {
            pass.push((extent, trouble));
        }
    }

    /// Notes why a range could not be read.
    pub(crate) fn note_unread(&self, extent: Extent, again: Again) {
        self.note_failed(
            extent,
            match again {
                Again::Home(error) => Some(Trouble::Base(error)),
                Again::Store(_, store, error) => Some(Trouble::Store(store, error)),
                Again::Gone | Again::Changed | Again::Damaged(_) => None,
            },
        );
    }

    /// Notes that a range has left its stores.
    pub(crate) fn note_gone_home(&self, extent: Extent) {
        self.failures.borrow_mut().ranges.remove(extent, self.last_version());
    }

    /// Whether a part of the piece of a range that goes home first failed to do so.
    pub(crate) fn has_failed(&self, one: &Candidate) -> bool {
        let extent = Extent { len: one.range.extent.len.min(PIECE), ..one.range.extent };
        let failures = self.failures.borrow();
        failures.ranges.lookup(extent).any(|(_, version)| version >= one.range.version)
    }

    /// What failed long ago counts as untried.
    pub(crate) fn forgive(&self) {
        let (failures, now) = (&mut *self.failures.borrow_mut(), self.runtime.now());
        if failures.since.is_some_and(|since| now.since(since) >= FORGIVEN_AFTER) {
            (failures.ranges, failures.since) = (Versions::new(), None);
        }
    }
}
