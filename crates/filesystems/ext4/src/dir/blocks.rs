//! Blocks of directories, and finding names in them.

use std::rc::Rc;

use crate::cache::{Buffer, Checked};
use crate::error::{Corruption, Error, Location, Result};
use crate::extents::Mapping;
use crate::metadata::Metadata;
use crate::ondisk::bytes::{le16, le32, low32};
use crate::ondisk::dirent::{DirentFormat, records};
use crate::ondisk::inode::{FileKind, RawInode, flags};
use crate::units::{BLOCK, BLOCK_BYTES, FileBlock, Ino};

/// A name that was found.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) ino: Ino,
    pub(crate) buffer: Rc<Buffer>,
    /// The offset of its record in the block.
    pub(crate) at: usize,
    /// Whether the record is in the block of an index's root.
    pub(crate) in_root: bool,
}

impl Metadata {
    /// A directory's inode.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NotFound`] if it was deleted.
    pub(crate) async fn directory(&self, dir: Ino) -> Result<RawInode> {
        let raw = self.inode(dir).await?;
        if raw.kind() != Some(FileKind::Directory) {
            return Err(Error::NotADirectory);
        }
        if raw.links() == 0 {
            return Err(Error::NotFound);
        }
        Ok(raw)
    }

    pub(crate) fn layout(&self, dir: Ino, raw: &RawInode) -> DirentFormat {
        DirentFormat { seed: self.inode_seed(dir, raw) }
    }

    /// How many blocks a directory has.
    pub(crate) fn directory_blocks(dir: Ino, raw: &RawInode) -> Result<u32> {
        let bad = || Corruption::inode(dir, "the size of the directory");
        let whole = raw.size().is_multiple_of(BLOCK) && raw.size() > 0;
        let blocks = u32::try_from(raw.size() / BLOCK).ok().filter(|_| whole);
        Ok(blocks.ok_or_else(bad)?)
    }

    /// Block `number` of a directory; `None` if it is a part of its index.
    pub(crate) async fn leaf(
        &self,
        dir: Ino,
        raw: &RawInode,
        number: u32,
    ) -> Result<Option<Rc<Buffer>>> {
        let buffer = self.directory_block(dir, raw, number).await?;
        if raw.has_flag(flags::INDEX) && is_index(number, &buffer.bytes()) {
            return Ok(None);
        }
        self.sound_leaf(dir, raw, buffer).map(Some)
    }

    /// The block as one of names, after a check that it is sound.
    pub(super) fn sound_leaf(
        &self,
        dir: Ino,
        raw: &RawInode,
        buffer: Rc<Buffer>,
    ) -> Result<Rc<Buffer>> {
        let layout = self.layout(dir, raw);
        let sound = |block: &[u8]| {
            layout.is_whole(block) && layout.records(block).all(|record| record.is_some())
        };
        if !buffer.is_checked(Checked::DirectoryLeaf, sound) {
            let what = "a block of the directory is damaged";
            return Err(Corruption::of(Location::Block(dir, buffer.block()), what).into());
        }
        Ok(buffer)
    }

    /// Block `number` of a directory, of any kind.
    pub(crate) async fn directory_block(
        &self,
        dir: Ino,
        raw: &RawInode,
        number: u32,
    ) -> Result<Rc<Buffer>> {
        match self.map(dir, raw, FileBlock(number)).await? {
            Mapping::Mapped(extent) if extent.written => self.read(extent.block).await,
            _ => Err(Corruption::inode(dir, "the directory has a hole").into()),
        }
    }

    /// Looks a name up. The caller holds the tree lock.
    pub(crate) async fn find(
        &self,
        dir: Ino,
        raw: &RawInode,
        name: &[u8],
    ) -> Result<Option<Entry>> {
        if !raw.has_flag(flags::INDEX) {
            return self.find_from_first(dir, raw, name).await;
        }
        if name == b"." || name == b".." {
            return self.find_own(dir, raw, name).await;
        }
        let leaves = match self.leaves_of(dir, raw, name).await {
            // An index with an unknown hash: the names are found without it.
            Err(Error::Unsupported(_)) => return self.find_from_first(dir, raw, name).await,
            leaves => leaves?,
        };
        for number in leaves {
            let buffer = self.directory_block(dir, raw, number).await?;
            let buffer = self.sound_leaf(dir, raw, buffer)?;
            if let Some((ino, at)) = self.find_in(dir, raw, &buffer, name) {
                return Ok(Some(Entry { ino, buffer, at, in_root: false }));
            }
        }
        Ok(None)
    }

    async fn find_from_first(
        &self,
        dir: Ino,
        raw: &RawInode,
        name: &[u8],
    ) -> Result<Option<Entry>> {
        for number in 0..Self::directory_blocks(dir, raw)? {
            let Some(buffer) = self.leaf(dir, raw, number).await? else { continue };
            if let Some((ino, at)) = self.find_in(dir, raw, &buffer, name) {
                return Ok(Some(Entry { ino, buffer, at, in_root: false }));
            }
        }
        Ok(None)
    }

    pub(super) fn find_in(
        &self,
        dir: Ino,
        raw: &RawInode,
        buffer: &Buffer,
        name: &[u8],
    ) -> Option<(Ino, usize)> {
        let bytes = buffer.bytes();
        let mut records = self.layout(dir, raw).records(&bytes).flatten();
        records.find_map(|record| {
            record.ino.filter(|_| record.name == name).map(|ino| (ino, record.at))
        })
    }

    /// The names `.` and `..` of a directory with an index, before the index's root.
    async fn find_own(&self, dir: Ino, raw: &RawInode, name: &[u8]) -> Result<Option<Entry>> {
        let buffer = self.directory_block(dir, raw, 0).await?;
        let bytes = buffer.bytes();
        let mut own = records(&bytes, 0..BLOCK_BYTES).take(2).flatten();
        let found = own.find(|record| record.name == name).map(|r| (r.ino, r.at));
        let Some((Some(ino), at)) = found else { return Ok(None) };
        Ok(Some(Entry { ino, buffer, at, in_root: true }))
    }

    /// Whether a directory has no names but its own.
    pub(crate) async fn is_empty(&self, dir: Ino, raw: &RawInode) -> Result<bool> {
        let layout = self.layout(dir, raw);
        for number in 0..Self::directory_blocks(dir, raw)? {
            let Some(buffer) = self.leaf(dir, raw, number).await? else { continue };
            let bytes = buffer.bytes();
            let mut names = layout.records(&bytes).flatten().filter(|r| r.ino.is_some());
            if names.any(|record| record.name != b"." && record.name != b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a block of a directory with an index belongs to the index. The first block does, and so
/// do blocks that are one unused record of the whole block.
fn is_index(number: u32, block: &[u8]) -> bool {
    let unused = le32(block, 0) == 0 && block[6] == 0;
    number == 0 || unused && u64::from(le16(block, 4)) == u64::from(low32(BLOCK))
}
