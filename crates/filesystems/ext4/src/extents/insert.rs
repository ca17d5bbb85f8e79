//! Mapping blocks.

use manylogs_plant::{Bug, is};

use super::{Level, room};
use crate::error::{Corruption, Error, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::extent::{DEPTH_MOST, Entries, Extent, Index};
use crate::ondisk::inode::{RawInode, flags};
use crate::units::{BLOCK_SECTORS, Ino, Run};

impl Metadata {
    /// Maps blocks of a file where it has a hole. The caller writes the inode.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no block for a node.
    pub(crate) async fn insert_extent(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        new: Extent,
    ) -> Result<()> {
        if !raw.has_flag(flags::EXTENTS) {
            return self.insert_pointers(handle, ino, raw, new).await;
        }
        let mut path = self.path(ino, raw, new.file.0.into()).await?;
        if self.geometry.is_changing_journal(ino) && !is(Bug::LengthenNodesInPlace) {
            self.move_nodes(handle, ino, raw, &mut path).await?;
        }
        let leaf = path.len() - 1;
        let Entries::Leaf(extents) = &mut path[leaf].node else {
            return Err(Corruption::inode(ino, "its tree has no leaf").into());
        };
        let at = extents.partition_point(|extent| extent.file < new.file);
        let before = at.checked_sub(1).and_then(|before| extents.get(before));
        let overlaps = before.is_some_and(|before| before.end() > new.file.0.into())
            || extents.get(at).is_some_and(|next| u64::from(next.file.0) < new.end());
        if overlaps {
            return Err(Corruption::inode(ino, "blocks are mapped that were not").into());
        }
        let at = insert_joined(extents, at, new);
        self.spread(handle, ino, raw, &mut path, at).await?;
        Ok(())
    }

    /// Gives the nodes of `path` new blocks. The old blocks keep their content, because the inode
    /// at home still names them.
    async fn move_nodes(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        path: &mut [Level],
    ) -> Result<()> {
        for at in 1..path.len() {
            let Some(old) = path[at].buffer.as_ref().map(|buffer| buffer.block()) else { continue };
            let new = self.take_block(handle, self.goal(ino)).await?;
            self.free(handle, ino, Run { start: old, blocks: 1 }, true).await?;
            path[at].buffer = Some(handle.create(new));
            let parent = &mut path[at - 1];
            if let Entries::Inner(_, children) = &mut parent.node {
                children[parent.child].child = new;
            }
        }
        path.iter().rev().for_each(|level| self.put_node(handle, ino, raw, level));
        Ok(())
    }

    /// Writes the leaf of `path`, whose entry `at` is new. Nodes that are too full are split, up to
    /// the root.
    async fn spread(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        path: &mut [Level],
        mut at: usize,
    ) -> Result<()> {
        self.put_keys(handle, ino, raw, path);
        let mut number = path.len() - 1;
        while path[number].node.len() > room(&path[number]) {
            if number == 0 {
                return self.deepen(handle, ino, raw, &mut path[0]).await;
            }
            let level = &mut path[number];
            // Files grow at their ends: there the full node stays full, and the new node gets only
            // the new entry.
            let len = level.node.len();
            let right = level.node.split_off(if at == len - 1 { at } else { len / 2 });
            let index = self.new_node(handle, ino, raw, right).await?;
            self.put_node(handle, ino, raw, &path[number]);
            number -= 1;
            let parent = &mut path[number];
            let Entries::Inner(_, children) = &mut parent.node else { break };
            at = parent.child + 1;
            children.insert(at, index);
        }
        self.put_node(handle, ino, raw, &path[number]);
        Ok(())
    }

    /// Moves the root's entries into a node of their own.
    async fn deepen(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        root: &mut Level,
    ) -> Result<()> {
        let depth = root.node.depth() + 1;
        if depth > DEPTH_MOST {
            return Err(Error::TooLarge);
        }
        let all = root.node.split_off(0);
        let index = self.new_node(handle, ino, raw, all).await?;
        root.node = Entries::Inner(depth, vec![index]);
        self.put_node(handle, ino, raw, root);
        Ok(())
    }

    async fn new_node(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        node: Entries,
    ) -> Result<Index> {
        let child = self.take_block(handle, self.goal(ino)).await?;
        raw.set_sectors(raw.sectors() + BLOCK_SECTORS);
        let buffer = Some(handle.create(child));
        let file = node.first().unwrap_or_default();
        self.put_node(handle, ino, raw, &Level { node, buffer, child: 0 });
        Ok(Index { file, child })
    }
}

/// Inserts `new` before entry `at`, joined with its neighbours if possible. Returns the index of
/// the entry that has it.
fn insert_joined(extents: &mut Vec<Extent>, at: usize, new: Extent) -> usize {
    let left = at.checked_sub(1).and_then(|left| extents[left].joined(&new));
    let grown = left.unwrap_or(new);
    let right = extents.get(at).and_then(|right| grown.joined(right));
    match (left, right) {
        (None, None) => extents.insert(at, new),
        (None, Some(joined)) => extents[at] = joined,
        (Some(_), Some(joined)) => {
            extents[at - 1] = joined;
            extents.remove(at);
        }
        (Some(grown), None) => extents[at - 1] = grown,
    }
    at - usize::from(left.is_some())
}
