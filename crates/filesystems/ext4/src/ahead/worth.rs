//! Whether reading ahead pays.
//!
//! A window costs a drive half a millisecond to two, about a tenth of the positioning that the
//! wanted block costs anyway. A block that is there when it is asked for saves a positioning. So
//! windows pay if at least one block in [`GAIN`] is asked for soon after a block that lies shortly
//! before it. While nothing is read ahead, the blocks that would have been there are counted.

use std::collections::VecDeque;

use super::WINDOW_BLOCKS;
use crate::units::BlockNo;

/// Blocks elsewhere that one block near an earlier one outweighs.
const GAIN: u32 = 4;
/// Most blocks elsewhere, in a row, until reading ahead ends.
const MOST: u32 = 32;
/// Most blocks that are remembered: each block that was not read ahead is compared with them.
const RECENT_MOST: usize = 128;

/// Judges whether reading ahead pays.
#[derive(Debug)]
pub(super) struct Worth {
    /// Reading ahead pays while this is not zero.
    score: u32,
    /// The last blocks that were asked for and had not been read ahead.
    recent: VecDeque<BlockNo>,
    remembered: usize,
}

impl Worth {
    /// Begins with reading ahead that does not pay; there is memory for `windows` windows.
    pub(super) fn new(windows: usize) -> Self {
        let remembered = windows.clamp(1, RECENT_MOST);
        Self { score: 0, recent: VecDeque::with_capacity(remembered), remembered }
    }

    /// Notes that a block was there when it was asked for.
    pub(super) fn note_hit(&mut self) {
        self.score = MOST.min(self.score + GAIN);
    }

    /// Notes that a block was not there. Returns whether to read others with it.
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
