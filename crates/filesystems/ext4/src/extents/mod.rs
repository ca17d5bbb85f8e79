//! Extent trees: they map a file's blocks to the device. Files without one are those of
//! [`crate::blockmap`].
//!
//! A tree's root lies in its inode and its nodes in blocks of their own. A decoded node is checked:
//! it is one level below its parent, its keys are not below its part, and its blocks lie where
//! files may have them.

mod insert;
mod remove;

pub(crate) use remove::Unmapped;

use std::rc::Rc;

use crate::cache::{Buffer, Checked};
use crate::error::{Corruption, Location, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::ondisk::extent::{Entries, Extent, UNWRITTEN_MOST, capacity, is_whole, seal};
use crate::ondisk::inode::{MAP_BYTES, RawInode, flags};
use crate::units::{BLOCK_BYTES, BlockNo, FileBlock, Ino, Run};

/// Most blocks of metadata that mapping one extent changes: the nodes of the deepest tree, as many
/// new nodes, a bitmap and a descriptor for each, the inode, and bitmaps and descriptors for the
/// data.
pub(crate) const MAP_CREDITS: usize = 6 + 6 + 2 * 6 + 1 + 4;

/// The place of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// In these blocks.
    Mapped(Extent),
    /// A hole of this number of blocks.
    Hole(u32),
}

/// One node on the way to a leaf.
struct Level {
    node: Entries,
    /// Its block; the root has none.
    buffer: Option<Rc<Buffer>>,
    /// Index of the child that the way follows.
    child: usize,
}

/// Entries that a node has room for.
fn room(level: &Level) -> usize {
    match level.buffer {
        None => capacity(&[0; MAP_BYTES]),
        Some(_) => capacity(&[0; BLOCK_BYTES]),
    }
}

/// The last child whose key is at most `at`; the first if there is none.
fn child_for(node: &Entries, at: u64) -> usize {
    let Entries::Inner(_, children) = node else { return 0 };
    children.partition_point(|index| u64::from(index.file.0) <= at).saturating_sub(1)
}

impl Metadata {
    /// Where the file's blocks from `at` are. The caller holds the tree lock.
    pub(crate) async fn map(&self, ino: Ino, raw: &RawInode, at: FileBlock) -> Result<Mapping> {
        if !raw.has_flag(flags::EXTENTS) {
            return self.map_pointers(ino, raw, at).await;
        }
        let path = self.path(ino, raw, at.0.into()).await?;
        let mut hole_ends = FileBlock::MAX;
        for level in &path {
            if let Entries::Inner(_, children) = &level.node
                && let Some(next) = children.get(level.child + 1)
            {
                hole_ends = next.file.0.into();
            }
        }
        let Some(Entries::Leaf(extents)) = path.last().map(|level| &level.node) else {
            return Err(Corruption::inode(ino, "its tree has no leaf").into());
        };
        let from = u64::from(at.0);
        let next = extents.partition_point(|extent| extent.end() <= from);
        let Some(extent) = extents.get(next) else {
            return Ok(Mapping::Hole(low32(hole_ends - from)));
        };
        Ok(match extent.part(from, FileBlock::MAX) {
            Some(part) if part.file == at => Mapping::Mapped(part),
            _ => Mapping::Hole(extent.file.0 - at.0),
        })
    }

    /// The blocks with nodes of the tree that lead to block `at`, from the top.
    pub(crate) async fn nodes_to(
        &self,
        ino: Ino,
        raw: &RawInode,
        at: FileBlock,
    ) -> Result<Vec<Rc<Buffer>>> {
        if !raw.has_flag(flags::EXTENTS) {
            return Ok(Vec::new());
        }
        let path = self.path(ino, raw, at.0.into()).await?;
        Ok(path.into_iter().filter_map(|level| level.buffer).collect())
    }

