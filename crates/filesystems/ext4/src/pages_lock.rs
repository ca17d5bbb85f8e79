//! A lock on ranges of pages: overlapping ranges take turns, and others do not wait.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use manylogs_block::Signal;

/// The lock: see the module. Clones are the same lock. A task must not drop the future of a request
/// before it resolves.
#[derive(Clone, Debug, Default)]
pub(crate) struct PagesLock(Rc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Cell<u64>,
    /// Requests that have a range or wait for one, in the order in which they came.
    asking: RefCell<Vec<Asking>>,
    given_back: Signal,
}

#[derive(Debug)]
struct Asking {
    ticket: u64,
    pages: Range<u32>,
}

/// Gives the range back when dropped.
#[derive(Debug)]
pub(crate) struct PagesGuard {
    ticket: u64,
    lock: PagesLock,
}

impl Asking {
    fn overlaps(&self, other: &Self) -> bool {
        self.pages.start < other.pages.end && other.pages.start < self.pages.end
    }
}

impl PagesLock {
    /// Resolves when no earlier request has one of these pages.
    pub(crate) async fn take(&self, pages: Range<u32>) -> PagesGuard {
        let ticket = self.0.asked.get();
        self.0.asked.set(ticket + 1);
        self.0.asking.borrow_mut().push(Asking { ticket, pages });
        while self.is_taken(ticket) {
            self.0.given_back.wait().await;
        }
        PagesGuard { ticket, lock: self.clone() }
    }

    /// Resolves when no earlier request has any page.
    pub(crate) async fn take_all(&self) -> PagesGuard {
        self.take(0..u32::MAX).await
    }

    /// All pages, if no other request has or wants any.
    pub(crate) fn take_all_now(&self) -> Option<PagesGuard> {
        let (ticket, pages) = (self.0.asked.get(), 0..u32::MAX);
        let mut asking = self.0.asking.borrow_mut();
        if !asking.is_empty() {
            return None;
        }
        self.0.asked.set(ticket + 1);
        asking.push(Asking { ticket, pages });
        Some(PagesGuard { ticket, lock: self.clone() })
    }

    fn is_taken(&self, ticket: u64) -> bool {
        let asking = self.0.asking.borrow();
        let before = asking.partition_point(|other| other.ticket < ticket);
        let Some(own) = asking.get(before) else { return false };
        asking[..before].iter().any(|other| other.overlaps(own))
    }
}

impl PagesGuard {
    /// Whether a later request waits for one of these pages.
    pub(crate) fn is_wanted(&self) -> bool {
        let asking = self.lock.0.asking.borrow();
        let behind = asking.partition_point(|other| other.ticket <= self.ticket);
        let Some(own) = behind.checked_sub(1).and_then(|own| asking.get(own)) else { return false };
        asking[behind..].iter().any(|other| other.overlaps(own))
    }
}

impl Drop for PagesGuard {
    fn drop(&mut self) {
        let state = &self.lock.0;
        state.asking.borrow_mut().retain(|asking| asking.ticket != self.ticket);
        state.given_back.notify();
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Nanos;
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    #[test]
    fn ranges_that_overlap_take_turns_in_order_and_others_do_not_wait() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (node, lock) = (sim.node(), PagesLock::default());
        let trail = Rc::new(RefCell::new(Vec::new()));
        let all = 0..u32::MAX;
        for (number, pages) in [0..2, 2..4, 1..3, 7..8, all, 9..10, 9..11].into_iter().enumerate() {
            let (runtime, lock, trail) = (sim.handle(node), lock.clone(), Rc::clone(&trail));
            sim.handle(node).spawn(async move {
                let guard = lock.take(pages).await;
                runtime.sleep(Nanos(10)).await;
                trail.borrow_mut().push((number, runtime.now().0));
                drop(guard);
            });
        }
        sim.run_until(|| trail.borrow().len() == 7);
        let expected = [(0, 10), (1, 10), (3, 10), (2, 20), (4, 30), (5, 40), (6, 50)];
        assert_eq!(*trail.borrow(), expected);
    }

    #[test]
    fn a_range_is_wanted_when_somebody_waits_for_a_part_of_it() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (node, lock) = (sim.node(), PagesLock::default());
        let asking = lock.clone();
        let (first, other) =
            sim.block_on(node, async move { (lock.take(0..2).await, lock.take(2..3).await) });
        assert!(!first.is_wanted() && !other.is_wanted());
        sim.handle(node).spawn(async move { drop(asking.take(1..2).await) });
        sim.run_until(|| first.is_wanted());
        assert!(first.is_wanted() && !other.is_wanted());
    }
}
