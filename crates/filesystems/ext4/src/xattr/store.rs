//! Reading and changing the attributes of an inode.

use std::rc::Rc;

use bytes::Bytes;

use crate::cache::{Buffer, Checked};
use crate::error::{Corruption, Error, Location, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::RawInode;
use crate::ondisk::xattr::{self, Key, Xattr};
use crate::units::{BLOCK_SECTORS, BlockNo, Ino, Run};

/// Most blocks that a change of an inode's attributes changes: the old and the new block, a bitmap
/// and a descriptor for each, and the superblock. The caller counts the inode.
pub(crate) const XATTR_CREDITS: usize = 7;

/// An inode's attributes, by their place.
struct Held {
    inline: Vec<Xattr>,
    block: Vec<Xattr>,
}

impl Metadata {
    /// The value of an attribute, if the inode has it. The caller holds the tree lock.
    pub(crate) async fn xattr(&self, ino: Ino, raw: &RawInode, key: &Key) -> Result<Option<Bytes>> {
        let held = self.held(ino, raw).await?;
        let mut all = held.inline.into_iter().chain(held.block);
        Ok(all.find(|xattr| xattr.key == *key).map(|xattr| xattr.value))
    }

    /// The names of an inode's attributes. The caller holds the tree lock.
    pub(crate) async fn xattr_names(&self, ino: Ino, raw: &RawInode) -> Result<Vec<Vec<u8>>> {
        let held = self.held(ino, raw).await?;
        let all = held.inline.iter().chain(&held.block);
        Ok(all.filter_map(|xattr| xattr.key.full_name()).collect())
    }

    /// Sets or removes an attribute. The caller writes the inode.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the attributes have no room, or there is no block for them.
    pub(crate) async fn put_xattr(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        key: Key,
        value: Option<Bytes>,
    ) -> Result<()> {
        let mut held = self.held(ino, raw).await?;
        held.inline.retain(|xattr| xattr.key != key);
        let in_block = held.block.len();
        held.block.retain(|xattr| xattr.key != key);
        let mut is_block_new = held.block.len() != in_block;
        if let Some(value) = value {
            held.inline.push(Xattr { key, value });
            if !xattr::fit(&held.inline, raw.inline_room())
                && let Some(new) = held.inline.pop()
            {
                held.block.push(new);
                is_block_new = true;
                if !xattr::fit_block(&held.block) {
                    return Err(Error::NoSpace);
                }
            }
        }
        raw.set_inline_xattrs(&held.inline);
        if is_block_new { self.put_block(handle, ino, raw, &held.block).await } else { Ok(()) }
    }

    async fn held(&self, ino: Ino, raw: &RawInode) -> Result<Held> {
        let bad = || Corruption::inode(ino, "impossible attributes in the inode");
        let inline = raw.inline_xattrs().ok_or_else(bad)?;
        let number = raw.xattr_block();
        if number.0 == 0 {
            return Ok(Held { inline, block: Vec::new() });
        }
        let buffer = self.xattr_block(ino, number).await?;
        let bad = || Corruption::of(Location::Block(ino, number), "impossible attributes");
        let block = xattr::decode_block(&buffer.bytes()).ok_or_else(bad)?;
        Ok(Held { inline, block })
    }

    /// Writes these attributes into an inode's block, or frees that block if there are none.
    async fn put_block(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        xattrs: &[Xattr],
    ) -> Result<()> {
        let old = raw.xattr_block();
        let is_own = old.0 != 0 && xattr::users(&self.xattr_block(ino, old).await?.bytes()) == 1;
        if xattrs.is_empty() || !is_own {
            self.drop_xattr_block(handle, ino, raw).await?;
        }
        if xattrs.is_empty() {
            return Ok(());
        }
        let (number, buffer) = if is_own {
            (old, self.xattr_block(ino, old).await?)
        } else {
            self.note_xattrs(handle)?;
            let number = self.take_free_block(handle, self.goal(ino)).await?;
            raw.set_xattr_block(number);
            raw.set_sectors(raw.sectors() + BLOCK_SECTORS);
            (number, handle.create(number))
        };
        let seed = self.geometry.seed;
        handle.change(&buffer, |block| {
            xattr::encode_block(block, xattrs);
            xattr::seal(block, number, seed);
        });
        buffer.set_checked(Checked::Xattrs);
        Ok(())
    }

    /// Notes in the superblock that there are attributes in blocks.
    fn note_xattrs(&self, handle: &mut Handle<'_>) -> Result<()> {
        if self.geometry.has_xattr_blocks() {
            return Ok(());
        }
        self.change_superblock(handle, |superblock| superblock.set_has_xattrs())
    }

    /// Removes an inode's block of attributes; a shared block loses a user. The caller writes the
    /// inode.
    pub(crate) async fn drop_xattr_block(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        let number = raw.xattr_block();
        if number.0 == 0 {
            return Ok(());
        }
        let buffer = self.xattr_block(ino, number).await?;
        let users = xattr::users(&buffer.bytes());
        if users > 1 {
            let seed = self.geometry.seed;
            handle.change(&buffer, |block| {
                xattr::set_users(block, users - 1);
                xattr::seal(block, number, seed);
            });
            raw.set_sectors(raw.sectors().saturating_sub(BLOCK_SECTORS));
        } else {
            self.free_run(handle, ino, raw, Run { start: number, blocks: 1 }, true).await?;
        }
        raw.set_xattr_block(BlockNo(0));
        Ok(())
    }

    async fn xattr_block(&self, ino: Ino, number: BlockNo) -> Result<Rc<Buffer>> {
        let bad = |what| Corruption::of(Location::Block(ino, number), what);
        if !self.geometry.is_data(Run { start: number, blocks: 1 }) {
            return Err(bad("attributes lie where no file can be").into());
        }
        let buffer = self.read(number).await?;
        let sound = |block: &[u8]| xattr::is_whole(block, number, self.geometry.seed);
        if !buffer.is_checked(Checked::Xattrs, sound) {
            return Err(bad("attributes are damaged").into());
        }
        Ok(buffer)
    }
}
