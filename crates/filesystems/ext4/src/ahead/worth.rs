//! Whether reading ahead pays.
//!
//! A window costs a drive half a millisecond to two beside the positioning of the block that is
//! wanted anyway, about a tenth of it; a block that waits when it is asked for saves a positioning.
//! So windows pay if one block in [`GAIN`] at least is asked for soon after one that lies shortly
//! before it. Where nothing is read ahead, that is judged by what would have waited.

use std::collections::VecDeque;

use super::WINDOW_BLOCKS;
use crate::units::BlockNo;

/// What a block that is asked for soon outweighs.
const GAIN: u32 = 4;
/// So many blocks that lie anywhere end it at the latest.
const MOST: u32 = 32;
/// How many reads are remembered at most: each block that is not found is compared with them.
const RECENT_MOST: usize = 128;

/// See the module.
#[derive(Debug)]
pub(super) struct Worth {
    /// It pays while this is not zero.
    score: u32,
    /// The last blocks that did not wait.
    recent: VecDeque<BlockNo>,
    remembered: usize,
}

impl Worth {
    /// It does not pay yet. There is memory for so many windows.
    pub(super) fn new(windows: usize) -> Self {
        let remembered = windows.clamp(1, RECENT_MOST);
        Self { score: 0, recent: VecDeque::with_capacity(remembered), remembered }
    }

    /// A block waited.
    pub(super) fn note_hit(&mut self) {
        self.score = MOST.min(self.score + GAIN);
    }

    /// A block did not wait. Whether others shall be read with it.
    pub(super) fn note_miss(&mut self, block: BlockNo) -> bool {
        let near = |before: &BlockNo| {
            block.0.checked_sub(before.0).is_some_and(|behind| behind < WINDOW_BLOCKS.into())
        };
        match self.recent.iter().any(near) {
            true => self.note_hit(),
            false => self.score = self.score.saturating_sub(1),
        }
        if self.recent.len() == self.remembered {
            self.recent.pop_front();
        }
        self.recent.push_back(block);
        self.score > 0
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Rng;

    use super::*;

    #[test]
    fn it_pays_for_neighbours_and_not_for_blocks_that_lie_anywhere() {
        let mut worth = Worth::new(64);
        let mut rng = Rng::new(1);
        let mut anywhere = |worth: &mut Worth| {
            (0..1000).filter(|_| worth.note_miss(BlockNo(rng.below(1 << 22)))).count()
        };
        assert!(anywhere(&mut worth) < 30);
        // Every other block of a run, among blocks that lie anywhere.
        let found = (0..100).filter(|at| worth.note_miss(BlockNo((1 << 23) + 2 * at))).count();
        assert!(found > 95, "{found}");
        assert!(anywhere(&mut worth) < 60, "it ends soon");
    }
}
