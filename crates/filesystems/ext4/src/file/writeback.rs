//! Write-back of pages to the device: data first, and then the metadata that refers to it.
//!
//! Blocks for pages without one are first only claimed. When the device has answered that the data
//! is written, a handle marks the blocks as in use and maps them. So a transaction never refers to
//! unwritten data, and never waits for data.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Completion, Hint, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use super::failures::versions;
use super::pass::Pass;
use super::place::Piece;
use crate::core::{Core, Mode};
use crate::error::Result;
use crate::extents::{MAP_CREDITS, Unmapped};
use crate::inode::Node;
use crate::journal::{Handle, LoggedKind};
use crate::memory::Permit;
use crate::ondisk::bytes::low32;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{RawInode, TimeField};
use crate::ops::Changed;
use crate::units::{BLOCK, BLOCK_SECTORS, BlockNo, Ino, Run};

/// Batches under way: the device has the next batch while the last one is mapped.
const UNDER_WAY: usize = 2;
/// Pages of one request, so that others may be served in between: 1 MiB.
const REQUEST: usize = 256;
/// Pieces that one handle maps: even the smallest journal has room for their credits.
const PIECES: usize = 2;

/// Whether write-back of a file's pages also writes its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// The inode gets the times.
    Written,
    /// The times wait for a later write-back, unless the inode gets another size.
    Kept,
}

/// A page: its number, its content, and the version of that.
pub(super) type Held = (u32, Bytes, u64);

/// A piece, its pages, and whether it goes into the journal.
struct Planned {
    piece: Piece,
    pages: Vec<Held>,
    /// Whether its content goes into a transaction.
    journalled: bool,
}

/// A batch whose pages are on their way to the device.
struct Sent {
    planned: Vec<Planned>,
    writes: Vec<Completion>,
    _held: Permit,
}

impl Core {
    /// Writes all dirty pages of a file to the device, and puts its size and times into a
    /// transaction.
    ///
    /// # Errors
    /// Those of the device: the pages stay dirty until their last attempt.
    pub(crate) async fn write_back(&self, node: &Rc<Node>, times: Times) -> Result<()> {
        self.write_back_as(node, times, false).await
    }

    /// As [`Core::write_back`]; with `kept` the log keeps the content if it can, even if the file
    /// lacks the property.
    async fn write_back_as(&self, node: &Rc<Node>, times: Times, kept: bool) -> Result<()> {
        let alone = node.writing.take_all().await;
        let _content = node.content.read().await;
        let size = node.size.get().unwrap_or(0);
        self.write_held(Pass::new(node, &alone, 0..u32::MAX, &self.memory), kept).await?;
        if times == Times::Kept && !node.size_is_new.get() {
            return Ok(());
        }
        let put = self.put_size(node, size).await;
        put.inspect_err(|error| self.note_size_failure(node, error))
    }

    /// Writes a part of a file to the device. Other tasks may write other parts meanwhile. A file
    /// that has become longer is written as a whole. With `kept` the log keeps the content if it
    /// can, even if the file lacks the property.
    ///
    /// # Errors
    /// As [`Core::write_back`].
    pub(crate) async fn write_back_part(
        &self,
        ino: Ino,
        range: Range<u64>,
        kept: bool,
    ) -> Result<()> {
        let node = self.node(ino);
        if node.size_is_new.get() {
            return self.write_back_as(&node, Times::Kept, kept).await;
        }
        let pages = low32(range.start / BLOCK)..low32(range.end.div_ceil(BLOCK));
        let alone = node.writing.take(pages.clone()).await;
        let _content = node.content.read().await;
        self.write_held(Pass::new(&node, &alone, pages, &self.memory), kept).await
    }

    /// Writes the dirty pages of all files to the device.
    ///
    /// # Errors
    /// The first error; the other files are tried all the same.
    pub(crate) async fn write_back_all(&self) -> Result<()> {
        self.backlog.begin_pass();
        let dirty = self.nodes.dirty();
        let written = self.write_together(&dirty).await;
        let mut result = Ok(());
        for node in dirty.into_iter().filter(|node| !written.contains(&node.ino)) {
            let written = self.write_back(&node, Times::Written).await;
            if node.is_dirty() {
                self.backlog.note_dirty();
            }
            result = result.and(written);
        }
        self.forget_idle_nodes();
        result
    }

    /// Writes pages to the place that the mode and the file's property say: home or a transaction.
    async fn write_held(&self, mut pass: Pass<'_>, kept: bool) -> Result<()> {
        let kind = match self.keeps_content_of(pass.node, kept).await {
            Some(uid) => LoggedKind::DurableContent { uid },
            None if self.mode != Mode::Data => return self.write_pages(pass).await,
            None => LoggedKind::Content,
        };
        let mut done = Ok(());
        loop {
            let held = pass.room(&self.memory).await;
            let Some(batch) = pass.next_batch(&held) else { return done };
            let journalled = self.journal_pages(pass.node, &batch, kind).await;
            done = done.and(self.noted(pass.node, &versions(&batch), journalled));
            self.journal.check()?;
        }
    }

