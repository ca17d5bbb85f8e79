//! Bringing pages to the device: data first, and what refers to it after.
//!
//! Pages that have no block get one that is claimed, not marked. When the device has answered
//! that the data is written, a handle marks the blocks and maps them. So a transaction never
//! refers to data that is not written, and never waits for data.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Completion, Hint, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use crate::alloc::Claim;
use crate::core::{Core, Mode};
use crate::error::{Error, Result};
use crate::extents::{MAP_CREDITS, Mapping, Unmapped};
use crate::inode::Node;
use crate::journal::Handle;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{RawInode, TimeField};
use crate::units::{BLOCK, BLOCK_SECTORS, BlockNo, FileBlock, Run};

/// Pages that are brought to the device at once: 8 MiB.
const BATCH: usize = 2048;
/// Pieces that one handle maps: the smallest journal has room for more than their credits.
const PIECES: usize = 2;

/// What becomes of a file's times when its pages are brought to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// The inode gets them.
    Written,
    /// They wait for the next time, unless the inode gets another size.
    Kept,
}

/// Pages as they were when writing them began.
struct Snapshot {
    pages: Vec<Held>,
    /// The size that the file has when all pages are written.
    size: u64,
}

/// A page: its number, its content, and the version that this is.
pub(super) type Held = (u32, Bytes, u64);

/// Consecutive pages, and the consecutive blocks that they go to.
pub(super) struct Piece {
    pub(super) extent: Extent,
    /// The blocks are new.
    claim: Option<Claim>,
    /// The blocks are mapped, and read as zeroes so far.
    unwritten: bool,
}

/// A piece, and its pages.
type Planned<'p> = (Piece, &'p [Held]);

impl Piece {
    /// Whether the file does not have these blocks yet, or not with content.
    pub(super) fn needs_mapping(&self) -> bool {
        self.claim.is_some() || self.unwritten
    }
}

impl Core {
    /// Brings all pages of a file to the device, and its size and times into a transaction.
    ///
    /// # Errors
    /// Those of the device: the pages stay dirty.
    pub(crate) async fn write_back(&self, node: &Rc<Node>, times: Times) -> Result<()> {
        let _alone = node.writing.take().await;
        let _content = node.content.read().await;
        let snapshot = Snapshot {
            pages: {
                let pages = node.pages.borrow();
                pages.iter().map(|(n, page)| (*n, page.bytes.clone(), page.version)).collect()
            },
            size: node.size.get().unwrap_or(0),
        };
        for batch in snapshot.pages.chunks(BATCH) {
            match self.mode {
                Mode::Data => self.journal_pages(node, batch).await?,
                Mode::Ordered | Mode::Runs => self.write_pages(node, batch).await?,
            }
        }
        if times == Times::Kept && !node.size_is_new.get() {
            return Ok(());
        }
        self.put_size(node, snapshot.size).await
    }

    /// Brings all files' pages to the device.
    ///
    /// # Errors
    /// The first; others are tried all the same.
    pub(crate) async fn write_back_all(&self) -> Result<()> {
        self.may_be_dirty.set(false);
        let dirty = self.dirty_nodes();
        let mut result = Ok(());
        for node in dirty {
            let written = self.write_back(&node, Times::Written).await;
            if node.is_dirty() {
                self.may_be_dirty.set(true);
            }
            result = result.and(written);
        }
        self.forget_idle_nodes();
        result
    }

    fn dirty_nodes(&self) -> Vec<Rc<Node>> {
        self.nodes.borrow().values().filter(|node| node.is_dirty()).cloned().collect()
    }

