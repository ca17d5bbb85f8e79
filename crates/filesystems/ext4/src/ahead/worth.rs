//! Whether reading ahead pays, and how far.
//!
//! A window of 128 KiB costs a drive half a millisecond to two. A block that is there when it is
//! asked for saves a positioning; but those that lie near the last one are cheap, since the drive
//! reads ahead by itself. So windows pay if each brings [`COST`] blocks or more that are asked for
//! soon. While nothing is read ahead, the blocks that would have been there are counted.
//!
//! Longer windows pay as long as at least one block in [`PAYS`] of those that windows brought
//! lately was asked for: each window is twice as long as the one before then. With fewer than one
//! in [`WASTES`] it is half as long.

use std::collections::VecDeque;

use super::SHORTEST_BLOCKS;
use crate::units::BlockNo;

/// What a block costs that was not there, in blocks that are there when they are asked for.
const COST: u32 = 3;
/// The score at first, and at most.
const FIRST: u32 = 12;
const MOST: u32 = 32;
/// Most blocks that are remembered: each block that was not read ahead is compared with them.
const RECENT_MOST: usize = 128;
/// Blocks that windows bring for one that is asked for, while longer windows pay.
const PAYS: u32 = 8;
/// Blocks that windows bring for one that is asked for, when shorter windows are better.
const WASTES: u32 = 32;

/// Judges whether reading ahead pays.
#[derive(Debug)]
pub(super) struct Worth {
    /// Reading ahead pays while this is not zero.
    score: u32,
    /// Blocks of the next window: a power of two.
    blocks: u32,
    /// Most blocks of a window.
    longest: u32,
    /// Blocks that windows brought, the last one counting most.
    brought: u32,
    /// Blocks of windows that were asked for, likewise.
    used: u32,
    /// The last blocks that were asked for and had not been read ahead.
    recent: VecDeque<BlockNo>,
    remembered: usize,
}

impl Worth {
    /// Begins with a few windows, before it is known whether they pay. There is memory for
    /// `windows` of the shortest; the longest have `longest` blocks, which is a power of two.
    pub(super) fn new(windows: usize, longest: u32) -> Self {
        debug_assert!(longest.is_power_of_two() && longest >= SHORTEST_BLOCKS);
        let remembered = windows.clamp(1, RECENT_MOST);
        let recent = VecDeque::with_capacity(remembered);
        let (blocks, used) = (SHORTEST_BLOCKS, FIRST);
        Self { score: FIRST, blocks, longest, brought: 0, used, recent, remembered }
    }

    /// Notes that a block was there when it was asked for.
    pub(super) fn note_hit(&mut self) {
        self.used += 1;
        self.gain();
    }

    fn gain(&mut self) {
        self.score = MOST.min(self.score + 1);
    }

    /// Notes that a block was not there. Returns whether to read others with it.
    pub(super) fn note_miss(&mut self, block: BlockNo) -> bool {
        let near = |before: &BlockNo| block.0.abs_diff(before.0) < SHORTEST_BLOCKS.into();
        match self.recent.iter().any(near) {
            true => self.gain(),
            false => self.score = self.score.saturating_sub(COST),
        }
        if self.recent.len() == self.remembered {
            self.recent.pop_front();
        }
        self.recent.push_back(block);
        self.score > 0
    }

    /// How many blocks the next window has.
    pub(super) fn next_window(&mut self) -> u32 {
        if self.brought > 0 && self.used.saturating_mul(PAYS) >= self.brought {
            self.blocks = self.longest.min(2 * self.blocks);
        } else if self.used.saturating_mul(WASTES) < self.brought {
            self.blocks = SHORTEST_BLOCKS.max(self.blocks / 2);
        }
        self.blocks
    }

    /// Notes that a window of so many blocks was read.
    pub(super) fn note_window(&mut self, blocks: u32) {
        self.brought = self.brought / 2 + blocks;
        self.used /= 2;
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Rng;

    use super::*;

    #[test]
    fn it_pays_for_neighbours_and_not_for_blocks_that_lie_anywhere() {
        let mut worth = Worth::new(64, 256);
        let mut rng = Rng::new(1);
        assert!((0..1000).filter(|_| worth.note_miss(BlockNo(rng.below(1 << 22)))).count() < 30);
        // Every other block of a run, among blocks that lie anywhere.
        let mut found = 0;
        for at in 0..100 {
            found += u32::from(worth.note_miss(BlockNo((1 << 23) + 2 * at)));
            worth.note_miss(BlockNo(rng.below(1 << 22)));
            (0..3).for_each(|_| worth.note_hit());
        }
        assert!(found > 95, "{found}");
        assert!((0..1000).filter(|_| worth.note_miss(BlockNo(rng.below(1 << 22)))).count() < 60);
    }

    /// The lengths of windows of which so many blocks are used, each read when they are.
    fn lengths(worth: &mut Worth, used: u32) -> Vec<u32> {
        let mut next = || {
            let blocks = worth.next_window();
            worth.note_window(blocks);
            (0..used).for_each(|_| worth.note_hit());
            blocks
        };
        (0..6).map(|_| next()).collect()
    }

    #[test]
    fn windows_become_longer_while_they_are_used_and_shorter_when_not() {
        let mut worth = Worth::new(64, 256);
        assert_eq!(lengths(&mut worth, 32), [32, 64, 128, 256, 256, 256]);
        assert_eq!(lengths(&mut worth, 0)[2..], [128, 64, 32, 32]);
        assert_eq!(lengths(&mut worth, 4), [32; 6], "not one in eight");
        let mut worth = Worth::new(64, 256);
        assert_eq!(lengths(&mut worth, 0), [32, 64, 64, 32, 32, 32]);
    }
}
