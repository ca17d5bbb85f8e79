//! Allocation of blocks before they are written, and holes.

use std::ops::Range;
use std::rc::Rc;

use manylogs_plant::{Bug, is};

use crate::alloc::ClaimedFor;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extents::{MAP_CREDITS, Mapping, Unmapped};
use crate::file::SIZE_MOST;
use crate::inode::Node;
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::ondisk::extent::{Extent, UNWRITTEN_MOST};
use crate::ondisk::inode::{TimeField, flags};
use crate::units::{BLOCK, BLOCK_SECTORS, FileBlock, Ino, Run};

/// What an allocation makes of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// It has blocks. Parts that were not written read as zeroes.
    Blocks,
    /// It reads as zeroes and has no whole blocks.
    Hole,
    /// It reads as zeroes and has blocks.
    Zeroes,
}

impl Core {
    pub(crate) async fn allocate(
        &self,
        ino: Ino,
        range: Range<u64>,
        what: Allocate,
        (keep_size, kept): (bool, u64),
    ) -> Result<()> {
        self.check_allocation(ino, &range, what).await?;
        let node = self.node(ino);
        let _writer = node.writers.take().await;
        let _writing = node.writing.take_all().await;
        if !is(Bug::Ext4AllocationTimeless) {
            node.written_at.set(Some(self.now()));
            self.note_dirty();
        }
        if what != Allocate::Blocks {
            self.punch(&node, range.clone(), what).await?;
        }
        if what == Allocate::Hole {
            return Ok(());
        }
        let _content = node.content.read().await;
        let size = self.file(&node).await?;
        let blocks = low32(range.start / BLOCK)..low32(range.end.div_ceil(BLOCK));
        self.take_holes(&node, blocks, kept).await?;
        if range.end > size && !keep_size {
            self.fill_end(&node, range.end, &mut self.room_for_edge()).await?;
            node.set_new_size(range.end);
        }
        Ok(())
    }

    /// Checks that such an allocation is possible at all.
    pub(crate) async fn check_allocation(
        &self,
        ino: Ino,
        range: &Range<u64>,
        what: Allocate,
    ) -> Result<()> {
        self.check_writable()?;
        if range.is_empty() {
            return Err(Error::Invalid("an empty range"));
        }
        if range.end > SIZE_MOST {
            return Err(Error::TooLarge);
        }
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(ino).await?;
        match what {
            Allocate::Blocks => Metadata::check_mutable(&raw)?,
            Allocate::Hole | Allocate::Zeroes => Metadata::check_losable(&raw)?,
        }
        if what == Allocate::Hole || raw.has_flag(flags::EXTENTS) {
            return Ok(());
        }
        Err(Error::Unsupported("allocating in a file that is mapped by blocks"))
    }

    /// Maps unwritten blocks in holes of the range. `kept` blocks stay free.
    async fn take_holes(&self, node: &Node, blocks: Range<u32>, kept: u64) -> Result<()> {
        let mut at = blocks.start;
        while at < blocks.end {
            let mut handle = self.begin(2 * MAP_CREDITS).await?;
            let mut raw = self.inode(node.ino).await?;
            Metadata::check_mutable(&raw)?;
            let left = blocks.end - at;
            let hole = match self.map(node.ino, &raw, FileBlock(at)).await? {
                Mapping::Mapped(extent) => {
                    at += extent.blocks.min(left);
                    continue;
                }
                Mapping::Hole(hole) => hole.min(left).min(UNWRITTEN_MOST),
            };
            if self.space.check_room(hole.into(), kept).is_err() {
                drop(handle);
                if self.await_an_end().await {
                    continue;
                }
                return Err(Error::NoSpace);
            }
            let claim = match self.claim(self.goal(node.ino), hole, ClaimedFor::Others).await {
                Ok(claim) => claim,
                Err(Error::NoSpace) if self.space.holds_back() => {
                    drop(handle);
                    self.free_held_back().await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Run { start: block, blocks: taken } = claim.run();
            self.use_claim(&mut handle, claim).await?;
            let new = Extent { file: FileBlock(at), block, blocks: taken, written: false };
            self.insert_extent(&mut handle, node.ino, &mut raw, new).await?;
            raw.set_sectors(raw.sectors() + u64::from(taken) * BLOCK_SECTORS);
            raw.set_time(TimeField::Change, self.now());
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
            self.note_change_of(node, handle.finish());
            // Dirty pages have these blocks now, so their promises are fulfilled.
            self.keep_promises(node, new);
            at += taken;
        }
        Ok(())
    }

    /// Gives the whole blocks of a range back, and zeroes the rest of it. A hole that reaches
    /// beyond the end takes the whole last block, but not blocks that were allocated behind the
    /// end.
    async fn punch(&self, node: &Rc<Node>, range: Range<u64>, what: Allocate) -> Result<()> {
        let _alone = node.content.write().await;
        let size = self.file(node).await?;
        let to_end = what == Allocate::Hole && range.end > size;
        let end = if to_end { size.next_multiple_of(BLOCK) } else { range.end };
        let range = range.start..end;
        if what == Allocate::Hole && range.start >= size {
            return Ok(());
        }
        let (first, end) = (low32(range.start.div_ceil(BLOCK)), low32(range.end / BLOCK));
        let edges = [low32(range.start / BLOCK), low32(range.end / BLOCK)];
        let is_edge = |page: &u32| !(first..end).contains(page) && u64::from(*page) * BLOCK < size;
        for page in edges.into_iter().filter(is_edge) {
            let start = u64::from(page) * BLOCK;
            let mut bytes = self.page(node, size, page).await?.to_vec();
            let from = range.start.clamp(start, start + BLOCK) - start;
            let to = range.end.clamp(start, start + BLOCK) - start;
            bytes[manylogs_block::to_usize(from)..manylogs_block::to_usize(to)].fill(0);
            self.keep_edge(node, page, bytes.into()).await?;
        }
        let mut done = first >= end;
        while !done {
            let mut handle = self.begin(4 * MAP_CREDITS).await?;
            let mut raw = self.inode(node.ino).await?;
            Metadata::check_losable(&raw)?;
            let blocks = u64::from(first)..u64::from(end);
            let freed = Unmapped::Freed { metadata: self.journals_content(&raw) };
            done = self.remove_extents(&mut handle, node.ino, &mut raw, blocks, freed).await?;
            raw.set_time(TimeField::Modify, self.now());
            raw.set_time(TimeField::Change, self.now());
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
            self.note_change_of(node, handle.finish());
            self.drop_pages(node, first..end);
        }
        Ok(())
    }
}
