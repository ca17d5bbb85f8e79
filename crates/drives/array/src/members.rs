//! What an array knows of its members.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Sectors};

/// What an array knows of its members, and keeps when it is stopped and started again. Clones are
/// the same knowledge.
#[derive(Clone, Debug)]
pub struct Members(Rc<Known>);

#[derive(Debug)]
struct Known {
    /// Whether each member is lost: it has missed a write, or is missing.
    lost: Vec<Cell<bool>>,
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
        let lost = lost.iter().copied().map(Cell::new).collect();
        Self(Rc::new(Known { lost, bears, behind: Cell::new(apart.then_some(Lba(0))) }))
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
        let gone = self.0.lost.iter().filter(|lost| lost.get()).count();
        self.0.bears.saturating_sub(gone)
    }

    /// Takes the member out of the array. True if the array does without it, also if it did so
    /// before; false if it bears no more.
    pub fn lose(&self, member: usize) -> bool {
        if !self.is_lost(member) && self.bears() > 0 {
            self.0.lost[member].set(true);
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

    /// Notes that a resynchronisation has come as far as `to`: to the end if `None`.
    pub(crate) fn resynced(&self, to: Option<Lba>) {
        self.0.behind.set(to);
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
