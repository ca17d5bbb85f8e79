//! Blocks that were read ahead, in windows: a window is what one read brought.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;

use super::{WINDOW_BLOCKS, bits};
use crate::memory::Permit;
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// The blocks that one read brought.
#[derive(Debug)]
pub(super) struct Window {
    run: Run,
    bytes: Bytes,
    /// Bits of the blocks that can still be taken.
    waiting: u32,
    /// Numbers windows in the order in which they were read.
    number: u64,
    _held: Permit,
}

/// All windows. No two overlap.
#[derive(Debug, Default)]
pub(super) struct Windows {
    by_start: BTreeMap<BlockNo, Window>,
    by_age: BTreeSet<(u64, BlockNo)>,
    /// Most windows at a time.
    most: usize,
    next: u64,
}

impl Window {
    pub(super) fn of(run: Run, bytes: Bytes, held: Permit) -> Self {
        debug_assert!(run.blocks <= WINDOW_BLOCKS);
        let waiting = bits(run, run.range());
        Self { run, bytes, waiting, number: 0, _held: held }
    }

    /// These blocks can be taken no more.
    pub(super) const fn forget(&mut self, bits: u32) {
        self.waiting &= !bits;
    }
}

impl Windows {
    pub(super) const fn new(most: usize) -> Self {
        Self { by_start: BTreeMap::new(), by_age: BTreeSet::new(), most, next: 0 }
    }

    /// The window that has a block, whether or not the block can still be taken.
    fn at(&self, block: BlockNo) -> Option<&Window> {
        let (_, window) = self.by_start.range(..=block).next_back()?;
        window.run.range().contains(&block.0).then_some(window)
    }

    /// Takes a block out.
    pub(super) fn take(&mut self, block: BlockNo) -> Option<Bytes> {
        let window = self.at(block)?;
        let number = block.0 - window.run.start.0;
        if window.waiting & (1 << number) == 0 {
            return None;
        }
        let at = manylogs_block::to_usize(number) * BLOCK_BYTES;
        let found = Bytes::copy_from_slice(&window.bytes[at..at + BLOCK_BYTES]);
        self.forget(block.0..block.0 + 1);
        Some(found)
    }

    /// Drops all blocks in this range.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        let first = range.start.saturating_sub(u64::from(WINDOW_BLOCKS));
        let mut empty = Vec::new();
        for (start, window) in self.by_start.range_mut(BlockNo(first)..BlockNo(range.end)) {
            window.forget(bits(window.run, range.clone()));
            if window.waiting == 0 {
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

    /// Keeps a window, unless another one has some of its blocks by now; the oldest one goes if
    /// there are too many.
    pub(super) fn insert(&mut self, mut window: Window) {
        let Run { start, blocks } = window.run;
        let end = window.run.range().end;
        let is_free = self.free_part(start.0..end, start).is_some_and(|free| free.blocks == blocks);
        if !is_free || window.waiting == 0 {
            return;
        }
        while self.by_start.len() >= self.most.max(1)
            && let Some((_, oldest)) = self.by_age.first().copied()
        {
            self.remove(oldest);
        }
        window.number = self.next;
        self.next += 1;
        self.by_age.insert((window.number, start));
        self.by_start.insert(start, window);
    }

    fn remove(&mut self, start: BlockNo) {
        if let Some(window) = self.by_start.remove(&start) {
            self.by_age.remove(&(window.number, start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Part};

    fn window(start: u64, blocks: u32) -> Window {
        let held = Memory::default().hold(Part::Metadata, 1);
        let bytes: Vec<u8> = (start..start + u64::from(blocks))
            .flat_map(|block| vec![block.to_le_bytes()[0]; BLOCK_BYTES])
            .collect();
        Window::of(Run { start: BlockNo(start), blocks }, bytes.into(), held)
    }

    fn first(windows: &mut Windows, block: u64) -> Option<u8> {
        windows.take(BlockNo(block)).map(|bytes| bytes[0])
    }

    #[test]
    fn a_block_waits_until_it_is_taken_or_changed() {
        let mut windows = Windows::new(9);
        windows.insert(window(40, 32));
        windows.insert(window(72, 8));
        assert_eq!(first(&mut windows, 41), Some(41));
        assert_eq!(first(&mut windows, 41), None, "whoever asked has it");
        windows.forget(60..75);
        let left: Vec<u64> = (39..81).filter(|b| first(&mut windows, *b).is_some()).collect();
        let expected: Vec<u64> = (40..60).filter(|b| *b != 41).chain(75..80).collect();
        assert_eq!(left, expected);
        assert!(windows.by_start.is_empty() && windows.by_age.is_empty());
    }

    #[test]
    fn windows_do_not_overlap_and_the_oldest_goes() {
        let mut windows = Windows::new(2);
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
        windows.insert(window(80, 8));
        assert_eq!(first(&mut windows, 41), None, "it was the oldest");
        assert_eq!((first(&mut windows, 60), first(&mut windows, 80)), (Some(60), Some(80)));
    }
}