    /// Writes long runs of pages to the device, and puts short ones into transactions if the mode
    /// says so. Runs are mapped in the order of the file, while the next ones are under way.
    async fn write_pages(&self, mut pass: Pass<'_>) -> Result<()> {
        let node = pass.node;
        let mut under_way = VecDeque::new();
        let mut done = Ok(());
        let mut last = None;
        loop {
            while under_way.len() < UNDER_WAY && self.journal.is_sound() {
                // A pass with a batch in flight must not wait for memory: others may do the same.
                let held = match under_way.is_empty() {
                    true => Some(pass.room(&self.memory).await),
                    false => pass.room_now(&self.memory),
                };
                let Some(held) = held else { break };
                let Some(batch) = pass.next_batch(&held) else { break };
                let tried = versions(&batch);
                match self.send(node, batch, last, held).await {
                    Ok(sent) => {
                        last = sent.planned.last().map(|planned| planned.piece.extent);
                        under_way.push_back((tried, sent));
                    }
                    // Other batches of the file may be written all the same.
                    Err(error) => done = done.and(self.noted(node, &tried, Err(error))),
                }
            }
            let Some((tried, mut first)) = under_way.pop_front() else { break };
            // Awaited after a failure too: claims end only when no write to their blocks is under
            // way.
            let written = self.written([node], std::mem::take(&mut first.writes)).await;
            let arrived = match written {
                Err(error) if !is(Bug::Ext4FailedPagesClean) => Err(error),
                _ => self.map_sent(node, first).await,
            };
            done = done.and(self.noted(node, &tried, arrived));
        }
        self.journal.check().and(done)
    }

    /// Sends the writes of a batch to the device, except of pieces that go into transactions.
    async fn send(
        &self,
        node: &Node,
        batch: Vec<Held>,
        last: Option<Extent>,
        held: Permit,
    ) -> Result<Sent> {
        let mut planned = Vec::new();
        let pieces = self.plan(node, &batch, last).await?;
        let mut pages = batch.into_iter();
        for piece in pieces {
            let pages = pages.by_ref().take(piece.extent.blocks as usize).collect();
            let journalled = self.is_journalled(piece.extent.blocks);
            planned.push(Planned { piece, pages, journalled });
        }
        let long = || planned.iter().filter(|planned| !planned.journalled);
        if self.mode.journals_content() {
            for planned in long() {
                self.leave_journal(planned.piece.run()).await?;
            }
        }
        let writes = long().flat_map(|planned| self.write_piece(planned)).collect();
        Ok(Sent { planned, writes, _held: held })
    }

    /// Maps the pieces that the device has written, and puts the others into transactions.
    async fn map_sent(&self, node: &Node, sent: Sent) -> Result<()> {
        let (mut written, mut done) = (Vec::new(), Vec::new());
        for Planned { piece, pages, journalled } in sent.planned {
            if journalled {
                self.map_pieces(node, std::mem::take(&mut written)).await?;
                self.journal_piece(node, piece, pages.iter(), LoggedKind::Content).await?;
            } else {
                written.push(piece);
            }
            done.push(pages);
        }
        self.map_pieces(node, written).await?;
        done.iter().for_each(|pages| self.clean(node, pages));
        Ok(())
    }

    /// Whether a run of content goes into the journal now.
    pub(super) fn is_journalled(&self, blocks: u32) -> bool {
        match self.mode {
            Mode::Ordered | Mode::Lazy => false,
            Mode::Data => true,
            Mode::Runs => self.journal.sink.takes_content(blocks),
        }
    }

    /// Commits transactions that hold content of blocks that are about to be written past the
    /// journal: otherwise their older content would count as newer than that write. Nobody else
    /// puts content of this file into transactions meanwhile.
    pub(super) async fn leave_journal(&self, run: Run) -> Result<()> {
        while let Some(tid) = self.journal.holding(run).filter(|_| !is(Bug::NearHomeUnderLog)) {
            self.journal.commit(tid).await?;
        }
        if !is(Bug::NearCacheOverHome) {
            run.range().for_each(|block| self.cache.forget(BlockNo(block)));
        }
        Ok(())
    }

    fn write_piece(&self, planned: &Planned) -> Vec<Completion> {
        let mut at = planned.piece.extent.block;
        let write = |pages: &[Held]| -> Completion {
            let run = Run { start: at, blocks: manylogs_block::narrow(pages.len() as u64) };
            at = BlockNo(run.range().end);
            let mut payload = Payload::with_room_for(pages.len());
            pages.iter().for_each(|(_, bytes, _)| payload.append(Payload::bytes(bytes.clone())));
            let extent = run.sectors();
            self.device.submit(Request::Write { extent, payload, fua: false, hint: Hint::None })
        };
        planned.pages.chunks(REQUEST).map(write).collect()
    }

