//! Content that goes through the journal: [`crate::Mode::Data`], and short runs in
//! [`crate::Mode::Runs`].

use bytes::Bytes;

use manylogs_plant::{Bug, is};

use super::place::Piece;
use super::writeback::Held;
use crate::core::Core;
use crate::error::Result;
use crate::extents::MAP_CREDITS;
use crate::inode::Node;
use crate::journal::Newest;
use crate::units::{BlockNo, Run};

/// Pages of one handle: the smallest journal's largest transaction holds them, and what maps them.
const PAGES: usize = 128;

impl Core {
    /// Puts pages into transactions, with the metadata that maps them.
    pub(super) async fn journal_pages(&self, node: &Node, batch: &[Held]) -> Result<()> {
        for pages in batch.chunks(PAGES) {
            let mut contents = pages.iter();
            for piece in self.plan(node, pages, None).await? {
                let held = contents.by_ref().take(piece.extent.blocks as usize);
                self.journal_piece(node, piece, held).await?;
            }
            self.clean(node, pages);
        }
        Ok(())
    }

    /// Puts the pages of a piece into the running transaction. What is written over blocks that
    /// the file has changes no metadata.
    pub(super) async fn journal_piece<'p>(
        &self,
        node: &Node,
        piece: Piece,
        pages: impl Iterator<Item = &'p Held>,
    ) -> Result<()> {
        let extent = piece.extent;
        let run = Run { start: extent.block, blocks: extent.blocks };
        let mapped = !piece.needs_mapping();
        let credits = if mapped { 0 } else { 3 * MAP_CREDITS };
        let mut handle = self.begin(credits + run.blocks as usize).await?;
        if !mapped && !is(Bug::NearUnwrittenNotMapped) {
            let mut raw = self.inode(node.ino).await?;
            self.map_piece(&mut handle, node, &mut raw, piece).await?;
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
        }
        // Nothing fails from here on.
        for (block, (_, bytes, _)) in run.range().zip(pages) {
            handle.log_content(BlockNo(block), bytes);
        }
        self.note_change_of(node, handle.finish());
        self.keep_promises(node, extent);
        Ok(())
    }

    /// Those blocks of a run whose content is not on the device yet, counted from its beginning.
    pub(super) fn newer_than_device(&self, run: Run) -> Vec<(u32, Bytes)> {
        if !self.mode.journals_content() || is(Bug::Ext4JournalledContentUnread) {
            return Vec::new();
        }
        let newest = |block| {
            let cached = self.cache.get(block).map(|buffer| buffer.bytes());
            cached.or_else(|| match self.journal.newest(block)? {
                Newest::Bytes(bytes) => Some(bytes),
                Newest::InLog(_) => unreachable!("where it has content it keeps all in memory"),
            })
        };
        let blocks = (0..).zip(run.range().map(BlockNo));
        blocks.filter_map(|(number, block)| Some((number, newest(block)?))).collect()
    }
}
