//! Content that goes through the journal: [`Mode::Data`].

use bytes::Bytes;

use super::writeback::Held;
use crate::core::{Core, Mode};
use crate::error::Result;
use crate::extents::MAP_CREDITS;
use crate::inode::Node;
use crate::units::{BlockNo, Run};

/// Pages of one handle: the smallest journal's largest transaction holds them, and what maps them.
const PAGES: usize = 128;

impl Core {
    /// Puts pages into transactions, with the metadata that maps them.
    pub(super) async fn journal_pages(&self, node: &Node, batch: &[Held]) -> Result<()> {
        for pages in batch.chunks(PAGES) {
            let mut contents = pages.iter();
            for piece in self.plan(node, pages).await? {
                let run = Run { start: piece.extent.block, blocks: piece.extent.blocks };
                let mut handle = self.begin(3 * MAP_CREDITS + run.blocks as usize).await?;
                let mut raw = self.inode(node.ino).await?;
                self.map_piece(&mut handle, node, &mut raw, piece).await?;
                self.put_inode(&mut handle, node.ino, &mut raw).await?;
                // Nothing fails from here on.
                for (block, (_, bytes, _)) in run.range().zip(&mut contents) {
                    let buffer = handle.create(BlockNo(block));
                    handle.change(&buffer, |block| block.copy_from_slice(bytes));
                }
                node.tid.set(Some(handle.finish()));
            }
            self.clean(node, pages);
        }
        Ok(())
    }

    /// Those blocks of a run whose content is not on the device yet, counted from its beginning.
    pub(super) fn newer_than_device(&self, run: Run) -> Vec<(u32, Bytes)> {
        let bug = manylogs_plant::is(manylogs_plant::Bug::Ext4JournalledContentUnread);
        if self.mode == Mode::Ordered || bug {
            return Vec::new();
        }
        let newest = |block| {
            let cached = self.cache.get(block).map(|buffer| buffer.bytes());
            cached.or_else(|| self.journal.newest(block))
        };
        let blocks = (0..).zip(run.range().map(BlockNo));
        blocks.filter_map(|(number, block)| Some((number, newest(block)?))).collect()
    }
}
