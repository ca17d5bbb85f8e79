//! Locks on ranges of a base volume, which tasks hold across awaits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{Extent, Signal};

/// The purpose of a lock on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Reads of what stores hold.
    Read,
    /// A write that goes to stores.
    Offload,
    /// A write that goes home.
    Home,
    /// A copy on its way home from a store.
    Reclaim,
}

impl Use {
    /// Whether two uses of a range exclude each other. A reclaim goes together with an off-load:
    /// the copy on its way home is no newer than the version sent to a store. A read goes with uses
    /// that do not change what it sees.
    fn excludes(self, other: Self) -> bool {
        use Use::{Offload, Read, Reclaim};
        !matches!(
            (self, other),
            (Read, Read | Reclaim) | (Reclaim, Read | Offload) | (Offload, Reclaim)
        )
    }
}

/// Ranges that are locked or waited for, in the order in which they were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Rc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Cell<u64>,
    ranges: RefCell<VecDeque<Asked>>,
    given_back: Signal,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Later ones have higher numbers.
    number: u64,
    extent: Extent,
    what: Use,
}

/// Gives a range back when dropped.
#[derive(Debug)]
pub(crate) struct Locked {
    locks: Locks,
    asked: Asked,
    is_kept: bool,
}

impl Locks {
    /// Asks for a range. The caller has it when [`Locked::wait`] has resolved. No later request
    /// that excludes this one is served before it.
    pub(crate) fn ask(&self, extent: Extent, what: Use) -> Locked {
        let number = self.0.asked.get();
        self.0.asked.set(number + 1);
        let asked = Asked { number, extent, what };
        self.0.ranges.borrow_mut().push_back(asked);
        Locked { locks: self.clone(), asked, is_kept: false }
    }

    /// Locks a range, after waiting for it.
    pub(crate) async fn take(&self, extent: Extent, what: Use) -> Locked {
        let locked = self.ask(extent, what);
        locked.wait().await;
        locked
    }

    /// Gives back the range that was asked for with this number.
    pub(crate) fn give_back(&self, number: u64) {
        let mut ranges = self.0.ranges.borrow_mut();
        // Without much at a time it is the first.
        if ranges.front().is_some_and(|first| first.number == number) {
            ranges.pop_front();
        } else if let Ok(index) = ranges.binary_search_by_key(&number, |asked| asked.number) {
            ranges.remove(index);
        }
        drop(ranges);
        self.0.given_back.notify();
    }
}

impl Locked {
    /// Whether the range is locked: no earlier one that overlaps it excludes it.
    pub(crate) fn is_held(&self) -> bool {
        let ranges = self.locks.0.ranges.borrow();
        let Asked { number, extent, what } = self.asked;
        if ranges.front().is_some_and(|first| first.number == number) {
            return true;
        }
        let mut earlier = ranges.iter().take_while(|other| other.number < number);
        !earlier.any(|other| what.excludes(other.what) && extent.overlaps(other.extent))
    }

    /// The number by which [`Locks::give_back`] gives the range back.
    pub(crate) const fn number(&self) -> u64 {
        self.asked.number
    }

    /// Leaves it to [`Locks::give_back`] to give the range back.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }

    pub(crate) async fn wait(&self) {
        while !self.is_held() {
            let given_back = self.locks.0.given_back.wait();
            given_back.await;
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if !self.is_kept {
            self.locks.give_back(self.asked.number);
        }
    }
}