    /// Waits until the device has answered the writes, which are data of these files.
    pub(super) async fn written<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n Node>,
        writes: Vec<Completion>,
    ) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        if is(Bug::Ext4DataAfterMetadata) {
            self.runtime.spawn(async move { drop(all_done(writes).await) });
            return Ok(());
        }
        all_done(writes).await?;
        // A flush from here on covers the data; an earlier one may not.
        nodes.into_iter().for_each(|node| node.written.set(node.written.get() + 1));
        self.journal.note_data();
        Ok(())
    }

    /// Maps new blocks, and marks unwritten ones as written.
    pub(super) async fn map_pieces(&self, node: &Node, pieces: Vec<Piece>) -> Result<()> {
        let mut rest: Vec<Piece> = pieces;
        rest.retain(Piece::needs_mapping);
        while !rest.is_empty() {
            let now = rest.drain(..rest.len().min(PIECES)).collect::<Vec<_>>();
            let mut handle = self.begin(3 * MAP_CREDITS * PIECES).await?;
            let mut raw = self.inode(node.ino).await?;
            let extents: Vec<Extent> = now.iter().map(|piece| piece.extent).collect();
            for piece in now {
                self.map_piece(&mut handle, node, &mut raw, piece).await?;
            }
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
            self.note_change_of(node, handle.finish());
            extents.into_iter().for_each(|extent| self.keep_promises(node, extent));
        }
        Ok(())
    }

    /// Maps the blocks of a piece, unless they are mapped. The caller writes the inode.
    pub(super) async fn map_piece(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        raw: &mut RawInode,
        piece: Piece,
    ) -> Result<()> {
        let extent = Extent { written: !piece.zeroes, ..piece.extent };
        let is_new = piece.claim.is_some();
        let promised = if is_new { u64::from(extent.blocks) } else { 0 };
        let expected = raw.sectors() + promised * BLOCK_SECTORS;
        if let Some(claim) = piece.claim {
            raw.set_sectors(raw.sectors() + u64::from(extent.blocks) * BLOCK_SECTORS);
            self.use_claim(handle, claim).await?;
        } else if piece.unwritten && !piece.zeroes {
            let range = extent.file.0.into()..extent.end();
            self.remove_extents(handle, node.ino, raw, range, Unmapped::Kept).await?;
        } else if !piece.unwritten {
            return Ok(());
        }
        if is_new || extent.written {
            self.insert_extent(handle, node.ino, raw, extent).await?;
        }
        // The map itself may have taken or freed blocks: the file's block count is another than
        // expected.
        if raw.sectors() != expected && !is(Bug::MlfsBlocksUntold) {
            self.tell(node.ino, Changed::Attributes);
        }
        // The inode's size grows with the mapped data, so that no data lies behind the end.
        let behind = extent.end() * BLOCK;
        let size = node.size.get().unwrap_or(0).min(behind).max(raw.size());
        raw.set_size(size);
        Ok(())
    }

    /// Ends the promises of pages that have their blocks now.
    pub(super) fn keep_promises(&self, node: &Node, extent: Extent) {
        let mut pages = node.pages.borrow_mut();
        let pages = pages.range_mut(extent.file.0..extent.file.0 + extent.blocks);
        let kept = pages.map(|(_, page)| u64::from(std::mem::take(&mut page.reserved))).sum();
        self.space.unreserve(kept);
    }

    /// Drops the pages of a batch that was written, except those that changed meanwhile.
    pub(super) fn clean(&self, node: &Node, batch: &[Held]) {
        let mut pages = node.pages.borrow_mut();
        for (number, _, version) in batch {
            let Some(page) = pages.get_mut(number) else { continue };
            if page.version == *version {
                pages.remove(number);
                self.backlog.remove(1);
            }
        }
    }

    /// Writes size and times into the inode, if they are newer.
    pub(super) async fn put_size(&self, node: &Node, size: u64) -> Result<()> {
        if !node.size_is_new.get() && node.written_at.get().is_none() {
            return Ok(());
        }
        let mut handle = self.begin(4).await?;
        let mut raw = self.inode(node.ino).await?;
        // Data written meanwhile may be mapped already.
        let size = size.max(raw.size());
        raw.set_size(if node.size_is_new.get() { size } else { raw.size() });
        if let Some(at) = node.written_at.get() {
            raw.set_time(TimeField::Modify, at);
            // The attributes may have changed since.
            raw.set_time(TimeField::Change, raw.time(TimeField::Change).max(at));
        }
        self.put_inode(&mut handle, node.ino, &mut raw).await?;
        self.note_change_of(node, handle.finish());
        if node.size.get() == Some(size) {
            node.size_is_new.set(false);
        }
        if node.pages.borrow().is_empty() {
            node.written_at.set(None);
        }
        Ok(())
    }
}
