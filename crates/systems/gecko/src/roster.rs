//! Who has everything: which drives of each link are current. All drives' labels hold the roster.
//!
//! A drive has everything that its link holds if and only if its id stands in the newest roster. No
//! flag on the drive itself says so, which a drive that was away would still have. A half is in one
//! of three states, and [`Roster::after`] is the only place where it changes:
//!
//! ```text
//!            Begin              Join
//!   (none) --------> joining --------> current, in the place of another half
//!      ^                |                 |
//!      +-----Leave------+------Leave------+   (unless it is the last of its link)
//! ```

/// Most links of a chain.
pub(crate) const LINKS: usize = 7;
/// Fewest links of a chain.
pub(crate) const LINKS_LEAST: usize = 2;
/// Most halves of a link.
pub(crate) const HALVES: usize = 2;

/// A drive that is current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Half {
    /// Its id; 0 if there is no such half.
    pub id: u64,
    /// The opening in which it became current.
    pub since: u32,
}

/// A drive that becomes current when everything was copied to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// Its id.
    pub id: u64,
    /// The link, counted from 0.
    pub link: u16,
    /// The half of the link whose place it takes, 0 or 1.
    pub half: u16,
    /// Segments of the link, from the first on, of which the drive durably has all, like a current
    /// half. That holds while the drive takes part in every opening.
    pub copied: u32,
}

/// Which drives are current. Of the rosters on a chain's drives the one of the newest opening
/// counts, and in it the one with the greatest version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// Counts the changes.
    pub version: u64,
    /// The current halves of each link.
    pub links: [[Half; HALVES]; LINKS],
    /// The drive that is copied to, if any.
    pub joining: Option<Joining>,
    /// The link that is emptied, and then leaves the chain, if any: counted from 0.
    pub leaving: Option<u16>,
    /// Whether an SSD became the chain's tail cache. It names the chain in a label of its own.
    pub has_cache: bool,
    /// Whether halves may sleep: then the newest root may be on the half alone that was awake.
    pub has_sleepers: bool,
}

/// A change of the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A drive begins to join. From now on it gets all writes.
    Begin(Joining),
    /// A drive that joins has the first segments now, durably; fewer if it missed an opening.
    Copied { id: u64, segments: u32 },
    /// A drive that joins has everything now, durably, and takes its place in this opening.
    Join { id: u64, opening: u32 },
    /// A drive missed a write, is missing, or does not join after all.
    Leave { id: u64 },
    /// Drives are a link in an empty place from this opening on. They hold no record, and the root
    /// knows of the place.
    Add { link: u16, ids: [u64; HALVES], opening: u32 },
    /// A link begins to leave: it is emptied.
    Evacuate { link: u16 },
    /// An SSD became the chain's tail cache.
    Cache,
    /// From now on halves may sleep, or all are awake and have the newest root.
    Sleepers(bool),
    /// A link that was emptied leaves its place. All that was live there is durable elsewhere.
    Remove { link: u16 },
}

/// Why a change is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impossible {
    /// The drive is the last of its link.
    Last,
    /// The drive does not join: it failed meanwhile.
    NotJoining,
    /// Another drive joins, or another link leaves.
    Busy,
    /// The place is not empty, or the link does not leave.
    Place,
}

impl Roster {
    /// The roster of drives with these ids.
    pub(crate) fn first(links: &[Vec<u64>]) -> Self {
        let mut roster = Self { version: 1, ..Self::default() };
        for (of, ids) in roster.links.iter_mut().zip(links) {
            for (half, id) in of.iter_mut().zip(ids) {
                *half = Half { id: *id, since: 1 };
            }
        }
        roster
    }

    /// Number of places: those of links that were removed count, but for the last ones.
    #[must_use]
    pub fn places(&self) -> usize {
        let last = (0..LINKS).rev().find(|link| self.has(*link));
        last.map_or(0, |last| last + 1)
    }

