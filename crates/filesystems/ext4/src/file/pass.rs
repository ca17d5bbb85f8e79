//! A pass of write-back through a file.

use std::collections::BTreeMap;
use std::ops::Range;

use manylogs_block::to_usize;

use super::writeback::Held;
use crate::inode::{Node, Page};
use crate::memory::{Memory, Part, Permit};
use crate::pages_lock::PagesGuard;
use crate::units::BLOCK_BYTES;

/// Pages that are mapped at once: 4 MiB, or less if a quarter of the memory for pages in flight has
/// room for less.
const BATCH: usize = 1024;
/// Batches after which a pass ends, so that others have their turn: 256 MiB.
const BATCHES: usize = 64;
/// Bytes of memory of a page in flight: a copy for the device, and the old page if it changes.
pub(super) const ON_THE_WAY_COST: u64 = 2 * BLOCK_BYTES as u64 + 128;

/// One pass through a file's dirty pages, in order. Whole batches that become dirty ahead of it are
/// taken too, so that the device need not wait between the parts of a stream.
pub(super) struct Pass<'n> {
    pub(super) node: &'n Node,
    /// The lock on the pages.
    alone: &'n PagesGuard,
    next: u32,
    /// Dirty pages before this page are taken even if they fill no batch.
    least: u32,
    end: u32,
    /// Most pages of a batch.
    batch: usize,
    /// Number of batches that were taken.
    batches: usize,
}

impl<'n> Pass<'n> {
    pub(super) fn new(
        node: &'n Node,
        alone: &'n PagesGuard,
        pages: Range<u32>,
        memory: &Memory,
    ) -> Self {
        let quarter = to_usize(memory.most(Part::Writing) / 4 / ON_THE_WAY_COST);
        let batch = quarter.min(BATCH);
        let least = dirty_end(&node.pages.borrow()).min(pages.end);
        Self { node, alone, next: pages.start, least, end: pages.end, batch, batches: 0 }
    }

    /// Memory for the next batch, when it is the caller's turn.
    pub(super) async fn room(&self, memory: &Memory) -> Permit {
        match self.cost() {
            0 => memory.hold(Part::Writing, 0),
            bytes => memory.take(Part::Writing, bytes).await,
        }
    }

    /// Memory for the next batch, if it is free now. A pass with a batch in flight must not wait
    /// for more memory: others may do the same.
    pub(super) fn room_now(&self, memory: &Memory) -> Option<Permit> {
        memory.try_take(Part::Writing, self.cost())
    }

    fn cost(&self) -> u64 {
        let pages = self.node.pages.borrow();
        let dirty = pages.range(self.next.min(self.end)..self.end);
        dirty.take(self.batch).count() as u64 * ON_THE_WAY_COST
    }

    /// The next pages, as they are now: as many as `held` is memory for.
    pub(super) fn next_batch(&mut self, held: &Permit) -> Option<Vec<Held>> {
        if self.node.is_ending.get() {
            return None;
        }
        let pages = self.node.pages.borrow();
        self.batches += 1;
        if self.batches > BATCHES || self.alone.is_wanted() {
            // Other tasks wait only for pages that are dirty already.
            self.end = self.end.min(dirty_end(&pages));
            self.least = self.end;
        }
        let most = to_usize(held.bytes() / ON_THE_WAY_COST).min(self.batch);
        let mut dirty = pages.range(self.next.min(self.end)..self.end).take(most).peekable();
        let held = |(number, page): (&u32, &Page)| (*number, page.bytes.clone(), page.version);
        let alone = dirty.next_if(|(_, page)| page.is_last_attempt());
        let is_alone = alone.is_some();
        let others = dirty.take_while(|(_, page)| !is_alone && !page.is_last_attempt());
        let batch: Vec<Held> = alone.into_iter().chain(others).map(held).collect();
        if self.next >= self.least && batch.len() < self.batch {
            return None;
        }
        self.next = batch.last()?.0 + 1;
        Some(batch)
    }
}

/// The page behind the last dirty one.
fn dirty_end(pages: &BTreeMap<u32, Page>) -> u32 {
    pages.last_key_value().map_or(0, |(last, _)| *last + 1)
}
