//! Files that are mapped by blocks, as ext3 has them: pointers in tables, without checksums.
//!
//! They are read, written, cut and removed like others. They cannot have unwritten blocks, which
//! read as zeroes: only extents can tell of those.

mod insert;
mod remove;

use std::rc::Rc;

use bytes::Bytes;

use crate::cache::Buffer;
use crate::error::{Corruption, Error, Location, Result};
use crate::extents::Mapping;
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::blockmap::{Level, SIZE_MOST, pointer};
use crate::ondisk::bytes::{low32, put_le32};
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{RawInode, flags};
use crate::units::{BlockNo, FileBlock, Ino, Run};

/// The pointers of an inode, or of a block of pointers.
struct Table {
    level: Level,
    /// The table's block; `None` if the pointers are in the inode.
    buffer: Option<Rc<Buffer>>,
    bytes: Bytes,
}

impl Table {
    fn root(raw: &RawInode) -> Self {
        let bytes = Bytes::copy_from_slice(raw.map());
        Self { level: Level::Root, buffer: None, bytes }
    }

    fn get(&self, slot: usize) -> u32 {
        pointer(&self.bytes, slot)
    }

    fn is_empty(&self) -> bool {
        (0..self.level.len()).all(|slot| self.get(slot) == 0)
    }

    /// Changes pointers, in the block or in the inode. The caller writes the inode.
    fn put(
        &mut self,
        handle: &mut Handle<'_>,
        raw: &mut RawInode,
        pointers: impl Iterator<Item = (usize, u32)>,
    ) {
        let change = |bytes: &mut [u8]| {
            pointers.for_each(|(slot, pointer)| put_le32(bytes, 4 * slot, pointer));
        };
        if let Some(buffer) = &self.buffer {
            handle.change(buffer, change);
            self.bytes = buffer.bytes();
        } else {
            change(raw.map_mut());
            self.bytes = Bytes::copy_from_slice(raw.map());
        }
    }
}

impl Metadata {
    /// Where the file's blocks from `at` are, as far as one table of pointers tells. The caller
    /// holds the tree lock.
    pub(crate) async fn map_pointers(
        &self,
        ino: Ino,
        raw: &RawInode,
        at: FileBlock,
    ) -> Result<Mapping> {
        let from = u64::from(at.0);
        let mut table = Table::root(raw);
        loop {
            let Some(slot) = table.level.slot_of(from) else {
                return Ok(Mapping::Hole(low32(FileBlock::MAX - from)));
            };
            let Some(level) = table.level.child(slot) else {
                return self.mapped_in(ino, &table, slot, at);
            };
            let Some(block) = nonzero(table.get(slot)) else {
                let left = table.level.covers(slot).end.min(FileBlock::MAX) - from;
                return Ok(Mapping::Hole(low32(left)));
            };
            table = self.table(ino, block, level).await?;
        }
    }

    /// The run of blocks, or the hole, that begins at pointer `slot`, within the table.
    fn mapped_in(&self, ino: Ino, table: &Table, slot: usize, at: FileBlock) -> Result<Mapping> {
        let first = table.get(slot);
        let goes_on = |(number, slot): (u32, usize)| {
            let expected = if first == 0 { Some(0) } else { first.checked_add(number) };
            table.level.child(slot).is_none() && Some(table.get(slot)) == expected
        };
        let slots = (0..).zip(slot..table.level.len());
        let blocks: u32 = manylogs_block::narrow(
            slots.take_while(|(number, slot)| goes_on((*number, *slot))).count() as u64,
        );
        let Some(block) = nonzero(first) else { return Ok(Mapping::Hole(blocks)) };
        if !self.geometry.is_data(Run { start: block, blocks }) {
            return Err(Corruption::inode(ino, "a block of it lies where no file can be").into());
        }
        Ok(Mapping::Mapped(Extent { file: at, block, blocks, written: true }))
    }

    async fn table(&self, ino: Ino, block: BlockNo, level: Level) -> Result<Table> {
        if !self.geometry.is_data(Run { start: block, blocks: 1 }) {
            let what = "a table of its blocks lies where no file can be";
            return Err(Corruption::of(Location::Block(ino, block), what).into());
        }
        let buffer = self.read(block).await?;
        Ok(Table { level, bytes: buffer.bytes(), buffer: Some(buffer) })
    }

    /// Checks that a file may grow to `end` bytes, and have new blocks.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and [`Error::Unsupported`] on file systems whose blocks have longer
    /// numbers than pointers.
    pub(crate) fn check_growth(&self, raw: &RawInode, end: u64) -> Result<()> {
        if raw.has_flag(flags::EXTENTS) {
            return Ok(());
        }
        if end > SIZE_MOST {
            return Err(Error::TooLarge);
        }
        if self.geometry.blocks > 1 << 32 {
            return Err(Error::Unsupported(
                "writing files mapped by blocks on a file system of more than 16 TiB",
            ));
        }
        Ok(())
    }
}

fn nonzero(pointer: u32) -> Option<BlockNo> {
    (pointer != 0).then(|| BlockNo(pointer.into()))
}
