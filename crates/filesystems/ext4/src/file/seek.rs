//! Where a file holds data, and where it does not.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::extents::Mapping;
use crate::inode::Node;
use crate::ondisk::bytes::low32;
use crate::units::{BLOCK, FileBlock, Ino};

/// What a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Data that was written.
    Data,
    /// A part that was never written and reads as zeroes. The end of a file counts as a hole.
    Hole,
}

impl Core {
    /// The first place from `offset` on that is data, or a hole.
    pub(crate) async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let node = self.node(ino);
        let _content = node.content.read().await;
        let size = self.file(&node).await?;
        if offset >= size {
            return Err(Error::BeyondEnd);
        }
        let (mut at, end) = (low32(offset / BLOCK), low32(size.div_ceil(BLOCK)));
        while at < end {
            let (found, blocks) = self.found_at(&node, at).await?;
            if found == what {
                return Ok(offset.max(u64::from(at) * BLOCK));
            }
            at += blocks.min(end - at);
        }
        if what == Seek::Hole { Ok(size) } else { Err(Error::BeyondEnd) }
    }

    /// Whether block `at` is data or a hole, and how many blocks from there on are known to be the
    /// same.
    async fn found_at(&self, node: &Node, at: u32) -> Result<(Seek, u32)> {
        let dirty = node.pages.borrow().range(at..).next().map(|(page, _)| *page);
        if dirty == Some(at) {
            return Ok((Seek::Data, 1));
        }
        let until_dirty = dirty.map_or(u32::MAX, |page| page - at);
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(node.ino).await?;
        Ok(match self.map(node.ino, &raw, FileBlock(at)).await? {
            Mapping::Mapped(extent) if extent.written => (Seek::Data, extent.blocks),
            Mapping::Mapped(extent) => (Seek::Hole, extent.blocks.min(until_dirty)),
            Mapping::Hole(blocks) => (Seek::Hole, blocks.min(until_dirty)),
        })
    }
}