    /// Whether the place has a link.
    #[must_use]
    pub fn has(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|of| of.iter().any(|half| half.id != 0))
    }

    /// The places that have links, in their order.
    pub fn in_use(&self) -> impl Iterator<Item = usize> + use<> {
        let roster = *self;
        (0..LINKS).filter(move |link| roster.has(*link))
    }

    /// Whether older programs must not open such a chain: a place is empty, or a link leaves.
    pub(crate) fn needs_places(&self) -> bool {
        self.leaving.is_some() || self.in_use().count() < self.places()
    }

    /// Where a link that is added goes: behind all others, or, if all places were used, to the
    /// first that is empty. `None` if there is none.
    pub(crate) fn free_place(&self) -> Option<usize> {
        let end = Some(self.places()).filter(|end| *end < LINKS);
        end.or_else(|| (0..LINKS).find(|link| !self.has(*link)))
    }

    /// Whether a chain with links of `halves` drives may have it: no drive has two places.
    pub(crate) fn is_possible(&self, halves: usize) -> bool {
        let ids = || self.links.iter().flatten().map(|half| half.id).filter(|id| *id != 0);
        let once = ids().all(|id| ids().filter(|other| *other == id).count() == 1);
        let fits = |of: &[Half; HALVES]| !of.iter().skip(halves).any(|half| half.id != 0);
        let joins = self.joining.is_none_or(|joining| {
            let (link, half) = (usize::from(joining.link), usize::from(joining.half));
            self.has(link) && half < halves && self.place(joining.id).is_none()
        });
        let leaves = self.leaving.is_none_or(|link| self.has(link.into()));
        let links = self.in_use().count();
        (LINKS_LEAST..=LINKS).contains(&links)
            && once
            && joins
            && leaves
            && self.links.iter().all(fits)
    }

    /// Where the drive is current: the link, and which half of it.
    #[must_use]
    pub fn place(&self, id: u64) -> Option<(usize, usize)> {
        let all = self.links.iter().enumerate().filter(|_| id != 0);
        let mut places = all.flat_map(|(link, of)| (0..HALVES).map(move |half| (link, half, of)));
        places.find(|(_, half, of)| of[*half].id == id).map(|(link, half, _)| (link, half))
    }

    /// Whether the drive joins.
    #[must_use]
    pub fn joins(&self, id: u64) -> bool {
        self.joining.is_some_and(|joining| joining.id == id)
    }

    /// The link of a drive that is current or joins.
    pub(crate) fn link_of(&self, id: u64) -> Option<usize> {
        let joins = self.joining.filter(|joining| joining.id == id);
        joins.map(|joining| joining.link.into()).or_else(|| self.place(id).map(|(link, _)| link))
    }

    /// The roster after a change; `None` if nothing changes.
    pub(crate) fn after(&self, change: Change) -> Result<Option<Self>, Impossible> {
        let mut next = Self { version: self.version + 1, ..*self };
        match change {
            Change::Begin(joining)
                if self.joining.is_some() || self.leaving == Some(joining.link) =>
            {
                return Err(Impossible::Busy);
            }
            Change::Begin(joining) => next.joining = Some(joining),
            Change::Copied { id, segments } => {
                let joining = self.joining.filter(|joining| joining.id == id);
                let joining = joining.ok_or(Impossible::NotJoining)?;
                next.joining = Some(Joining { copied: segments, ..joining });
            }
            Change::Join { id, opening } => {
                let joining = self.joining.filter(|joining| joining.id == id);
                let Joining { link, half, .. } = joining.ok_or(Impossible::NotJoining)?;
                next.links[usize::from(link)][usize::from(half)] = Half { id, since: opening };
                next.joining = None;
            }
            Change::Leave { id } if self.joins(id) => next.joining = None,
            Change::Leave { id } => {
                let Some((link, half)) = self.place(id) else { return Ok(None) };
                if self.links[link].iter().all(|of| of.id == id || of.id == 0) {
                    return Err(Impossible::Last);
                }
                next.links[link][half] = Half::default();
            }
            Change::Add { link, ids, opening } => {
                let place = next.links.get_mut(usize::from(link)).ok_or(Impossible::Place)?;
                if self.has(link.into()) || ids.iter().any(|id| self.link_of(*id).is_some()) {
                    return Err(Impossible::Place);
                }
                let half = |id: u64| Half { id, since: if id == 0 { 0 } else { opening } };
                *place = ids.map(half);
            }
            Change::Cache if self.has_cache => return Ok(None),
            Change::Cache => next.has_cache = true,
            Change::Sleepers(may_sleep) if self.has_sleepers == may_sleep => return Ok(None),
            Change::Sleepers(may_sleep) => next.has_sleepers = may_sleep,
            Change::Evacuate { link } if self.leaving == Some(link) => return Ok(None),
            Change::Evacuate { link } => {
                let joins = self.joining.is_some_and(|joining| joining.link == link);
                if self.leaving.is_some() || joins {
                    return Err(Impossible::Busy);
                }
                if !self.has(link.into()) || self.in_use().count() <= LINKS_LEAST {
                    return Err(Impossible::Place);
                }
                next.leaving = Some(link);
            }
            Change::Remove { link } => {
                if self.leaving != Some(link) {
                    return Err(Impossible::Place);
                }
                next.leaving = None;
                next.links[usize::from(link)] = [Half::default(); HALVES];
            }
        }
        Ok(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> Roster {
        Roster::first(&[vec![11, 12], vec![21, 22]])
    }

    fn begun() -> Roster {
        let joining = Joining { id: 13, link: 0, half: 1, copied: 0 };
        roster().after(Change::Begin(joining)).unwrap().unwrap()
    }

    #[test]
    fn a_half_that_joined_takes_the_place_of_another_at_once() {
        let begun = begun();
        assert!(begun.joins(13) && begun.place(13).is_none() && begun.place(12).is_some());
        let joined = begun.after(Change::Join { id: 13, opening: 5 }).unwrap().unwrap();
        assert_eq!(joined.place(13), Some((0, 1)));
        assert_eq!((joined.place(12), joined.joining), (None, None));
        assert_eq!(joined.links[0][1].since, 5);
        assert!(joined.version > begun.version);
    }

    #[test]
    fn a_half_that_failed_while_it_joined_never_has_everything() {
        let failed = begun().after(Change::Leave { id: 13 }).unwrap().unwrap();
        assert_eq!(failed.after(Change::Join { id: 13, opening: 5 }), Err(Impossible::NotJoining));
        assert!(failed.place(12).is_some(), "the old half stays");
    }

    #[test]
    fn what_was_copied_is_noted_of_the_drive_that_joins_alone() {
        let noted = begun().after(Change::Copied { id: 13, segments: 7 }).unwrap().unwrap();
        assert_eq!(noted.joining.map(|joining| joining.copied), Some(7));
        assert!(noted.version > begun().version);
        let other = Change::Copied { id: 12, segments: 7 };
        assert_eq!(begun().after(other), Err(Impossible::NotJoining));
        let joined = noted.after(Change::Join { id: 13, opening: 5 }).unwrap().unwrap();
        assert_eq!(joined.joining, None);
    }

    #[test]
    fn a_link_leaves_its_place_only_after_it_began_to() {
        let three = Roster::first(&[vec![1], vec![2], vec![3]]);
        assert_eq!(three.after(Change::Remove { link: 1 }), Err(Impossible::Place));
        let leaves = three.after(Change::Evacuate { link: 1 }).unwrap().unwrap();
        assert!(leaves.needs_places() && !three.needs_places());
        assert_eq!(leaves.after(Change::Evacuate { link: 1 }), Ok(None));
        assert_eq!(leaves.after(Change::Evacuate { link: 2 }), Err(Impossible::Busy));
        let joining = Joining { id: 9, link: 1, half: 0, copied: 0 };
        assert_eq!(leaves.after(Change::Begin(joining)), Err(Impossible::Busy));
        let left = leaves.after(Change::Remove { link: 1 }).unwrap().unwrap();
        assert_eq!((left.place(2), left.places(), left.leaving), (None, 3, None));
        assert!(left.needs_places() && left.is_possible(1));
        assert_eq!(left.in_use().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(left.after(Change::Evacuate { link: 0 }), Err(Impossible::Place));
    }

    #[test]
    fn a_link_is_added_behind_all_others_while_there_is_a_place() {
        let mut roster = Roster::first(&[vec![1], vec![2]]);
        for link in 2..7 {
            assert_eq!(roster.free_place(), Some(usize::from(link)));
            let add = Change::Add { link, ids: [10 + u64::from(link), 0], opening: 3 };
            roster = roster.after(add).unwrap().unwrap();
        }
        assert_eq!(roster.free_place(), None);
        let twice = Change::Add { link: 2, ids: [77, 0], opening: 3 };
        assert_eq!(roster.after(twice), Err(Impossible::Place));
        roster = roster.after(Change::Evacuate { link: 4 }).unwrap().unwrap();
        roster = roster.after(Change::Remove { link: 4 }).unwrap().unwrap();
        assert_eq!(roster.free_place(), Some(4));
    }

    #[test]
    fn the_last_half_stays_and_nobody_leaves_twice() {
        let alone = roster().after(Change::Leave { id: 11 }).unwrap().unwrap();
        assert_eq!(alone.after(Change::Leave { id: 11 }), Ok(None));
        assert_eq!(alone.after(Change::Leave { id: 12 }), Err(Impossible::Last));
        assert!(alone.after(Change::Leave { id: 21 }).unwrap().is_some());
        let second = Joining { id: 14, link: 1, half: 0, copied: 0 };
        assert_eq!(begun().after(Change::Begin(second)), Err(Impossible::Busy));
        assert_eq!(alone.place(0), None, "an empty place is no drive");
    }
}