    /// The nodes from the root to the leaf that covers block `at`.
    async fn path(&self, ino: Ino, raw: &RawInode, at: u64) -> Result<Vec<Level>> {
        let bad = |what| Corruption::inode(ino, what);
        let root = Entries::decode(raw.map()).ok_or_else(|| bad("the root of its tree"))?;
        self.check_extents(ino, &root)?;
        let mut path = vec![Level { child: child_for(&root, at), node: root, buffer: None }];
        while let Some(Level { node: Entries::Inner(depth, children), child, .. }) = path.last() {
            let (depth, index) = (*depth, children[*child]);
            let (node, buffer) = self.tree_node(ino, raw, index.child).await?;
            let first = node.first().is_none_or(|first| first >= index.file);
            let sound = node.depth() == depth - 1 && node.len() > 0 && first;
            if !sound {
                let place = Location::Block(ino, index.child);
                return Err(Corruption::of(place, "the node does not fit its parent").into());
            }
            path.push(Level { child: child_for(&node, at), node, buffer: Some(buffer) });
        }
        Ok(path)
    }

    /// Reads and checks the node in a block.
    async fn tree_node(
        &self,
        ino: Ino,
        raw: &RawInode,
        block: BlockNo,
    ) -> Result<(Entries, Rc<Buffer>)> {
        let bad = |what| Corruption::of(Location::Block(ino, block), what);
        if !self.geometry.is_data(Run { start: block, blocks: 1 }) {
            return Err(bad("a node lies where no file can be").into());
        }
        let buffer = self.read(block).await?;
        let seed = self.inode_seed(ino, raw);
        let whole = |bytes: &[u8]| seed.is_none_or(|seed| is_whole(bytes, seed));
        if !buffer.is_checked(Checked::ExtentNode, whole) {
            return Err(bad("wrong checksum of a node").into());
        }
        let node = Entries::decode(&buffer.bytes()).ok_or_else(|| bad("an impossible node"))?;
        self.check_extents(ino, &node)?;
        Ok((node, buffer))
    }

    fn check_extents(&self, ino: Ino, node: &Entries) -> Result<()> {
        let Entries::Leaf(extents) = node else { return Ok(()) };
        let may_be =
            |e: &Extent| self.geometry.may_have(ino, Run { start: e.block, blocks: e.blocks });
        if extents.iter().all(may_be) {
            return Ok(());
        }
        Err(Corruption::inode(ino, "an extent lies where no file can be").into())
    }

    /// Writes a changed node. The root goes into `raw`: the caller writes the inode.
    fn put_node(&self, handle: &mut Handle<'_>, ino: Ino, raw: &mut RawInode, level: &Level) {
        let Some(buffer) = &level.buffer else { return level.node.encode(raw.map_mut()) };
        let seed = self.inode_seed(ino, raw);
        handle.change(buffer, |bytes| {
            level.node.encode(bytes);
            if let Some(seed) = seed {
                seal(bytes, seed);
            }
        });
        buffer.set_checked(Checked::ExtentNode);
    }

    /// Corrects the keys on the way to a leaf, so that they say where it begins.
    fn put_keys(&self, handle: &mut Handle<'_>, ino: Ino, raw: &mut RawInode, path: &mut [Level]) {
        for at in (1..path.len()).rev() {
            let Some(first) = path[at].node.first() else { return };
            let parent = &mut path[at - 1];
            let child = parent.child;
            let Entries::Inner(_, children) = &mut parent.node else { return };
            if children[child].file == first {
                return;
            }
            children[child].file = first;
            self.put_node(handle, ino, raw, &path[at - 1]);
        }
    }

    /// How many blocks from `at` on one inserted extent may map.
    pub(crate) fn insert_most(raw: &RawInode, at: FileBlock) -> u32 {
        if raw.has_flag(flags::EXTENTS) { UNWRITTEN_MOST } else { Self::pointers_left(at) }
    }

    /// Gives an inode an empty map: an empty tree, or null pointers if the file system has no
    /// extents.
    pub(crate) fn put_empty_map(&self, raw: &mut RawInode) {
        let has_extents = self.geometry.has_extents();
        raw.set_flag(flags::EXTENTS, has_extents);
        raw.map_mut().fill(0);
        if has_extents {
            Entries::Leaf(Vec::new()).encode(raw.map_mut());
        }
    }
}
