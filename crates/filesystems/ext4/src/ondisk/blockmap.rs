//! Maps of blocks, which files of ext3 have instead of extents: 15 pointers in the inode. The
//! first 12 lead to blocks of the file, the others to tables of pointers: of one, two and three
//! levels.

use std::ops::Range;

use crate::ondisk::bytes::le32;
use crate::units::BLOCK;

/// Pointers in a table.
pub(crate) const TABLE: usize = 1024;
/// Pointers in the inode.
pub(crate) const ROOT: usize = 15;
/// Pointers in the inode that lead to blocks of the file.
const DIRECT: usize = 12;
const SPAN: u64 = TABLE as u64;

/// Most blocks that a map can lead to.
pub(crate) const BLOCKS_MOST: u64 = DIRECT as u64 + SPAN + SPAN * SPAN + SPAN * SPAN * SPAN;
/// Size in bytes of the largest file that is mapped by blocks.
pub(crate) const SIZE_MOST: u64 = BLOCKS_MOST * BLOCK;

/// The part of a file that the pointers of a table, or of the inode, cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The pointers in the inode.
    Root,
    /// A table whose pointers cover the blocks from `start` on, with `below` levels of tables under
    /// it.
    Table { start: u64, below: u32 },
}

/// Blocks of a file that one pointer covers, with `below` levels of tables under it.
const fn span(below: u32) -> u64 {
    SPAN.pow(below)
}

impl Level {
    /// How many pointers there are.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Root => ROOT,
            Self::Table { .. } => TABLE,
        }
    }

    /// The blocks of the file that a pointer covers.
    pub(crate) fn covers(self, slot: usize) -> Range<u64> {
        let slot_number = slot as u64;
        let (start, below) = match self {
            Self::Root if slot < DIRECT => (slot_number, 0),
            Self::Root => {
                let below = manylogs_block::narrow::<_, u32>((slot - DIRECT + 1) as u64);
                ((1..below).fold(DIRECT as u64, |start, level| start + span(level)), below)
            }
            Self::Table { start, below } => (start + slot_number * span(below), below),
        };
        start..start + span(below)
    }

    /// The pointer that covers block `at` of the file, if it is one of this table.
    pub(crate) fn slot_of(self, at: u64) -> Option<usize> {
        match self {
            Self::Root => (0..ROOT).find(|slot| self.covers(*slot).contains(&at)),
            Self::Table { start, below } => {
                let slot = usize::try_from(at.checked_sub(start)? / span(below)).ok()?;
                Some(slot).filter(|slot| *slot < TABLE)
            }
        }
    }

    /// The level of the table that a pointer leads to; `None` if it leads to a block of the file.
    pub(crate) fn child(self, slot: usize) -> Option<Self> {
        let covered = self.covers(slot);
        let below = (covered.end - covered.start).ilog(SPAN);
        below.checked_sub(1).map(|below| Self::Table { start: covered.start, below })
    }
}

/// Pointer number `slot` of those in `bytes`.
pub(crate) fn pointer(bytes: &[u8], slot: usize) -> u32 {
    le32(bytes, 4 * slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots on the way to a block.
    fn way(at: u64) -> Vec<usize> {
        let (mut level, mut slots) = (Some(Level::Root), Vec::new());
        while let Some(here) = level {
            let Some(slot) = here.slot_of(at) else { break };
            slots.push(slot);
            level = here.child(slot);
        }
        slots
    }

    #[test]
    fn each_block_has_one_way() {
        assert_eq!((way(0), way(11)), (vec![0], vec![11]));
        assert_eq!((way(12), way(1035)), (vec![12, 0], vec![12, 1023]));
        assert_eq!((way(1036), way(2060)), (vec![13, 0, 0], vec![13, 1, 0]));
        assert_eq!(way(1036 + (1 << 20)), [14, 0, 0, 0]);
        assert_eq!(way(BLOCKS_MOST - 1), [14, 1023, 1023, 1023]);
        assert_eq!(way(BLOCKS_MOST), Vec::<usize>::new());
    }
}
