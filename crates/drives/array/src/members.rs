//! What an array knows of its members.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Sectors};
use manylogs_plant::{self as plant, Bug};

/// What an array knows of its members, and keeps when it is stopped and started again. Clones are
/// the same knowledge.
#[derive(Clone, Debug)]
pub struct Members(Rc<Known>);

#[derive(Debug)]
struct Known {
    /// Whether each member is lost: it has missed a write, or is missing.
    lost: Vec<Cell<bool>>,
    /// Whether each member is new: it has the content of the array in front of `behind` alone.
    new: Vec<Cell<bool>>,
    /// The most members that the array does without.
    bears: usize,
    /// Where the members may differ, or parity may not fit: at this place of each member and behind
    /// it. `None` if nowhere.
    behind: Cell<Option<Lba>>,
}

/// How fast a resynchronisation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// What is brought in step at once, on each member. Writes there wait meanwhile.
    pub window: Sectors,
    /// The pause behind each window.
    pub pause: Nanos,
}

impl Members {
    /// Members with the same content, those in `lost` without it. `apart` says whether the others
    /// may differ, because writes were in flight when the array stopped, and were not brought in
    /// step since.
    #[must_use]
    pub fn with_copies(lost: &[bool], apart: bool) -> Self {
        Self::new(lost, lost.len() - 1, apart)
    }

    /// Members of rows with `parity` parities. `apart` says whether the parity of a row may not
    /// fit, for the same reason.
    #[must_use]
    pub fn with_parity(lost: &[bool], parity: u16, apart: bool) -> Self {
        Self::new(lost, usize::from(parity), apart)
    }

    fn new(lost: &[bool], bears: usize, apart: bool) -> Self {
        let lost: Vec<_> = lost.iter().copied().map(Cell::new).collect();
        let new = vec![Cell::new(false); lost.len()];
        Self(Rc::new(Known { lost, new, bears, behind: Cell::new(apart.then_some(Lba(0))) }))
    }

    /// These members, of which those in `new` are there and hold nothing of the array yet. They get
    /// all writes, and a resynchronisation fills them. Until it has come to a place, what they hold
    /// there counts for nothing.
    #[must_use]
    pub fn with_new(self, new: &[bool]) -> Self {
        for (known, new) in self.0.new.iter().zip(new) {
            known.set(*new);
        }
        if new.contains(&true) {
            self.resynced(Some(Lba(0)));
        }
        self
    }

    /// Whether each member is new, and not filled yet.
    #[must_use]
    pub fn unfilled(&self) -> Vec<bool> {
        self.0.new.iter().map(Cell::get).collect()
    }

    /// Whether the member gets writes: it is not lost.
    pub(crate) fn takes_writes(&self, member: usize) -> bool {
        let skipped = self.0.new[member].get() && plant::is(Bug::NewMemberNotWritten);
        !self.is_lost(member) && !skipped
    }

    /// Whether the member has the array's content at a place: it is not lost, and filled there if
    /// it is new.
    #[must_use]
    pub fn holds(&self, member: usize, place: Extent) -> bool {
        let counts = !self.0.new[member].get() || plant::is(Bug::NewMemberReadUnfilled);
        !self.is_lost(member) && (counts || self.in_step(place))
    }

    /// Whether the member is lost.
    #[must_use]
    pub fn is_lost(&self, member: usize) -> bool {
        self.0.lost[member].get()
    }

    /// Whether each member is lost.
    #[must_use]
    pub fn lost(&self) -> Vec<bool> {
        self.0.lost.iter().map(Cell::get).collect()
    }

    /// Number of members that the array could still do without.
    #[must_use]
    pub fn bears(&self) -> usize {
        let gone = |(lost, new): (&Cell<bool>, &Cell<bool>)| lost.get() || new.get();
        let gone = self.0.lost.iter().zip(&self.0.new).filter(|both| gone(*both)).count();
        self.0.bears.saturating_sub(gone)
    }

    /// Takes the member out of the array. True if the array does without it, also if it did so
    /// before; false if it bears no more.
    pub fn lose(&self, member: usize) -> bool {
        // The array does without a new member already.
        if !self.is_lost(member) && (self.bears() > 0 || self.0.new[member].get()) {
            self.0.lost[member].set(true);
            self.0.new[member].set(false);
        }
        self.is_lost(member)
    }

    /// Where the members may differ, or parity may not fit: from this place of each member on.
    /// `None` if nowhere.
    #[must_use]
    pub fn behind(&self) -> Option<Lba> {
        self.0.behind.get()
    }

    /// Whether the members are in step at a place.
    pub(crate) fn in_step(&self, place: Extent) -> bool {
        self.behind().is_none_or(|from| place.end() <= from)
    }

    /// Notes that a resynchronisation has come as far as `to`: to the end if `None`. New members
    /// are filled then.
    pub(crate) fn resynced(&self, to: Option<Lba>) {
        self.0.behind.set(to);
        if to.is_none() {
            self.0.new.iter().for_each(|new| new.set(false));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lost.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_does_without_as_many_members_as_its_level_bears() {
        let mirror = Members::with_copies(&[false; 3], true);
        assert_eq!([0, 1, 2, 1].map(|member| mirror.lose(member)), [true, true, false, true]);
        let six = Members::with_parity(&[false, true, false, false], 2, false);
        assert_eq!(six.bears(), 1);
        assert_eq!([0, 2, 1].map(|member| six.lose(member)), [true, false, true]);
        assert_eq!(six.lost(), [true, true, false, false]);
    }

    #[test]
    fn a_new_member_counts_where_it_is_filled_and_is_no_help_before() {
        let members = Members::with_parity(&[false; 4], 2, false).with_new(&[true, false, false]);
        assert_eq!((members.bears(), members.behind()), (1, Some(Lba(0))));
        members.resynced(Some(Lba(16)));
        let holds = |member| [8, 9].map(|start| members.holds(member, Extent::new(start, 8)));
        assert_eq!((holds(0), holds(1)), ([true, false], [true; 2]));
        assert!(members.lose(1) && !members.lose(2), "the new one makes up for none");
        assert!(members.lose(0), "it may go again");
        members.resynced(None);
        assert_eq!(members.lost(), [true, true, false, false]);
        assert_eq!(members.unfilled(), [false; 4]);
    }

    #[test]
    fn members_are_in_step_in_front_of_the_resynchronisation() {
        let members = Members::with_copies(&[false; 2], true);
        let place = Extent::new(8, 8);
        assert!(!members.in_step(place));
        members.resynced(Some(Lba(15)));
        assert!(!members.in_step(place));
        members.resynced(Some(Lba(16)));
        assert!(members.in_step(place));
        members.resynced(None);
        assert_eq!(members.behind(), None);
    }
}
