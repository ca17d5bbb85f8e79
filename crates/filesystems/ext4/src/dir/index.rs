//! The index of a large directory: a tree by the hashes of names.

use std::rc::Rc;

use manylogs_plant::{Bug, is};

use super::hash::Hash;
use crate::cache::{Buffer, Checked};
use crate::error::{Corruption, Error, Location, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::ondisk::dirent::{DirentFormat, needed};
use crate::ondisk::htree::{Child, IndexLayout, format_node, format_root, root_info, set_levels};
use crate::ondisk::inode::{FileKind, RawInode, flags};
use crate::units::{BLOCK, Ino};

/// A node on the way to a leaf.
pub(super) struct Step {
    buffer: Rc<Buffer>,
    layout: IndexLayout,
    pub(super) children: Vec<Child>,
    /// Index of the child that the way follows.
    at: usize,
}

/// What the root of an index says of it.
pub(super) struct Info {
    /// The version of the hash.
    pub(super) version: u8,
    /// Levels of nodes below the root.
    pub(super) levels: u8,
}

/// A name that moves to another block.
struct Moved {
    hash: u32,
    ino: Ino,
    kind: Option<FileKind>,
    name: Vec<u8>,
}

impl Metadata {
    /// The blocks that may have a name, in the order of the search.
    pub(super) async fn leaves_of(
        &self,
        dir: Ino,
        raw: &RawInode,
        name: &[u8],
    ) -> Result<Vec<u32>> {
        let (path, hash) = self.way(dir, raw, name).await?;
        let Some(last) = path.last() else { return Ok(Vec::new()) };
        let mut leaves = vec![last.children[last.at].block];
        // Names of one hash may continue in the next blocks, and in the blocks of the next node.
        let goes_on = |child: &&Child| child.hash == hash | 1;
        let next = last.children[last.at + 1..].iter();
        leaves.extend(next.take_while(goes_on).map(|child| child.block));
        let mut all_do = leaves.len() == last.children.len() - last.at;
        let [root, _] = path.as_slice() else { return Ok(leaves) };
        for next in root.children[root.at + 1..].iter().take_while(goes_on) {
            if !all_do || is(Bug::Ext4EqualHashesCut) {
                break;
            }
            let node = self.index_node(dir, raw, next.block).await?;
            let before = leaves.len();
            // The first child has no hash of its own: it has that of its node.
            let first = node.children.iter().take(1);
            let more = node.children[1..].iter().take_while(goes_on);
            leaves.extend(first.chain(more).map(|child| child.block));
            all_do = leaves.len() - before == node.children.len();
        }
        Ok(leaves)
    }

    /// The nodes on the way to a name's leaf, and its hash.
    async fn way(&self, dir: Ino, raw: &RawInode, name: &[u8]) -> Result<(Vec<Step>, u32)> {
        let (root, Info { version, levels }) = self.index_root(dir, raw).await?;
        let hash = Hash::new(version, &self.geometry)?.of(name);
        let mut path = vec![Step { at: child_for(&root.children, hash), ..root }];
        if levels == 1 {
            let block = path[0].children[path[0].at].block;
            let mut node = self.index_node(dir, raw, block).await?;
            node.at = child_for(&node.children, hash);
            path.push(node);
        }
        Ok((path, hash))
    }

    /// The root of a directory's index, and what it says of the index.
    pub(super) async fn index_root(&self, dir: Ino, raw: &RawInode) -> Result<(Step, Info)> {
        let buffer = self.directory_block(dir, raw, 0).await?;
        let bytes = buffer.bytes();
        let bad = || Corruption::of(Location::Block(dir, buffer.block()), "the root of its index");
        let (version, levels) = root_info(&bytes).ok_or_else(bad)?;
        let layout = IndexLayout { root: true, seed: self.inode_seed(dir, raw) };
        let children = layout.decode(&bytes).ok_or_else(bad)?;
        Ok((Step { at: 0, buffer, layout, children }, Info { version, levels }))
    }

    pub(super) async fn index_node(&self, dir: Ino, raw: &RawInode, number: u32) -> Result<Step> {
        let buffer = self.directory_block(dir, raw, number).await?;
        let layout = IndexLayout { root: false, seed: self.inode_seed(dir, raw) };
        let children = layout.decode(&buffer.bytes());
        let bad = || Corruption::of(Location::Block(dir, buffer.block()), "a node of its index");
        Ok(Step { children: children.ok_or_else(bad)?, buffer, layout, at: 0 })
    }

    /// Adds a name to a directory with an index.
    pub(super) async fn insert_indexed(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &mut RawInode,
        name: &[u8],
        target: (Ino, FileKind),
    ) -> Result<()> {
        let layout = self.layout(dir, raw);
        let (mut path, hash) = self.way(dir, raw, name).await?;
        let last = path.len() - 1;
        let number = path[last].children[path[last].at].block;
        let leaf = self.directory_block(dir, raw, number).await?;
        let leaf = self.sound_leaf(dir, raw, leaf)?;
        if handle.change(&leaf, |block| layout.insert(block, target.0, target.1, name)) {
            return Ok(());
        }
        self.make_way(handle, dir, raw, &mut path).await?;
        let version = root_info(&path[0].buffer.bytes()).map_or(0, |(version, _)| version);
        let hashes = Hash::new(version, &self.geometry)?;
        let moved = upper_half(layout, &leaf.bytes(), hashes);
        let bad = || Corruption::inode(dir, "a full block of names that has few");
        let (mut lower, upper, middle) = moved.ok_or_else(bad)?;
        if is(Bug::Ext4SplitLosesName) {
            lower.pop();
        }
        let new = low32(raw.size() / BLOCK);
        let right = self.append_block(handle, dir, raw).await?;
        for (buffer, half) in [(&leaf, lower), (&right, upper)] {
            handle.change(buffer, |block| fill(layout, block, &half));
            buffer.set_checked(Checked::DirectoryLeaf);
        }
        let step = path.last_mut().ok_or_else(bad)?;
        step.children.insert(step.at + 1, Child { hash: middle, block: new });
        handle.change(&step.buffer, |block| step.layout.encode(block, &step.children));
        let home = if hash >= middle & !1 { &right } else { &leaf };
        if handle.change(home, |block| layout.insert(block, target.0, target.1, name)) {
            return Ok(());
        }
        Err(Error::NoSpace)
    }

    /// Makes room for a child in the last node of `path`. Afterwards the path leads to the same
    /// leaf: searching anew by its hash would not do, because both halves of a node may have it.
    async fn make_way(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &mut RawInode,
        path: &mut Vec<Step>,
    ) -> Result<()> {
        let last = path.len() - 1;
        if path[last].children.len() < path[last].layout.capacity() {
            return Ok(());
        }
        if last == 1 && path[0].children.len() >= path[0].layout.capacity() {
            return Err(Error::NoSpace);
        }
        let layout = IndexLayout { root: false, seed: self.inode_seed(dir, raw) };
        let number = low32(raw.size() / BLOCK);
        let buffer = self.append_block(handle, dir, raw).await?;
        // A full root moves all its children to the new node; a full node moves half of them.
        let keep = if last == 0 { 0 } else { path[1].children.len() / 2 };
        let leaf = path[last].at;
        let children = path[last].children.split_off(keep);
        handle.change(&buffer, |block| {
            format_node(block);
            layout.encode(block, &children);
        });
        let first = Child { hash: children.first().map_or(0, |child| child.hash), block: number };
        let new = Step { at: leaf.saturating_sub(keep), buffer, layout, children };
        if last == 0 {
            path[0].children = vec![first];
            path[0].at = 0;
            handle.change(&path[0].buffer, |block| set_levels(block, 1));
        } else {
            handle.change(&path[1].buffer, |block| path[1].layout.encode(block, &path[1].children));
            let at = path[0].at + 1;
            path[0].children.insert(at, first);
        }
        handle.change(&path[0].buffer, |block| path[0].layout.encode(block, &path[0].children));
        path.truncate(1);
        if leaf >= keep {
            path[0].at += usize::from(last == 1);
            path.push(new);
        } else {
            let left = self.index_node(dir, raw, path[0].children[path[0].at].block).await?;
            path.push(Step { at: leaf, ..left });
        }
        Ok(())
    }

    /// Whether new indices can be searched.
    pub(super) fn has_known_hash(&self) -> bool {
        Hash::new(self.geometry.hash_version, &self.geometry).is_ok()
    }

    /// Gives a directory of one full block an index: its names move to a new block.
    pub(super) async fn make_index(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &mut RawInode,
        first: &Rc<Buffer>,
    ) -> Result<()> {
        let version = self.geometry.hash_version;
        let hashes = Hash::new(version, &self.geometry)?;
        let layout = self.layout(dir, raw);
        let names = collect(layout, &first.bytes(), hashes);
        let number = low32(raw.size() / BLOCK);
        let leaf = self.append_block(handle, dir, raw).await?;
        handle.change(&leaf, |block| fill(layout, block, &names));
        leaf.set_checked(Checked::DirectoryLeaf);
        let root = IndexLayout { root: true, seed: self.inode_seed(dir, raw) };
        handle.change(first, |block| {
            format_root(block, version);
            root.encode(block, &[Child { hash: 0, block: number }]);
        });
        first.set_checked(Checked::DirectoryIndex);
        raw.set_flag(flags::INDEX, true);
        Ok(())
    }
}

/// The last child whose hash is at most `hash`. A child that continues the hash of the one before
/// has that hash with the lowest bit set.
pub(super) fn child_for(children: &[Child], hash: u32) -> usize {
    children.partition_point(|child| child.hash <= hash).saturating_sub(1)
}

/// The names of a block, except `.` and `..`.
fn collect(layout: DirentFormat, block: &[u8], hashes: Hash) -> Vec<Moved> {
    let records = layout.records(block).flatten();
    let names = records.filter(|record| record.name != b"." && record.name != b"..");
    let moved = names.filter_map(|record| {
        let hash = hashes.of(record.name);
        Some(Moved { hash, ino: record.ino?, kind: record.kind, name: record.name.to_vec() })
    });
    moved.collect()
}

/// A block's names in two halves by hash, and the hash of the upper half's child; `None` if there
/// are too few names.
fn upper_half(
    layout: DirentFormat,
    block: &[u8],
    hashes: Hash,
) -> Option<(Vec<Moved>, Vec<Moved>, u32)> {
    let mut names = collect(layout, block, hashes);
    names.sort_by_key(|name| name.hash);
    let all: usize = names.iter().map(|name| needed(name.name.len())).sum();
    let mut bytes = 0;
    let half = names.iter().position(|name| {
        bytes += needed(name.name.len());
        bytes > all / 2
    });
    let upper = names.split_off(half?.max(1).min(names.len() - 1));
    let (last, first) = (names.last()?.hash, upper.first()?.hash);
    let goes_on = first == last && !is(Bug::Ext4HashEndsWithBlock);
    Some((names, upper, first | u32::from(goes_on)))
}

/// Fills a block with exactly these names.
fn fill(layout: DirentFormat, block: &mut [u8], names: &[Moved]) {
    layout.format(block);
    for name in names {
        let placed = layout.insert_as(block, name.ino, name.kind, &name.name);
        debug_assert!(placed, "they came from a block");
    }
}
