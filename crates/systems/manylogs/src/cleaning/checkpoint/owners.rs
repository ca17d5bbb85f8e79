//! Whose kept content goes home when there is too much of it. Every owner has an equal share of the
//! budget, and what some do not use others may. Who has more than that gives up his oldest content.
//! There is one floor for all, so that older content of others is logged anew.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use manylogs_block::{Lba, Sectors};
use manylogs_logstore::store::{Place, Store};
use manylogs_logstore::{Class, DataSequence, EntryKind};
use manylogs_plant::{self as plant, Bug};

use super::Progress;
use super::copy::{Renewed, Run};
use super::kept::behind_oldest;
use crate::requests::write::What;
use crate::state::Inner;
use crate::volume::Volume;

/// Somebody who has content kept, in the numbers of the volume's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

impl Owner {
    /// Whoever is not known.
    pub const UNKNOWN: Self = Self(u32::MAX);
}

/// What the volume's user knows of owners: see [`Volume::set_owners`].
pub trait Owners: fmt::Debug {
    /// Who has the kept content at `at`.
    fn owner(&self, at: Lba) -> Owner;
}

/// How much of each owner's content stays when there is too much.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving(BTreeMap<Owner, DataSequence>);

impl Leaving {
    /// What is older than this leaves the logs, or is logged anew.
    pub(super) fn before(&self) -> Option<DataSequence> {
        self.0.values().copied().max()
    }
}

impl Volume {
    /// From now on `owners` says whose content is kept. If it exceeds the budget, the oldest of
    /// those goes home who have more than their share. Without this call all content has one owner.
    /// Only the first call counts.
    pub fn set_owners(&self, owners: Rc<dyn Owners>) {
        _ = self.inner().owners.set(owners);
    }
}

impl Inner {
    fn owner(&self, at: Lba) -> Owner {
        self.owners.get().map_or(Owner::UNKNOWN, |owners| owners.owner(at))
    }

    /// Whose kept content leaves the logs, so that at most `budget` of it stays.
    pub(super) fn leaving(&self, store: &Store, budget: Sectors, floor: DataSequence) -> Leaving {
        let mut has: BTreeMap<Owner, u64> = BTreeMap::new();
        for (extent, _) in store.kept().filter(|(_, mapped)| mapped.value.is_kept_content()) {
            *has.entry(self.owner(extent.start)).or_default() += extent.len.0;
        }
        let share = share_of(has.values().copied().collect(), budget.0);
        let beyond = has.into_iter().filter(|(_, sectors)| *sectors > share);
        let leaving = beyond.map(|(owner, sectors)| {
            let is = |at, place: Place| place.is_kept_content() && self.owner(at) == owner;
            (owner, behind_oldest(store, is, sectors - share, floor))
        });
        Leaving(leaving.collect())
    }

    /// Takes from `runs` the content that stays, although it is older than what leaves the logs,
    /// and logs it anew. What finds no room goes home. The caller holds the locks on all runs.
    pub(super) fn keep_others(self: &Rc<Self>, runs: &mut Vec<Run>, progress: &Progress) {
        let Some(leaving) = &progress.leaving else { return };
        let what = What::of(EntryKind::Data, Class::DurabilityOnly);
        let which = Renewed::Below(progress.keeps_from);
        runs.retain(|run| {
            let from = leaving.0.get(&self.owner(run.extent.start)).copied();
            let stays = from.is_none_or(|from| run.sequence >= from);
            if !run.place.is_kept_content() || !stays {
                return true;
            }
            if plant::is(Bug::OthersNotRenewed) {
                return false;
            }
            let left = self.renew_what_fits(what, run.extent, Some(&run.content), which);
            self.engine.state.borrow_mut().store.note_kept_moved(run.extent.len - left);
            left > Sectors(0)
        });
    }
}

/// The most that each owner may have, so that all together have at most `budget`.
fn share_of(mut has: Vec<u64>, budget: u64) -> u64 {
    has.sort_unstable();
    let mut left = budget;
    for (number, sectors) in has.iter().enumerate() {
        let share = left / (has.len() - number) as u64;
        if *sectors > share {
            return share;
        }
        left -= sectors;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_little_keeps_it_and_the_others_share_the_rest() {
        assert_eq!(share_of(vec![], 10), u64::MAX);
        assert_eq!(share_of(vec![4, 6], 10), u64::MAX);
        assert_eq!(share_of(vec![40], 10), 10);
        assert_eq!(share_of(vec![40, 2], 10), 8);
        assert_eq!(share_of(vec![40, 2, 30], 10), 4);
        assert_eq!(share_of(vec![5, 5, 5], 10), 3);
    }
}
