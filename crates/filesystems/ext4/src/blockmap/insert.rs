//! Mapping blocks.

use super::{Table, nonzero};
use crate::error::{Corruption, Error, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::blockmap::Level;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::RawInode;
use crate::units::{BLOCK_SECTORS, FileBlock, Ino};

impl Metadata {
    /// Maps blocks of a file where it has a hole. The caller writes the inode. The blocks must have
    /// their pointers in one table, so that the handle's credits suffice: see
    /// [`Metadata::insert_most`].
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no block for a table.
    pub(crate) async fn insert_pointers(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        new: Extent,
    ) -> Result<()> {
        if !new.written {
            return Err(Error::Unsupported("blocks of zeroes in a file that is mapped by blocks"));
        }
        let too_far = |_| Error::Unsupported("a block whose number is longer than a pointer");
        let last = u32::try_from(new.block.0 + u64::from(new.blocks) - 1).map_err(too_far)?;
        let blocks = last - (new.blocks - 1)..=last;
        let mut at = u64::from(new.file.0);
        let mut numbers = blocks.peekable();
        while numbers.peek().is_some() {
            let (mut table, slot) = self.last_table(handle, ino, raw, at).await?;
            let direct =
                (slot..table.level.len()).filter(|slot| table.level.child(*slot).is_none());
            let own: Vec<(usize, u32)> = direct.zip(&mut numbers).collect();
            if own.iter().any(|(slot, _)| table.get(*slot) != 0) {
                return Err(Corruption::inode(ino, "blocks are mapped that were not").into());
            }
            at += own.len() as u64;
            table.put(handle, raw, own.into_iter());
        }
        Ok(())
    }

    /// How many blocks from `at` on have their pointers in the same table.
    pub(crate) fn pointers_left(at: FileBlock) -> u32 {
        let (mut level, at) = (Level::Root, u64::from(at.0));
        while let Some(slot) = level.slot_of(at) {
            match level.child(slot) {
                Some(child) => level = child,
                None => {
                    let same = (slot..level.len()).filter(|slot| level.child(*slot).is_none());
                    return manylogs_block::narrow(same.count() as u64);
                }
            }
        }
        0
    }

    /// The table with the pointer to block `at`, made if it is missing, and the pointer's index.
    async fn last_table(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        at: u64,
    ) -> Result<(Table, usize)> {
        let mut table = Table::root(raw);
        loop {
            let slot = table.level.slot_of(at).ok_or(Error::TooLarge)?;
            let Some(level) = table.level.child(slot) else { return Ok((table, slot)) };
            table = match nonzero(table.get(slot)) {
                Some(block) => self.table(ino, block, level).await?,
                None => self.new_table(handle, ino, raw, &mut table, (slot, level)).await?,
            };
        }
    }

    async fn new_table(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        above: &mut Table,
        (slot, level): (usize, Level),
    ) -> Result<Table> {
        let block = self.take_block(handle, self.goal(ino)).await?;
        let too_far = |_| Error::Unsupported("a block whose number is longer than a pointer");
        let number = u32::try_from(block.0).map_err(too_far)?;
        raw.set_sectors(raw.sectors() + BLOCK_SECTORS);
        let buffer = handle.create(block);
        above.put(handle, raw, std::iter::once((slot, number)));
        Ok(Table { level, bytes: buffer.bytes(), buffer: Some(buffer) })
    }
}
