//! Unmapping blocks.

use manylogs_plant::{Bug, is};

use super::{Level, MAP_CREDITS, room};
use crate::error::{Corruption, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::extent::Entries;
use crate::ondisk::inode::{RawInode, flags};
use crate::units::{BLOCK_SECTORS, Ino, Run};

/// What happens to unmapped blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmapped {
    /// They are freed. With `metadata` they may be in the cache.
    Freed { metadata: bool },
    /// They stay in use: the caller maps them again.
    Kept,
}

impl Metadata {
    /// Unmaps the file's blocks in `range`, the last ones first, as far as the handle's credits go.
    /// True if all are unmapped. The caller writes the inode in both cases.
    pub(crate) async fn remove_extents(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        range: std::ops::Range<u64>,
        then: Unmapped,
    ) -> Result<bool> {
        if !raw.has_flag(flags::EXTENTS) {
            return self.remove_pointers(handle, ino, raw, range, then).await;
        }
        while !range.is_empty() {
            if handle.credits_left() < 2 * MAP_CREDITS {
                return Ok(false);
            }
            if !self.remove_last(handle, ino, raw, &range, then).await? {
                break;
            }
        }
        Ok(true)
    }

    /// Unmaps the part of `range` that the last extent there maps; false if there is none.
    async fn remove_last(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        range: &std::ops::Range<u64>,
        then: Unmapped,
    ) -> Result<bool> {
        let mut path = self.path(ino, raw, range.end - 1).await?;
        let leaf = path.len() - 1;
        let Entries::Leaf(extents) = &mut path[leaf].node else {
            return Err(Corruption::inode(ino, "its tree has no leaf").into());
        };
        let at = extents.partition_point(|extent| u64::from(extent.file.0) < range.end);
        let Some(at) = at.checked_sub(1) else { return Ok(false) };
        let whole = extents[at];
        let Some(gone) = whole.part(range.start, range.end) else { return Ok(false) };
        let left = whole.part(0, gone.file.0.into());
        let right = whole.part(gone.end(), u64::MAX);
        match (left, right) {
            (Some(left), _) => extents[at] = left,
            (None, Some(right)) => extents[at] = right,
            (None, None) => drop(extents.remove(at)),
        }
        if let Unmapped::Freed { metadata } = then {
            let run = Run { start: gone.block, blocks: gone.blocks };
            self.free_run(handle, ino, raw, run, metadata).await?;
        }
        self.shrink(handle, ino, raw, &mut path).await?;
        if let (Some(_), Some(right)) = (left, right)
            && !is(Bug::Ext4PieceLost)
        {
            self.insert_extent(handle, ino, raw, right).await?;
        }
        Ok(true)
    }

    /// Frees blocks of an inode and subtracts them from its count of sectors. With `metadata` they
    /// may be in the cache. The caller writes the inode.
    pub(crate) async fn free_run(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        run: Run,
        metadata: bool,
    ) -> Result<()> {
        self.free(handle, ino, run, metadata).await?;
        let less = raw.sectors().checked_sub(u64::from(run.blocks) * BLOCK_SECTORS);
        let bad = || Corruption::inode(ino, "it has more blocks than it says");
        raw.set_sectors(less.ok_or_else(bad)?);
        Ok(())
    }

    /// Writes the leaf of `path`, from which an entry was taken. Nodes without entries are freed.
    async fn shrink(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        path: &mut Vec<Level>,
    ) -> Result<()> {
        while path.len() > 1 && path[path.len() - 1].node.len() == 0 {
            let Some(Level { buffer: Some(buffer), .. }) = path.pop() else { break };
            let run = Run { start: buffer.block(), blocks: 1 };
            drop(buffer);
            self.free_run(handle, ino, raw, run, true).await?;
            let last = path.len() - 1;
            let parent = &mut path[last];
            if let Entries::Inner(_, children) = &mut parent.node {
                children.remove(parent.child);
                // The other children have their right keys already.
                parent.child = 0;
            }
        }
        if let [root] = path.as_mut_slice()
            && root.node.len() == 0
        {
            root.node = Entries::Leaf(Vec::new());
        }
        self.lift(handle, ino, raw, path).await?;
        let Some(last) = path.last() else { return Ok(()) };
        self.put_node(handle, ino, raw, last);
        self.put_keys(handle, ino, raw, path);
        Ok(())
    }

    /// If the root's only child is a leaf that fits into the root, the root becomes that leaf.
    async fn lift(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        path: &mut Vec<Level>,
    ) -> Result<()> {
        let [root, leaf] = path.as_slice() else { return Ok(()) };
        let (Some(buffer), true) = (&leaf.buffer, root.node.len() == 1) else { return Ok(()) };
        if leaf.node.len() > room(root) {
            return Ok(());
        }
        let run = Run { start: buffer.block(), blocks: 1 };
        if let Some(leaf) = path.pop() {
            path[0].node = leaf.node;
        }
        self.free_run(handle, ino, raw, run, true).await
    }
}
