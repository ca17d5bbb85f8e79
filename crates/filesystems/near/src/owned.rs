//! Who wrote the content that is kept, as far as this mount knows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use manylogs::{Owner, Owners};
use manylogs_block::Lba;
use manylogs_ext4::{BlockNo, LoggedKind};

use crate::sink::BLOCK_SECTORS;

/// The most runs of blocks that are remembered, in less than 1 MiB. Beyond that all are forgotten,
/// so that their content counts as that of earlier mounts: nobody is known to have it.
const RUNS_MOST: usize = 1 << 14;

/// Runs of blocks by their ends, each with its first block and the user who wrote it last.
#[derive(Debug, Default)]
pub(crate) struct Owned(RefCell<BTreeMap<u64, (u64, u32)>>);

impl Owned {
    /// Notes whose content a transaction puts into a block. Returns the owner, if it may be kept.
    pub(crate) fn note(&self, block: BlockNo, kind: LoggedKind) -> Option<u32> {
        let LoggedKind::DurableContent { uid } = kind else { return None };
        let mut runs = self.0.borrow_mut();
        if runs.len() >= RUNS_MOST {
            runs.clear();
        }
        put(&mut runs, block.0..block.0 + 1, uid);
        Some(uid)
    }
}

/// Gives `new`, one block, to a user.
fn put(runs: &mut BTreeMap<u64, (u64, u32)>, new: Range<u64>, uid: u32) {
    let over = runs.range(new.end..).next().map(|(end, (first, of))| (*first..*end, *of));
    if let Some((run, of)) = over.filter(|(run, _)| run.start < new.end) {
        if of == uid {
            return;
        }
        runs.remove(&run.end);
        for rest in [run.start..new.start, new.end..run.end] {
            if !rest.is_empty() {
                runs.insert(rest.end, (rest.start, of));
            }
        }
    }
    let mut start = new.start;
    if let Some((first, _)) = runs.get(&new.start).copied().filter(|(_, of)| *of == uid) {
        runs.remove(&new.start);
        start = first;
    }
    runs.insert(new.end, (start, uid));
}

impl Owners for Owned {
    fn owner(&self, at: Lba) -> Owner {
        let block = at.0 / BLOCK_SECTORS;
        let runs = self.0.borrow();
        let found = runs.range(block + 1..).next().filter(|(_, (first, _))| *first <= block);
        found.map_or(Owner::UNKNOWN, |(_, (_, uid))| Owner(*uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_who_wrote_it_last() {
        let owned = Owned::default();
        let mut known = [None; 40];
        let mut rng = manylogs_block::Rng::new(7);
        for _ in 0..4000 {
            let (first, uid) = (rng.below(40), u32::try_from(rng.below(3)).unwrap_or(0));
            for block in first..(first + 1 + rng.below(8)).min(40) {
                assert_eq!(owned.note(BlockNo(block), LoggedKind::Metadata), None);
                owned.note(BlockNo(block), LoggedKind::DurableContent { uid });
                known[usize::try_from(block).unwrap_or(0)] = Some(uid);
            }
            for (block, uid) in (0..).zip(known) {
                let told = owned.owner(Lba(block * BLOCK_SECTORS + 3));
                assert_eq!(told, uid.map_or(Owner::UNKNOWN, Owner));
            }
            let runs = owned.0.borrow();
            let mut runs = runs.iter().map(|(end, (first, _))| *first..*end);
            assert!(runs.all(|run| !run.is_empty()));
        }
    }
}
