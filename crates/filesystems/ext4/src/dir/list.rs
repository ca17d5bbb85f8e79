//! Reading directories.

use crate::core::Core;
use crate::error::Result;
use crate::ondisk::dirent::records;
use crate::ondisk::inode::FileKind;
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

impl Core {
    /// The names of one block of a directory from `cookie` on, which is 0 or [`Listed::next`];
    /// empty at the end. A name that stays is listed once.
    pub(crate) async fn list(&self, dir: Ino, cookie: u64) -> Result<Vec<Listed>> {
        let _tree = self.journal.tree.read().await;
        self.list_names(dir, cookie).await
    }

    /// As [`Core::list`]. The caller holds the tree lock.
    pub(crate) async fn list_names(&self, dir: Ino, cookie: u64) -> Result<Vec<Listed>> {
        let raw = self.directory(dir).await?;
        let blocks = Self::directory_blocks(dir, &raw)?;
        let mut listed = Vec::new();
        let first = u32::try_from(cookie / BLOCK).unwrap_or(u32::MAX);
        for number in first..blocks {
            let from = if number == first { cookie % BLOCK } else { 0 };
            let (bytes, names) = match self.leaf(dir, &raw, number).await? {
                Some(leaf) => (leaf.bytes(), usize::MAX),
                None if number == 0 => (self.directory_block(dir, &raw, 0).await?.bytes(), 2),
                None => continue,
            };
            let end = if names == 2 { BLOCK_BYTES } else { self.layout(dir, &raw).end() };
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
