//! Blocks that were read ahead, in windows: a window is what one read brought.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;

use super::chosen::Chosen;
use crate::memory::{Memory, Part, Permit};
use crate::units::{BLOCK, BLOCK_BYTES, BlockNo, Run};

/// Memory of a window besides its blocks: its places in the tables, its marks, the permit.
const WINDOW_COST: u64 = 512;

/// The blocks that one read brought.
#[derive(Debug)]
pub(super) struct Window {
    run: Run,
    bytes: Bytes,
    /// The blocks that can still be taken.
    waiting: Chosen,
    /// Numbers windows in the order in which they were read, or used last.
    number: u64,
    _held: Permit,
}

/// All windows. No two overlap.
#[derive(Debug, Default)]
pub(super) struct Windows {
    by_start: BTreeMap<BlockNo, Window>,
    by_use: BTreeSet<(u64, BlockNo)>,
    /// Most memory of all windows, in bytes.
    most: u64,
    held: u64,
    next: u64,
}

impl Window {
    /// What a read of `run` brought, except `not`.
    pub(super) fn of(run: Run, bytes: Bytes, not: &Chosen, memory: &Memory) -> Self {
        let mut waiting = Chosen::within(run, &run.range());
        waiting.remove_all(not);
        let held = memory.hold(Part::Metadata, Self::cost(run.blocks));
        Self { run, bytes, waiting, number: 0, _held: held }
    }

    /// The memory of a window of so many blocks, in bytes.
    pub(super) const fn cost(blocks: u32) -> u64 {
        blocks as u64 * BLOCK + WINDOW_COST
    }
}

impl Windows {
    /// No windows; all will take at most so many bytes of memory.
    pub(super) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// The window that has a block, whether or not the block can still be taken.
    fn at(&self, block: BlockNo) -> Option<&Window> {
        let (_, window) = self.by_start.range(..=block).next_back()?;
        window.run.range().contains(&block.0).then_some(window)
    }

    /// Takes a block out.
    pub(super) fn take(&mut self, block: BlockNo) -> Option<Bytes> {
        let (start, window) = self.by_start.range_mut(..=block).next_back()?;
        if !window.waiting.has(block) {
            return None;
        }
        let at = manylogs_block::to_usize(block.0 - start.0) * BLOCK_BYTES;
        let found = Bytes::copy_from_slice(&window.bytes[at..at + BLOCK_BYTES]);
        window.waiting.remove(&(block.0..block.0 + 1));
        let (start, is_used) = (*start, window.waiting.is_empty());
        self.by_use.remove(&(window.number, start));
        window.number = self.next;
        self.by_use.insert((self.next, start));
        self.next += 1;
        if is_used {
            self.remove(start);
        }
        Some(found)
    }

    /// Drops all blocks in this range.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        let first = self.at(BlockNo(range.start)).map_or(range.start, |window| window.run.start.0);
        let mut empty = Vec::new();
        for (start, window) in self.by_start.range_mut(BlockNo(first)..BlockNo(range.end)) {
            window.waiting.remove(range);
            if window.waiting.is_empty() {
                empty.push(*start);
            }
        }
        empty.into_iter().for_each(|start| self.remove(start));
    }

    /// The part of `wanted` around `block` that no window has; `None` if one has `block`.
    pub(super) fn free_part(&self, wanted: Range<u64>, block: BlockNo) -> Option<Run> {
        if self.at(block).is_some() {
            return None;
        }
        let before = self.by_start.range(..block).next_back();
        let start = before.map_or(0, |(_, window)| window.run.range().end).max(wanted.start);
        let behind = self.by_start.range(block..).next();
        let end = behind.map_or(u64::MAX, |(start, _)| start.0).min(wanted.end);
        Some(Run { start: BlockNo(start), blocks: manylogs_block::narrow(end - start) })
    }

    /// Those of `blocks`, which are in order, that no window has: runs of neighbours.
    pub(super) fn free_runs(&self, blocks: &[BlockNo]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for block in blocks.iter().filter(|block| self.at(**block).is_none()) {
            match runs.last_mut() {
                Some(run) if run.range().end == block.0 => run.blocks += 1,
                _ => runs.push(Run { start: *block, blocks: 1 }),
            }
        }
        runs
    }

    /// Keeps a window, unless another one has some of its blocks by now. Those that were not used
    /// for longest go if all take too much memory.
    pub(super) fn insert(&mut self, mut window: Window) {
        let Run { start, blocks } = window.run;
        let end = window.run.range().end;
        let is_free = self.free_part(start.0..end, start).is_some_and(|free| free.blocks == blocks);
        let cost = Window::cost(blocks);
        if !is_free || window.waiting.is_empty() || cost > self.most {
            return;
        }
        while self.held + cost > self.most
            && let Some((_, oldest)) = self.by_use.first().copied()
        {
            self.remove(oldest);
        }
        window.number = self.next;
        self.next += 1;
        self.held += cost;
        self.by_use.insert((window.number, start));
        self.by_start.insert(start, window);
    }

    fn remove(&mut self, start: BlockNo) {
        if let Some(window) = self.by_start.remove(&start) {
            self.by_use.remove(&(window.number, start));
            self.held -= Window::cost(window.run.blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: u64, blocks: u32) -> Window {
        let run = Run { start: BlockNo(start), blocks };
        let bytes: Vec<u8> =
            run.range().flat_map(|block| vec![block.to_le_bytes()[0]; BLOCK_BYTES]).collect();
        Window::of(run, bytes.into(), &Chosen::none(run), &Memory::default())
    }

    fn first(windows: &mut Windows, block: u64) -> Option<u8> {
        windows.take(BlockNo(block)).map(|bytes| bytes[0])
    }

    #[test]
    fn a_block_waits_until_it_is_taken_or_changed() {
        let mut windows = Windows::new(1 << 20);
        windows.insert(window(40, 32));
        windows.insert(window(72, 8));
        assert_eq!(first(&mut windows, 41), Some(41));
        assert_eq!(first(&mut windows, 41), None, "whoever asked has it");
        windows.forget(&(60..75));
        let left: Vec<u64> = (39..81).filter(|b| first(&mut windows, *b).is_some()).collect();
        let expected: Vec<u64> = (40..60).filter(|b| *b != 41).chain(75..80).collect();
        assert_eq!(left, expected);
        assert!(windows.by_start.is_empty() && windows.by_use.is_empty() && windows.held == 0);
    }

    #[test]
    fn windows_do_not_overlap_and_the_one_that_is_not_used_goes() {
        let mut windows = Windows::new(2 * Window::cost(8));
        windows.insert(window(40, 8));
        windows.insert(window(60, 8));
        let free = |windows: &Windows, wanted, block| {
            let run = windows.free_part(wanted, BlockNo(block));
            run.map(|run| (run.start.0, run.blocks))
        };
        assert_eq!(free(&windows, 32..64, 50), Some((48, 12)));
        assert_eq!(free(&windows, 32..64, 47), None);
        windows.insert(window(44, 8));
        assert_eq!(first(&mut windows, 50), None, "another one had some of its blocks");
        assert_eq!(first(&mut windows, 40), Some(40));
        windows.insert(window(80, 8));
        assert_eq!(first(&mut windows, 61), None, "the other one was used later");
        assert_eq!((first(&mut windows, 41), first(&mut windows, 80)), (Some(41), Some(80)));
        windows.insert(window(100, 17));
        assert_eq!(first(&mut windows, 100), None, "it takes more memory than there is");
        assert_eq!(first(&mut windows, 42), Some(42));
    }
}
