//! Locks on ranges of a base volume, which tasks hold across awaits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{Extent, Signal};

/// What a range is locked for.
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
    /// A copy on its way home is no newer than what a store is sent meanwhile, so these two go
    /// together; reads go with all that does not change what they see.
    fn excludes(self, other: Self) -> bool {
        use Use::{Offload, Read, Reclaim};
        !matches!(
            (self, other),
            (Read, Read | Reclaim) | (Reclaim, Read | Offload) | (Offload, Reclaim)
        )
    }
}

/// Ranges that are locked or waited for, by the order in which they were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Rc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Cell<u64>,
    ranges: RefCell<BTreeMap<u64, (Extent, Use)>>,
    given_back: Signal,
}

/// Gives a range back when dropped.
#[derive(Debug)]
pub(crate) struct Locked {
    locks: Locks,
    number: u64,
}

impl Locks {
    /// Asks for a range. It is the caller's when [`Locked::wait`] has resolved; no later one that
    /// excludes this is served before.
    pub(crate) fn ask(&self, extent: Extent, what: Use) -> Locked {
        let number = self.0.asked.get();
        self.0.asked.set(number + 1);
        self.0.ranges.borrow_mut().insert(number, (extent, what));
        Locked { locks: self.clone(), number }
    }

    /// A range that is the caller's.
    pub(crate) async fn take(&self, extent: Extent, what: Use) -> Locked {
        let locked = self.ask(extent, what);
        locked.wait().await;
        locked
    }
}

impl Locked {
    /// Whether no earlier range excludes this.
    pub(crate) fn is_held(&self) -> bool {
        let ranges = self.locks.0.ranges.borrow();
        let Some(&(extent, what)) = ranges.get(&self.number) else { return true };
        let mut earlier = ranges.range(..self.number);
        !earlier.any(|(_, (other, of))| what.excludes(*of) && extent.overlaps(*other))
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
        self.locks.0.ranges.borrow_mut().remove(&self.number);
        self.locks.0.given_back.notify();
    }
}
