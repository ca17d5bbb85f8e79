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
use crate::journal::{LoggedKind, Newest};
use crate::units::{BlockNo, Run};

/// Pages of one handle: the smallest journal's largest transaction holds them, and what maps them.
const PAGES: usize = 128;

impl Core {
    /// Puts pages into transactions, with the metadata that maps them.
    ///
    /// They may take several. Each maps no more than what it has the content of, so that a crash
    /// between two leaves a beginning of what was written, and the inode knows the last one.
    pub(super) async fn journal_pages(
        &self,
        node: &Node,
        batch: &[Held],
        kind: LoggedKind,
    ) -> Result<()> {
        for pages in batch.chunks(PAGES) {
            let mut contents = pages.iter();
            for piece in self.plan(node, pages, None).await? {
                let held = contents.by_ref().take(piece.extent.blocks as usize);
                self.journal_piece(node, piece, held, kind).await?;
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
        kind: LoggedKind,
    ) -> Result<()> {
        let (extent, run) = (piece.extent, piece.run());
        let mapped = !piece.needs_mapping();
        let credits = if mapped { 0 } else { 3 * MAP_CREDITS };
        let mut handle = self.begin(credits + run.blocks as usize).await?;
        if !mapped && !is(Bug::NearUnwrittenNotMapped) {
            let mut raw = self.inode(node.ino).await?;
            self.map_piece(&mut handle, node, &mut raw, piece).await?;
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
        }
        if is(Bug::DurableMapsAhead) && kind == LoggedKind::DurableContent {
            let tid = handle.finish();
            self.journal.commit(tid).await?;
            handle = self.begin(credits + run.blocks as usize).await?;
        }
        // Nothing fails from here on.
        for (block, (_, bytes, _)) in run.range().zip(pages) {
            handle.log_content(BlockNo(block), bytes, kind);
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
