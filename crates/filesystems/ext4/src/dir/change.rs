//! Adding names and taking them away.

use super::Entry;
use crate::error::{Error, Result};
use crate::extents::MAP_CREDITS;
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::ondisk::dirent::{self, DirentFormat};
use crate::ondisk::extent::Extent;
use crate::ondisk::features::compat;
use crate::ondisk::htree::IndexLayout;
use crate::ondisk::inode::{FileKind, RawInode, TimeField, flags};
use crate::units::{BLOCK, BLOCK_SECTORS, FileBlock, Ino, Timestamp};

/// Most blocks that adding or removing a name changes: two blocks may be new, and two nodes of an
/// index may change.
pub(crate) const NAME_CREDITS: usize = 5 + 2 * MAP_CREDITS;

/// The largest directory: 2 GiB.
const BLOCKS_MOST: u64 = 1 << 19;

impl Metadata {
    /// Adds a name that is not there. The caller writes the directory's inode.
    pub(crate) async fn insert_name(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &mut RawInode,
        name: &[u8],
        target: (Ino, FileKind),
    ) -> Result<()> {
        if raw.has_flag(flags::INDEX) {
            return self.insert_indexed(handle, dir, raw, name, target).await;
        }
        let layout = self.layout(dir, raw);
        let blocks = Self::directory_blocks(dir, raw)?;
        for number in (0..blocks).rev() {
            let Some(buffer) = self.leaf(dir, raw, number).await? else { continue };
            if !layout.has_room(&buffer.bytes(), name.len()) {
                continue;
            }
            handle.change(&buffer, |block| layout.insert(block, target.0, target.1, name));
            return Ok(());
        }
        let features = self.geometry.features.compat;
        if blocks == 1 && features & compat::DIR_INDEX != 0 && self.has_known_hash() {
            let first = self.directory_block(dir, raw, 0).await?;
            self.make_index(handle, dir, raw, &first).await?;
            return self.insert_indexed(handle, dir, raw, name, target).await;
        }
        let block = self.append_block(handle, dir, raw).await?;
        handle.change(&block, |block| {
            layout.format(block);
            layout.insert(block, target.0, target.1, name);
        });
        block.set_checked(crate::cache::Checked::DirectoryLeaf);
        Ok(())
    }

    /// A new block of zeroes at a directory's end.
    pub(super) async fn append_block(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &mut RawInode,
    ) -> Result<std::rc::Rc<crate::cache::Buffer>> {
        let number = raw.size() / BLOCK;
        if number >= BLOCKS_MOST {
            return Err(Error::NoSpace);
        }
        let block = self.take_free_block(handle, self.goal(dir)).await?;
        let file = FileBlock(low32(number));
        let extent = Extent { file, block, blocks: 1, written: true };
        self.insert_extent(handle, dir, raw, extent).await?;
        raw.set_sectors(raw.sectors() + BLOCK_SECTORS);
        raw.set_size(raw.size() + BLOCK);
        Ok(handle.create(block))
    }

    /// The first block of a new directory.
    pub(crate) async fn format_directory(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &mut RawInode,
        parent: Ino,
    ) -> Result<()> {
        let layout = self.layout(dir, raw);
        let block = self.append_block(handle, dir, raw).await?;
        handle.change(&block, |block| layout.format_first(block, dir, parent));
        block.set_checked(crate::cache::Checked::DirectoryLeaf);
        Ok(())
    }

    /// Removes a name that was found.
    pub(crate) fn remove_name(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &RawInode,
        entry: &Entry,
    ) {
        let layout = self.layout(dir, raw);
        handle.change(&entry.buffer, |block| layout.remove(block, entry.at));
    }

    /// Makes a name lead to another inode.
    pub(crate) fn redirect_name(
        &self,
        handle: &mut Handle<'_>,
        dir: Ino,
        raw: &RawInode,
        entry: &Entry,
        target: (Ino, FileKind),
    ) {
        let layout = self.layout(dir, raw);
        handle.change(&entry.buffer, |block| {
            dirent::set_ino(block, entry.at, target.0, target.1);
            if entry.in_root {
                IndexLayout { root: true, seed: layout.seed }.seal(block);
            } else {
                layout.seal(block);
            }
        });
    }
}

/// Sets the times of a directory whose names have changed.
pub(crate) fn touch(raw: &mut RawInode, now: Timestamp) {
    raw.set_time(TimeField::Modify, now);
    raw.set_time(TimeField::Change, now);
}

impl DirentFormat {
    /// Whether a name of `name` bytes fits into a block.
    fn has_room(self, block: &[u8], name: usize) -> bool {
        self.records(block).flatten().any(|record| {
            let used = record.ino.map_or(0, |_| dirent::needed(record.name.len()));
            record.len >= used + dirent::needed(name)
        })
    }
}
