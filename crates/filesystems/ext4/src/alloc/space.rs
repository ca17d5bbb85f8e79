//! Allocation state besides the bitmaps: totals, reservations, claims, and blocks that are held
//! back.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use manylogs_block::Signal;
use manylogs_plant::{Bug, is};
use rangemap::RangeSet;

use crate::error::{Error, Result};
use crate::units::Run;

/// Most blocks (16 MiB) that data cannot reserve: they are for the trees that will map it. A small
/// file system sets a fiftieth of its blocks aside.
const POOL_MOST: u64 = 4096;

/// The allocation state: see the module. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    state: Rc<State>,
    /// Notified when blocks that were held back may be picked.
    pub(crate) changed: Signal,
}

#[derive(Debug)]
struct State {
    free_blocks: Cell<u64>,
    free_inodes: Cell<u64>,
    /// Blocks promised to dirty data, including those that are claimed for it.
    reserved: Cell<u64>,
    pool: u64,
    claims: RefCell<RangeSet<u64>>,
    /// Claimed blocks that no promise covers.
    claimed: Cell<u64>,
    held_back: RefCell<RangeSet<u64>>,
}

/// The purpose of a claim of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimedFor {
    /// Data that has a promise of blocks, which lasts until they are mapped.
    Promised,
    /// Anything else.
    Others,
}

/// Claimed blocks: nobody else picks them until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    run: Run,
    /// Claimed blocks that no promise covers.
    counted: u64,
    state: Rc<State>,
}

impl Claim {
    pub(crate) fn run(&self) -> Run {
        self.run
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.state.claims.borrow_mut().remove(self.run.range());
        self.state.claimed.set(self.state.claimed.get() - self.counted);
    }
}

impl Space {
    pub(crate) fn new(blocks: u64, free_blocks: u64, free_inodes: u64) -> Self {
        let state = State {
            free_blocks: Cell::new(free_blocks),
            free_inodes: Cell::new(free_inodes),
            reserved: Cell::default(),
            pool: (blocks / 50).min(POOL_MOST),
            claims: RefCell::default(),
            claimed: Cell::default(),
            held_back: RefCell::default(),
        };
        Self { state: Rc::new(state), changed: Signal::default() }
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.state.free_blocks.get()
    }

    pub(crate) fn free_inodes(&self) -> u64 {
        self.state.free_inodes.get()
    }

    /// Free blocks that are promised to dirty data.
    pub(crate) fn reserved(&self) -> u64 {
        self.state.reserved.get()
    }

    /// Free blocks that are not promised to anybody.
    pub(crate) fn unpromised(&self) -> u64 {
        let state = &self.state;
        let promised = state.claimed.get() + state.reserved.get() + state.pool;
        state.free_blocks.get().saturating_sub(promised)
    }

    /// Promises blocks to dirty data, but leaves `kept` blocks for others.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if they are not there, promised to others, or kept.
    pub(crate) fn reserve(&self, blocks: u64, kept: u64) -> Result<()> {
        self.check_room(blocks, kept)?;
        self.state.reserved.set(self.state.reserved.get() + blocks);
        Ok(())
    }

