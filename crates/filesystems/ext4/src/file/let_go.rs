//! Writing home the content that the log keeps of a file.

use manylogs_block::{Hint, Request};
use manylogs_plant::{Bug, is};

use crate::core::Core;
use crate::error::Result;
use crate::extents::Mapping;
use crate::inode::Node;
use crate::ondisk::bytes::low32;
use crate::ondisk::inode::FileKind;
use crate::units::{BLOCK, BlockNo, FileBlock, Run};

/// Blocks of one request: 1 MiB.
const REQUEST: u32 = 256;

impl Core {
    /// Writes the content that the log keeps of a file anew, without the property: long runs go
    /// home, short ones are logged so that the next pass brings them home. The content is the same
    /// at every moment, also after a crash. The caller holds all of [`Node::writing`], and
    /// [`Node::content`] shared, so that nobody writes to the blocks or takes them away.
    ///
    /// # Errors
    /// Those of the device: content that was not written is still kept.
    pub(crate) async fn let_go(&self, node: &Node) -> Result<()> {
        if is(Bug::DurableClearedStays) || !self.keeps() {
            return Ok(());
        }
        let mut at = 0;
        while let Some((run, end)) = self.mapped_from(node, at).await? {
            at = end;
            if !is(Bug::DurableClearedUnderLog) {
                // Content in a transaction that is not durable is not kept yet: commit it first.
                self.leave_journal(run).await?;
            }
            for kept in self.journal.sink.kept(run) {
                for start in kept.range().step_by(REQUEST as usize) {
                    let blocks = REQUEST.min(low32(kept.range().end - start));
                    self.write_anew(node, Run { start: BlockNo(start), blocks }).await?;
                }
            }
        }
        Ok(())
    }

    /// The first run of blocks that a file has from page `at` on, and the page behind it.
    async fn mapped_from(&self, node: &Node, mut at: u32) -> Result<Option<(Run, u32)>> {
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(node.ino).await?;
        if raw.kind() != Some(FileKind::File) {
            return Ok(None);
        }
        let end = low32(node.size_of(&raw).div_ceil(BLOCK));
        while at < end {
            match self.map(node.ino, &raw, FileBlock(at)).await? {
                Mapping::Mapped(extent) => {
                    let blocks = extent.blocks.min(end - at);
                    return Ok(Some((Run { start: extent.block, blocks }, at + blocks)));
                }
                Mapping::Hole(hole) => at = at.saturating_add(hole),
            }
        }
        Ok(None)
    }

    async fn write_anew(&self, node: &Node, run: Run) -> Result<()> {
        let extent = run.sectors();
        let payload = self.device.submit(Request::Read { extent }).await?;
        let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
        self.device.submit(write).await?;
        node.written.set(node.written.get() + 1);
        self.journal.note_data();
        Ok(())
    }
}
