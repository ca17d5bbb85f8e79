//! The blocks that were found in use.

use crate::layout::Geometry;
use crate::units::GroupNo;

/// Bits of one group.
type Words = Box<[u64; 512]>;

/// A bit for each block. A group with no block in use takes no memory.
#[derive(Debug)]
pub(crate) struct Space {
    groups: Vec<Option<Words>>,
    per_group: u64,
    blocks: u64,
    taken: u64,
}

impl Space {
    pub(crate) fn new(layout: &Geometry) -> Self {
        let groups = (0..layout.groups).map(|_| None).collect();
        Self { groups, per_group: layout.blocks_per_group.into(), blocks: layout.blocks, taken: 0 }
    }

    /// Takes a block. Returns false if it was taken before, or does not exist.
    pub(crate) fn take(&mut self, block: u64) -> bool {
        if block >= self.blocks {
            return false;
        }
        let (group, at) = (block / self.per_group, block % self.per_group);
        let Some(group) = usize::try_from(group).ok().and_then(|at| self.groups.get_mut(at)) else {
            return false;
        };
        let words = group.get_or_insert_with(|| Box::new([0; 512]));
        let (Some(word), bit) = (words.get_mut(word_of(at)), 1 << (at % 64)) else { return false };
        let fresh = *word & bit == 0;
        *word |= bit;
        self.taken += u64::from(fresh);
        fresh
    }

    /// A group's bits, the lowest for the first block; `None` if no block of it is taken.
    pub(crate) fn of_group(&self, group: GroupNo) -> Option<&[u64; 512]> {
        self.groups.get(group.0 as usize)?.as_deref()
    }

    /// Number of blocks in use.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }
}

fn word_of(at: u64) -> usize {
    usize::try_from(at / 64).unwrap_or(usize::MAX)
}