    /// Where pages go.
    pub(super) async fn plan(&self, node: &Node, batch: &[Held]) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut rest = batch;
        while let Some((first, ..)) = rest.first() {
            let consecutive = rest.iter().zip(*first..).take_while(|((page, ..), n)| page == n);
            let pages: u32 = manylogs_block::narrow(consecutive.count() as u64);
            let piece = self.place(node, *first, pages).await?;
            rest = &rest[piece.extent.blocks as usize..];
            pieces.push(piece);
        }
        Ok(pieces)
    }

    async fn place(&self, node: &Node, page: u32, pages: u32) -> Result<Piece> {
        let file = FileBlock(page);
        loop {
            let held_back = {
                let _tree = self.journal.tree.read().await;
                let raw = self.inode(node.ino).await?;
                match self.map(node.ino, &raw, file).await? {
                    Mapping::Mapped(extent) => {
                        let extent = Extent { blocks: extent.blocks.min(pages), ..extent };
                        let unwritten = !extent.written;
                        return Ok(Piece { extent, claim: None, unwritten });
                    }
                    Mapping::Hole(hole) => {
                        let most = hole.min(pages).min(Self::insert_most(&raw, file));
                        let goal = self.goal_at(node, &raw, file).await?;
                        match self.claim(goal, most).await {
                            Ok(claim) => return Ok(new_piece(file, claim)),
                            Err(Error::NoSpace) if self.space.holds_back() => {
                                self.space.changed.wait()
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
            };
            // What was freed can be used again when that is durable.
            self.journal.commit(self.journal.running()).await?;
            if self.space.holds_back() {
                held_back.await;
            }
        }
    }

    /// Behind the block before, if there is one.
    async fn goal_at(&self, node: &Node, raw: &RawInode, file: FileBlock) -> Result<BlockNo> {
        let Some(before) = file.0.checked_sub(1) else { return Ok(self.goal(node.ino)) };
        Ok(match self.map(node.ino, raw, FileBlock(before)).await? {
            Mapping::Mapped(extent) => BlockNo(extent.block.0 + 1),
            Mapping::Hole(_) => self.goal(node.ino),
        })
    }

    /// Brings pages to the device in long runs, and in short ones into transactions, as the mode
    /// says. Runs are mapped in the order of the file.
    async fn write_pages(&self, node: &Node, batch: &[Held]) -> Result<()> {
        let (mut rest, mut planned) = (batch, Vec::new());
        for piece in self.plan(node, batch).await? {
            let (own, others) = rest.split_at(piece.extent.blocks as usize);
            let long = !self.is_journalled(piece.extent.blocks);
            planned.push(((piece, own), long));
            rest = others;
        }
        let long = planned.iter().filter(|(_, long)| *long).map(|(planned, _)| planned);
        let long: Vec<&Planned<'_>> = long.collect();
        if self.mode.journals_content() {
            self.leave_journal(&long).await?;
        }
        if !long.is_empty() {
            self.send(node, &long).await?;
        }
        let mut sent = Vec::new();
        for ((piece, pages), long) in planned {
            if long {
                sent.push(piece);
                continue;
            }
            self.map_pieces(node, std::mem::take(&mut sent)).await?;
            self.journal_piece(node, piece, pages.iter()).await?;
        }
        self.map_pieces(node, sent).await?;
        self.clean(node, batch);
        Ok(())
    }

    /// Whether a run of content goes into the journal now.
    fn is_journalled(&self, blocks: u32) -> bool {
        match self.mode {
            Mode::Ordered => false,
            Mode::Data => true,
            Mode::Runs => self.journal.sink.takes_content(blocks),
        }
    }

    /// Sees to it that no transaction to come has content of blocks that are about to be written
    /// past the journal: it would count as newer than what is written. Nobody else puts content of
    /// this file into transactions meanwhile.
    async fn leave_journal(&self, long: &[&Planned<'_>]) -> Result<()> {
        for (piece, _) in long {
            let run = Run { start: piece.extent.block, blocks: piece.extent.blocks };
            while let Some(tid) = self.journal.holding(run).filter(|_| !is(Bug::NearHomeUnderLog)) {
                self.journal.commit(tid).await?;
            }
            if !is(Bug::NearCacheOverHome) {
                run.range().for_each(|block| self.cache.forget(BlockNo(block)));
            }
        }
        Ok(())
    }

    async fn send(&self, node: &Node, pieces: &[&Planned<'_>]) -> Result<()> {
        let write = |(piece, pages): &&Planned<'_>| -> Completion {
            let extent = Run { start: piece.extent.block, blocks: piece.extent.blocks }.sectors();
            let mut payload = Payload::with_room_for(pages.len());
            pages.iter().for_each(|(_, bytes, _)| payload.append(Payload::bytes(bytes.clone())));
            self.device.submit(Request::Write { extent, payload, fua: false, hint: Hint::None })
        };
        let writes: Vec<Completion> = pieces.iter().map(write).collect();
        node.sent.set(node.sent.get() + 1);
        if is(Bug::Ext4DataAfterMetadata) {
            self.runtime.spawn(async move { drop(all_done(writes).await) });
            return Ok(());
        }
        all_done(writes).await?;
        self.journal.note_data();
        Ok(())
    }

    /// Maps new blocks, and those that held no data until now.
    async fn map_pieces(&self, node: &Node, pieces: Vec<Piece>) -> Result<()> {
        let mut rest: Vec<Piece> = pieces;
        rest.retain(Piece::needs_mapping);
        while !rest.is_empty() {
            let now = rest.drain(..rest.len().min(PIECES)).collect::<Vec<_>>();
            let mut handle = self.begin(3 * MAP_CREDITS * PIECES).await?;
            let mut raw = self.inode(node.ino).await?;
            for piece in now {
                self.map_piece(&mut handle, node, &mut raw, piece).await?;
            }
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
            node.tid.set(Some(handle.finish()));
        }
        Ok(())
    }

    /// Maps the blocks of a piece, if they are not. The caller writes the inode.
    pub(super) async fn map_piece(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        raw: &mut RawInode,
        piece: Piece,
    ) -> Result<()> {
        let extent = Extent { written: true, ..piece.extent };
        if let Some(claim) = piece.claim {
            raw.set_sectors(raw.sectors() + u64::from(extent.blocks) * BLOCK_SECTORS);
            self.use_claim(handle, claim).await?;
        } else if piece.unwritten {
            let range = extent.file.0.into()..extent.end();
            self.remove_extents(handle, node.ino, raw, range, Unmapped::Kept).await?;
        } else {
            return Ok(());
        }
        self.insert_extent(handle, node.ino, raw, extent).await?;
        // Data is never behind the end: the inode's size follows it.
        let behind = extent.end() * BLOCK;
        let size = node.size.get().unwrap_or(0).min(behind).max(raw.size());
        raw.set_size(size);
        Ok(())
    }

    /// Pages that did not change meanwhile are on the device.
    pub(super) fn clean(&self, node: &Node, batch: &[Held]) {
        let mut pages = node.pages.borrow_mut();
        for (number, _, version) in batch {
            let Some(page) = pages.get_mut(number) else { continue };
            self.space.unreserve(u64::from(std::mem::take(&mut page.reserved)));
            if page.version == *version {
                pages.remove(number);
                self.dirty_pages.set(self.dirty_pages.get() - 1);
            }
        }
    }

    /// Writes size and times into the inode, if they are newer.
    async fn put_size(&self, node: &Node, size: u64) -> Result<()> {
        if !node.size_is_new.get() && node.written_at.get().is_none() {
            return Ok(());
        }
        let mut handle = self.begin(4).await?;
        let mut raw = self.inode(node.ino).await?;
        raw.set_size(if node.size_is_new.get() { size } else { raw.size() });
        if let Some(at) = node.written_at.get() {
            raw.set_time(TimeField::Modify, at);
            // The attributes may have changed since.
            raw.set_time(TimeField::Change, raw.time(TimeField::Change).max(at));
        }
        self.put_inode(&mut handle, node.ino, &mut raw).await?;
        node.tid.set(Some(handle.finish()));
        if node.size.get() == Some(size) {
            node.size_is_new.set(false);
        }
        if node.pages.borrow().is_empty() {
            node.written_at.set(None);
        }
        Ok(())
    }
}

fn new_piece(file: FileBlock, claim: Claim) -> Piece {
    let Run { start: block, blocks } = claim.run();
    let extent = Extent { file, block, blocks, written: true };
    Piece { extent, claim: Some(claim), unwritten: false }
}
