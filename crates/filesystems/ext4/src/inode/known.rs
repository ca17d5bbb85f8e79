//! The users of inodes: those that the kernel knows, or for which a file without a name is being
//! made.
//!
//! There may be millions of them. So each takes a few bytes, and an inode that is only known has
//! nothing else in memory. If there are too many, the kernel is asked to forget some.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use manylogs_plant::{Bug, is};

use crate::memory::{Memory, Part, Permit};
use crate::units::Ino;

/// Bytes of memory of a known inode: its share of a tree node that may be half empty.
const KNOWN_COST: u64 = 24;
/// Most inodes that the kernel is asked to forget at a time.
const FORGET_MOST: usize = 8192;
/// Least number of changes between two requests to forget: inodes in use cannot be forgotten, and
/// looking at them is wasted.
const CHANGES_LEAST: u32 = 1024;

/// The known inodes: see the module.
#[derive(Debug)]
pub(crate) struct Known {
    users: RefCell<BTreeMap<Ino, u32>>,
    held: RefCell<Permit>,
    /// Number above which some should be forgotten: half of the memory share.
    most: usize,
    /// The last inode that the kernel was asked to forget.
    last_asked: Cell<Ino>,
    /// Inodes added or removed since that request.
    changes: Cell<u32>,
}

impl Known {
    pub(crate) fn new(memory: &Memory) -> Self {
        let held = RefCell::new(memory.hold(Part::Inodes, 0));
        let most = memory.most(Part::Inodes) / 2 / KNOWN_COST;
        let (users, last_asked) = (RefCell::default(), Cell::new(Ino(0)));
        let (most, changes) = (manylogs_block::to_usize(most), Cell::new(CHANGES_LEAST));
        Self { users, held, most, last_asked, changes }
    }

    fn count(&self) {
        let known = self.users.borrow().len() as u64;
        self.held.borrow_mut().set(known * KNOWN_COST);
        self.changes.set(self.changes.get().saturating_add(1));
    }

    /// Adds a user of the inode.
    pub(crate) fn add(&self, ino: Ino) {
        *self.users.borrow_mut().entry(ino).or_insert(0) += 1;
        self.count();
    }

    /// Removes users of the inode. Returns whether it has any left.
    pub(crate) fn remove(&self, ino: Ino, users: u32) -> bool {
        let mut known = self.users.borrow_mut();
        let left = known.get(&ino).map_or(0, |have| have.saturating_sub(users));
        if left > 0 {
            known.insert(ino, left);
            return true;
        }
        known.remove(&ino);
        drop(known);
        self.count();
        false
    }

    /// Whether the inode has users.
    pub(crate) fn is_used(&self, ino: Ino) -> bool {
        self.users.borrow().contains_key(&ino)
    }

    /// Some idle inodes to forget, if too many are known; each call names the next ones.
    pub(super) fn too_many(&self, is_idle: impl Fn(Ino) -> bool) -> Vec<Ino> {
        let users = self.users.borrow();
        let few = users.len() <= self.most || self.changes.get() < CHANGES_LEAST;
        if few || is(Bug::MemoryKernelRemembers) {
            return Vec::new();
        }
        self.changes.set(0);
        let last = self.last_asked.get();
        let behind = users.range((Excluded(last), Unbounded));
        let all = behind.chain(users.range(..=last)).map(|(ino, _)| *ino);
        let found: Vec<Ino> = all.filter(|ino| is_idle(*ino)).take(FORGET_MOST).collect();
        self.last_asked.set(found.last().copied().unwrap_or(last));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub(super) fn too_many_are_named_in_turn_and_cost_a_few_bytes_each() {
        let memory = Memory::new(Memory::LEAST);
        let known = Known::new(&memory);
        let most = u32::try_from(known.most).unwrap();
        (1..=most).for_each(|number| known.add(Ino(number)));
        assert!(known.too_many(|_| true).is_empty());
        assert_eq!(memory.used(Part::Inodes), u64::from(most) * KNOWN_COST);
        known.add(Ino(most + 1));
        let first = known.too_many(|ino| ino.0 > 10);
        assert_eq!((first.len(), first[0]), (FORGET_MOST, Ino(11)));
        assert!(known.too_many(|_| true).is_empty(), "it was asked a moment ago");
        known.changes.set(CHANGES_LEAST);
        assert_eq!(known.too_many(|_| true)[0].0, first[FORGET_MOST - 1].0 + 1);
        known.changes.set(CHANGES_LEAST);
        // The last inode, and then the first ones again.
        known.last_asked.set(Ino(most));
        assert_eq!(known.too_many(|_| true)[..2], [Ino(most + 1), Ino(1)]);
        (1..=most + 1).for_each(|number| assert!(!known.remove(Ino(number), 1)));
        assert_eq!(memory.used(Part::Inodes), 0);
    }

    #[test]
    fn users_are_counted() {
        let known = Known::new(&Memory::default());
        known.add(Ino(7));
        known.add(Ino(7));
        assert!(known.remove(Ino(7), 1) && known.is_used(Ino(7)));
        assert!(!known.remove(Ino(7), 5) && !known.is_used(Ino(7)) && !known.remove(Ino(7), 1));
    }

    #[cfg(feature = "plant")]
    #[test]
    fn a_kernel_that_is_not_asked_to_forget_is_noticed() {
        manylogs_plant::plant(Some(Bug::MemoryKernelRemembers));
        let known = Known::new(&Memory::new(Memory::LEAST));
        let more = u32::try_from(known.most).unwrap() + 1;
        (1..=more).for_each(|number| known.add(Ino(number)));
        let asked = known.too_many(|_| true);
        manylogs_plant::plant(None);
        assert!(asked.is_empty() && !known.too_many(|_| true).is_empty());
    }
}
