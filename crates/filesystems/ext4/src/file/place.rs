//! The places of pages on the device: blocks that the file has, or that are claimed for it.

use std::ops::Range;

use manylogs_block::narrow;

use super::writeback::Held;
use crate::alloc::{Claim, ClaimedFor};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extents::Mapping;
use crate::inode::Node;
use crate::metadata::Metadata;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::RawInode;
use crate::units::{BlockNo, FileBlock, Run};

/// Consecutive pages, and the consecutive blocks that they go to.
pub(super) struct Piece {
    pub(super) extent: Extent,
    /// The claim of the blocks, if they are new.
    pub(super) claim: Option<Claim>,
    /// Whether the blocks are mapped, but unwritten so far.
    pub(super) unwritten: bool,
    /// Whether they stay unwritten and read as zeroes.
    pub(super) zeroes: bool,
}

impl Piece {
    /// The blocks.
    pub(super) const fn run(&self) -> Run {
        Run { start: self.extent.block, blocks: self.extent.blocks }
    }

    /// Whether the file does not have these blocks yet, or not with content.
    pub(super) fn needs_mapping(&self) -> bool {
        self.claim.is_some() || self.unwritten
    }
}

impl Core {
    /// Plans the places of pages: preferably behind the extent `last`, which was planned before and
    /// may not be mapped yet.
    pub(super) async fn plan(
        &self,
        node: &Node,
        batch: &[Held],
        mut last: Option<Extent>,
    ) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut rest = batch;
        while let Some((first, ..)) = rest.first() {
            let consecutive = rest.iter().zip(*first..).take_while(|((page, ..), n)| page == n);
            let pages: u32 = narrow(consecutive.count() as u64);
            let piece = self.place(node, *first..*first + pages, last).await?;
            last = Some(piece.extent);
            rest = &rest[piece.extent.blocks as usize..];
            pieces.push(piece);
        }
        Ok(pieces)
    }

    async fn place(&self, node: &Node, pages: Range<u32>, last: Option<Extent>) -> Result<Piece> {
        let (file, pages) = (FileBlock(pages.start), pages.end - pages.start);
        loop {
            {
                let _tree = self.journal.tree.read().await;
                let raw = self.inode(node.ino).await?;
                match self.map(node.ino, &raw, file).await? {
                    Mapping::Mapped(extent) => {
                        let extent = Extent { blocks: extent.blocks.min(pages), ..extent };
                        let unwritten = !extent.written;
                        return Ok(Piece { extent, claim: None, unwritten, zeroes: false });
                    }
                    Mapping::Hole(hole) => {
                        let most = hole.min(pages).min(Metadata::insert_most(&raw, file));
                        let goal = match last.filter(|last| last.end() == u64::from(file.0)) {
                            Some(last) => BlockNo(last.block.0 + u64::from(last.blocks)),
                            None => self.goal_at(node, &raw, file).await?,
                        };
                        match self.claim(goal, most, ClaimedFor::Promised).await {
                            Ok(claim) => return Ok(new_piece(file, claim)),
                            Err(Error::NoSpace) if self.space.holds_back() => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
            self.free_held_back().await?;
        }
    }

    /// Waits until freed blocks can be used again, i.e. until the transaction that freed them is
    /// durable. The caller found some held back, and holds no lock that a commit needs.
    pub(crate) async fn free_held_back(&self) -> Result<()> {
        let held_back = self.space.changed.wait();
        self.journal.commit(self.journal.running()).await?;
        if self.space.holds_back() {
            held_back.await;
        }
        Ok(())
    }

    /// The goal: behind the file's block before this one, if there is one.
    async fn goal_at(&self, node: &Node, raw: &RawInode, file: FileBlock) -> Result<BlockNo> {
        let Some(before) = file.0.checked_sub(1) else { return Ok(self.goal(node.ino)) };
        Ok(match self.map(node.ino, raw, FileBlock(before)).await? {
            Mapping::Mapped(extent) => BlockNo(extent.block.0 + 1),
            Mapping::Hole(_) => self.goal(node.ino),
        })
    }
}

fn new_piece(file: FileBlock, claim: Claim) -> Piece {
    let Run { start: block, blocks } = claim.run();
    let extent = Extent { file, block, blocks, written: true };
    Piece { extent, claim: Some(claim), unwritten: false, zeroes: false }
}