    /// Checks that so many blocks are free and unpromised, besides `kept` blocks for others.
    ///
    /// # Errors
    /// As [`Space::reserve`].
    pub(crate) fn check_room(&self, blocks: u64, kept: u64) -> Result<()> {
        let kept = if is(Bug::Ext4ReservedForAll) { 0 } else { kept };
        let has = self.unpromised().checked_sub(kept).is_some_and(|most| blocks <= most);
        if has || blocks == 0 { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Takes back a promise of blocks: they are in use now, or not needed any more.
    pub(crate) fn unreserve(&self, blocks: u64) {
        self.state.reserved.set(self.state.reserved.get() - blocks);
    }

    /// Claims these blocks, so that nobody else picks them.
    pub(crate) fn claim(&self, run: Run, what_for: ClaimedFor) -> Claim {
        let counted = match what_for {
            ClaimedFor::Promised => 0,
            ClaimedFor::Others => u64::from(run.blocks),
        };
        self.state.claims.borrow_mut().insert(run.range());
        self.state.claimed.set(self.state.claimed.get() + counted);
        Claim { run, counted, state: Rc::clone(&self.state) }
    }

    /// Holds these blocks back: nobody picks them before [`Space::give_back`].
    pub(crate) fn hold_back(&self, run: Run) {
        self.state.held_back.borrow_mut().insert(run.range());
    }

    /// See [`Space::hold_back`].
    pub(crate) fn give_back(&self, run: Run) {
        self.state.held_back.borrow_mut().remove(run.range());
    }

    /// Whether any block is held back.
    pub(crate) fn holds_back(&self) -> bool {
        !self.state.held_back.borrow().is_empty()
    }

    /// The first part of `run` that is neither claimed nor held back.
    pub(crate) fn first_allowed(&self, run: Range<u64>) -> Option<Range<u64>> {
        let (claims, held_back) = (self.state.claims.borrow(), self.state.held_back.borrow());
        let mut start = run.start;
        while start < run.end {
            let taken = claims.get(&start).or_else(|| held_back.get(&start));
            let Some(taken) = taken else { break };
            start = taken.end;
        }
        let rest = start..run.end;
        if rest.is_empty() {
            return None;
        }
        let next = |set: &RangeSet<u64>| set.overlapping(&rest).next().map(|taken| taken.start);
        let end = [next(&claims), next(&held_back)].into_iter().flatten().fold(rest.end, u64::min);
        Some(start..end)
    }

    /// Adds an update's changes of the free counts.
    pub(crate) fn settle(&self, blocks: i64, inodes: i64) {
        let (state, add) = (&self.state, u64::saturating_add_signed);
        state.free_blocks.set(add(state.free_blocks.get(), blocks));
        state.free_inodes.set(add(state.free_inodes.get(), inodes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BlockNo;

    fn run(start: u64, blocks: u32) -> Run {
        Run { start: BlockNo(start), blocks }
    }

    #[test]
    fn claimed_and_held_back_blocks_are_passed() {
        let space = Space::new(1000, 500, 9);
        let claim = space.claim(run(10, 5), ClaimedFor::Others);
        space.hold_back(run(15, 2));
        space.hold_back(run(20, 1));
        assert_eq!(space.first_allowed(8..30), Some(8..10));
        assert_eq!(space.first_allowed(10..30), Some(17..20));
        assert_eq!(space.first_allowed(10..17), None);
        drop(claim);
        space.give_back(run(15, 2));
        assert_eq!(space.first_allowed(10..30), Some(10..20));
    }

    #[test]
    fn promises_are_kept() {
        let space = Space::new(1000, 500, 9);
        assert_eq!(space.unpromised(), 480);
        space.reserve(400, 0).unwrap();
        let claim = space.claim(run(10, 60), ClaimedFor::Others);
        assert_eq!(space.reserve(21, 0), Err(Error::NoSpace));
        space.reserve(20, 0).unwrap();
        // Blocks claimed under a promise count once.
        let promised = space.claim(run(100, 300), ClaimedFor::Promised);
        assert_eq!(space.unpromised(), 0);
        drop(promised);
        assert_eq!(space.reserve(1, 0), Err(Error::NoSpace));
        space.unreserve(100);
        drop(claim);
        assert_eq!(space.unpromised(), 160);
        // Blocks kept for others are not promised; a caller with a smaller `kept` gets them.
        assert_eq!(space.reserve(1, 160), Err(Error::NoSpace));
        assert_eq!(space.reserve(1, 500), Err(Error::NoSpace));
        space.reserve(0, 500).unwrap();
        space.reserve(10, 150).unwrap();
        space.reserve(150, 0).unwrap();
    }
}
