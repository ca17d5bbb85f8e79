//! Use of blocks and inodes.

use super::Ext4;

/// Use of blocks and inodes, as the kernel's ext4 counts it. The logs of an adopted file system
/// count as in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of 4096 bytes that files may have, in use or not.
    pub blocks: u64,
    /// Other blocks: superblocks, descriptors, bitmaps, tables of inodes, and the journal.
    pub overhead_blocks: u64,
    /// Those of [`Usage::blocks`] that are free and not promised to dirty data.
    pub free_blocks: u64,
    /// Those of [`Usage::free_blocks`] that any user may take.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Those of them that are free.
    pub free_inodes: u64,
}

impl Ext4 {
    /// The use of blocks and inodes now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (core, space) = (&self.core, &self.core.space);
        Usage {
            blocks: core.geometry.blocks - core.geometry.overhead_blocks,
            overhead_blocks: core.geometry.overhead_blocks,
            free_blocks: space.free_blocks().saturating_sub(space.reserved()),
            available_blocks: space.unpromised().saturating_sub(core.geometry.reserved_blocks),
            inodes: core.geometry.inodes.into(),
            free_inodes: space.free_inodes(),
        }
    }
}
