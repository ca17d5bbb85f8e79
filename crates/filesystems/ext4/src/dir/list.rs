//! Reading directories.
//!
//! Names of a directory with an index are listed by their hashes, and so are those of a directory
//! of one block, which may get an index while it is read. A name keeps its cookie then, wherever a
//! split block moves it. Other directories are listed in the order of their blocks: names of them
//! never move.

use manylogs_plant::{Bug, is};

use super::hash::Hash;
use super::index::{Info, child_for};
use super::order::{OWN, Order, hash_at, position_at};
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::ondisk::dirent::records;
use crate::ondisk::features::compat;
use crate::ondisk::inode::{FileKind, RawInode, flags};
use crate::units::{BLOCK, BLOCK_BYTES, Ino};

/// A name that was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The inode of the name.
    pub ino: Ino,
    /// The inode's kind, if the directory says it.
    pub kind: Option<FileKind>,
    /// The name.
    pub name: Vec<u8>,
    /// The cookie at which the listing goes on behind this name.
    pub next: u64,
}

impl Metadata {
    /// Some names of a directory from `cookie` on, which is 0 or [`Listed::next`]; empty at the
    /// end. A name that stays is listed once.
    pub(crate) async fn list(&self, dir: Ino, cookie: u64) -> Result<Vec<Listed>> {
        let _tree = self.journal.tree.read().await;
        self.list_names(dir, cookie).await
    }

    /// As [`Metadata::list`]. The caller holds the tree lock.
    pub(crate) async fn list_names(&self, dir: Ino, cookie: u64) -> Result<Vec<Listed>> {
        let raw = self.directory(dir).await?;
        let indexed = raw.has_flag(flags::INDEX);
        let hash = match self.version_of(dir, &raw).await? {
            Some(version) if !is(Bug::Ext4ListedByPlace) => Hash::new(version, &self.geometry),
            _ => return self.list_by_place(dir, &raw, cookie).await,
        };
        let hash = match hash {
            Ok(hash) => hash,
            // An index with an unknown hash: the names are found without it, and none is added.
            Err(Error::Unsupported(_)) => return self.list_by_place(dir, &raw, cookie).await,
            Err(error) => return Err(error),
        };
        if cookie < OWN {
            let own = self.own_names(dir, &raw, cookie).await?;
            if !own.is_empty() {
                return Ok(own);
            }
        }
        let Some(position) = position_at(cookie) else { return Ok(Vec::new()) };
        let mut names = Order::new(dir, hash, position);
        if indexed {
            return self.list_indexed(dir, &raw, names).await;
        }
        let Some(leaf) = self.leaf(dir, &raw, 0).await? else { return Ok(Vec::new()) };
        names.add(self.layout(dir, &raw), &leaf.bytes());
        names.below(None)
    }

    /// The version of the hash by which a directory is listed; `None` if it is listed by place.
    async fn version_of(&self, dir: Ino, raw: &RawInode) -> Result<Option<u8>> {
        if raw.has_flag(flags::INDEX) {
            return Ok(Some(self.index_root(dir, raw).await?.1.version));
        }
        let may_get_index = self.geometry.features.compat & compat::DIR_INDEX != 0;
        let is_one = Self::directory_blocks(dir, raw)? == 1;
        Ok((may_get_index && is_one).then_some(self.geometry.hash_version))
    }

    /// The names `.` and `..` from `cookie` on.
    async fn own_names(&self, dir: Ino, raw: &RawInode, cookie: u64) -> Result<Vec<Listed>> {
        let buffer = self.directory_block(dir, raw, 0).await?;
        let bytes = buffer.bytes();
        let mut own = Vec::new();
        for record in records(&bytes, 0..BLOCK_BYTES).take(2).flatten() {
            let next = match record.name {
                b"." => 1,
                b".." => OWN,
                _ => continue,
            };
            if let Some(ino) = record.ino.filter(|_| next > cookie) {
                own.push(Listed { ino, kind: record.kind, name: record.name.to_vec(), next });
            }
        }
        own.sort_by_key(|listed| listed.next);
        own.dedup_by_key(|listed| listed.next);
        Ok(own)
    }

    /// The next names of a directory with an index, by their hashes.
    ///
    /// One block has the names up to the hash of the next child, and those of that very hash may go
    /// on there. So blocks are read until there are names with smaller hashes than the next block
    /// can have. Each block of the index is read once: a damaged one gives an error or fewer names.
    async fn list_indexed(
        &self,
        dir: Ino,
        raw: &RawInode,
        mut names: Order,
    ) -> Result<Vec<Listed>> {
        let (root, Info { levels, .. }) = self.index_root(dir, raw).await?;
        let root = root.children;
        let layout = self.layout(dir, raw);
        let hash = hash_at(names.from());
        let first = child_for(&root, hash);
        let nodes = if levels == 0 { first..first + 1 } else { first..root.len() };
        for number in nodes {
            let (children, end) = match levels {
                0 => (root.clone(), None),
                _ => {
                    let node = self.index_node(dir, raw, root[number].block).await?;
                    (node.children, root.get(number + 1).map(|child| child.hash))
                }
            };
            let start = if number == first { child_for(&children, hash) } else { 0 };
            for at in start..children.len() {
                let leaf = self.directory_block(dir, raw, children[at].block).await?;
                names.add(layout, &self.sound_leaf(dir, raw, leaf)?.bytes());
                let next = children.get(at + 1).map(|child| child.hash).or(end);
                let listed = names.below(next)?;
                if !listed.is_empty() {
                    return Ok(listed);
                }
            }
        }
        Ok(Vec::new())
    }

    /// The names of one block of a directory, in the order of its blocks.
    async fn list_by_place(&self, dir: Ino, raw: &RawInode, cookie: u64) -> Result<Vec<Listed>> {
        let blocks = Self::directory_blocks(dir, raw)?;
        let mut listed = Vec::new();
        let first = u32::try_from(cookie / BLOCK).unwrap_or(u32::MAX);
        for number in first..blocks {
            let from = if number == first { cookie % BLOCK } else { 0 };
            let (bytes, names) = match self.leaf(dir, raw, number).await? {
                Some(leaf) => (leaf.bytes(), usize::MAX),
                None if number == 0 => (self.directory_block(dir, raw, 0).await?.bytes(), 2),
                None => continue,
            };
            let end = if names == 2 { BLOCK_BYTES } else { self.layout(dir, raw).end() };
            for record in records(&bytes, 0..end).flatten().take(names) {
                let (Some(ino), true) = (record.ino, record.at as u64 >= from) else { continue };
                let last = record.at + record.len >= end || names == 2 && record.name == b"..";
                let behind = u64::from(number) * BLOCK + (record.at + record.len) as u64;
                let next = if last { (u64::from(number) + 1) * BLOCK } else { behind };
                listed.push(Listed { ino, kind: record.kind, name: record.name.to_vec(), next });
            }
            if !listed.is_empty() {
                break;
            }
        }
        Ok(listed)
    }
}
