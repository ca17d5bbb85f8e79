//! Keeps changes of one logical sector apart.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::Extent;

/// On a device with logical sectors larger than 512 bytes, a write of a part of a sector reads the
/// sector, changes it and writes all of it. That would undo another change made in between. So
/// changes of the same logical sector are carried out one after the other, in the order in which
/// they were submitted.
#[derive(Default)]
pub(crate) struct Gate(RefCell<State>);

#[derive(Default)]
struct State {
    claims: Vec<(u64, Extent)>,
    waiting: VecDeque<Waiting>,
    next_id: u64,
}

struct Waiting {
    extent: Extent,
    then: Box<dyn FnOnce(Claim)>,
}

/// The right to change an extent; ends when it is dropped.
pub(crate) struct Claim {
    gate: Rc<Gate>,
    id: u64,
}

impl Gate {
    /// Calls `then` as soon as no other claim covers any of `extent`, which must be whole logical
    /// sectors: at once, or when a claim ends.
    pub(crate) fn claim(self: &Rc<Self>, extent: Extent, then: impl FnOnce(Claim) + 'static) {
        let waiting = Waiting { extent, then: Box::new(then) };
        let ahead = self.0.borrow().waiting.len();
        self.0.borrow_mut().waiting.push_back(waiting);
        self.admit(ahead);
    }

    /// Admits the claims at or behind place `from` that no longer wait for other claims.
    fn admit(self: &Rc<Self>, mut from: usize) {
        while let Some((index, waiting, id)) = self.next(from) {
            // Called without a borrow: `then` may start operations and claim other extents.
            (waiting.then)(Claim { gate: Rc::clone(self), id });
            from = index;
        }
    }

    /// The first claim at or behind place `from` that waits for no earlier claim, with its place
    /// and number.
    fn next(&self, from: usize) -> Option<(usize, Waiting, u64)> {
        let mut state = self.0.borrow_mut();
        let free = |index: usize| {
            let extent = state.waiting[index].extent;
            let before = state.waiting.iter().take(index).map(|waiting| waiting.extent);
            let mut others = state.claims.iter().map(|(_, extent)| *extent).chain(before);
            !others.any(|other| other.overlaps(extent))
        };
        let index = (from..state.waiting.len()).find(|index| free(*index))?;
        let waiting = state.waiting.remove(index)?;
        let id = state.next_id;
        state.next_id += 1;
        state.claims.push((id, waiting.extent));
        Some((index, waiting, id))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.gate.0.borrow_mut().claims.retain(|(id, _)| *id != self.id);
        self.gate.admit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Trail = Rc<RefCell<Vec<(u32, Claim)>>>;

    fn claim(gate: &Rc<Gate>, trail: &Trail, name: u32, extent: (u64, u64)) {
        let trail = Rc::clone(trail);
        let extent = Extent::new(extent.0, extent.1);
        gate.claim(extent, move |claim| trail.borrow_mut().push((name, claim)));
    }

    fn names(trail: &Trail) -> Vec<u32> {
        trail.borrow().iter().map(|(name, _)| *name).collect()
    }

    /// Ends the first claim in `trail`.
    fn end_first(trail: &Trail) {
        let first = trail.borrow_mut().remove(0);
        drop(first);
    }

    #[test]
    fn claims_of_one_sector_follow_each_other_and_others_do_not_wait() {
        let (gate, trail) = (Rc::new(Gate::default()), Trail::default());
        claim(&gate, &trail, 1, (0, 8));
        claim(&gate, &trail, 2, (0, 16));
        claim(&gate, &trail, 3, (8, 8));
        claim(&gate, &trail, 4, (16, 8));
        assert_eq!(names(&trail), [1, 4], "3 waits behind 2, which waits for 1");
        end_first(&trail);
        assert_eq!(names(&trail), [4, 2]);
        end_first(&trail);
        assert_eq!(names(&trail), [2]);
        end_first(&trail);
        assert_eq!(names(&trail), [3]);
        end_first(&trail);
        assert!(gate.0.borrow().claims.is_empty() && gate.0.borrow().waiting.is_empty());
    }

    #[test]
    fn a_claim_that_ends_may_let_several_in_and_one_of_these_may_claim_more() {
        let (gate, trail) = (Rc::new(Gate::default()), Trail::default());
        claim(&gate, &trail, 1, (0, 24));
        let (inner, outer) = (Rc::clone(&gate), Rc::clone(&trail));
        gate.claim(Extent::new(0, 8), move |claim_of_2| {
            outer.borrow_mut().push((2, claim_of_2));
            claim(&inner, &outer, 5, (32, 8));
        });
        claim(&gate, &trail, 3, (8, 8));
        claim(&gate, &trail, 4, (0, 8));
        end_first(&trail);
        assert_eq!(names(&trail), [2, 5, 3]);
        end_first(&trail);
        assert_eq!(names(&trail), [5, 3, 4]);
    }
}
