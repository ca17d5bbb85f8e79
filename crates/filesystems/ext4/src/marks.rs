//! The marks of MLFS in the superblock and in its copies, which say whose a file system is.
//!
//! The feature bit keeps the kernel and the programs of e2fsprogs away. It must be in every copy,
//! because a mount or a check that is told to use a copy looks only at that copy. The pointer is
//! only in the first superblock, and decides: a file system belongs to MLFS if its stage is
//! [`Stage::Adopted`], whatever the bits say. The pointer lies within one sector, so a torn write
//! leaves the old stage or the new one.
//!
//! A superblock has two sectors, the checksum in the second. A crash can leave one old and one new
//! sector, with a checksum that does not match. Both sectors are accepted if the checksum matches
//! the other value of the bit, or if a whole pointer says that MLFS was at work and all copies have
//! the same shape. [`Copies::mend`] then corrects the checksum.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Completion, Hint, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use crate::cache::read_block;
use crate::error::{Corruption, Location, Result};
use crate::geometry::{Geometry, check_state};
use crate::ondisk::pointer::{Pointer, Stage};
use crate::ondisk::superblock::{OFFSET, Superblock};
use crate::units::{BlockNo, GroupNo};

/// A file system's superblock and all its copies, read from a device that nobody else uses.
pub struct Copies {
    device: Rc<dyn BlockDevice>,
    geometry: Geometry,
    primary: Superblock,
    /// Block 0, in which the first superblock lies.
    block: Bytes,
    /// Whether its two sectors are from different writes.
    is_torn: bool,
    backups: Vec<Backup>,
}

struct Backup {
    group: GroupNo,
    block: BlockNo,
    bytes: Bytes,
    /// `None` if there is no superblock of this file system.
    superblock: Option<Superblock>,
}

/// The marks in the superblock and its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The place of the log file, and the stage of the file system.
    pub pointer: Option<Pointer>,
    /// Whether the first superblock has the bit.
    pub primary: bool,
    /// Whether the first superblock was torn by a crash.
    pub torn: bool,
    /// The groups whose copy has the bit.
    pub backups_with: Vec<GroupNo>,
    /// The groups whose copy lacks the bit.
    pub backups_without: Vec<GroupNo>,
}

impl Marks {
    /// Whether the file system belongs to MLFS.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.pointer.is_some_and(|pointer| pointer.stage == Stage::Adopted)
    }

    /// Whether every copy has the bit.
    #[must_use]
    pub fn are_complete(&self) -> bool {
        self.primary && self.backups_without.is_empty()
    }
}

impl Copies {
    /// Reads the superblock and its copies.
    ///
    /// # Errors
    /// [`crate::Error::Refused`], with advice, for file systems that cannot be mounted. The bit of
    /// MLFS and noted errors are not refused here. [`crate::Error::Corrupt`] if the first
    /// superblock is damaged. Errors of the device.
    pub async fn read(device: Rc<dyn BlockDevice>) -> Result<Self> {
        // What is read here must not be lost by a later power cut.
        device.submit(Request::Flush).await?;
        let block = read_block(&*device, BlockNo(0)).await?;
        let primary = Superblock::decode_loosely(&block, OFFSET)?;
        primary.check_size(device.capabilities().capacity)?;
        let geometry = Geometry::of(&without_bit(&primary))?;
        let mut copies = Self {
            device,
            backups: Vec::new(),
            is_torn: !primary.is_whole(),
            primary,
            block,
            geometry,
        };
        copies.backups = copies.read_backups().await?;
        copies.check_torn()?;
        Ok(copies)
    }

    async fn read_backups(&self) -> Result<Vec<Backup>> {
        let mut backups = Vec::new();
        for group in self.geometry.superblock_groups() {
            let block = self.geometry.first_block(group);
            let bytes = read_block(&*self.device, block).await?;
            let superblock = Superblock::decode_loosely(&bytes, 0).ok();
            let superblock = superblock.filter(|copy| copy.uuid() == self.primary.uuid());
            backups.push(Backup { group, block, bytes, superblock });
        }
        Ok(backups)
    }

    /// Checks that a wrong checksum is explained by a write of MLFS that a crash tore.
    fn check_torn(&self) -> Result<()> {
        let mut copies = self.backups.iter().filter_map(|backup| backup.superblock.as_ref());
        let explained = self.primary.is_torn()
            || self.primary.pointer().is_some()
                && copies.all(|copy| copy.has_same_shape(&self.primary));
        if self.is_torn && !explained {
            return Err(Corruption::of(Location::Superblock, "wrong checksum").into());
        }
        Ok(())
    }

    /// The marks.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let of = |wanted: bool| {
            let has = move |copy: &Superblock| copy.is_mlfs() == wanted;
            let some = self
                .backups
                .iter()
                .filter(move |backup| backup.superblock.as_ref().is_some_and(has));
            some.map(|backup| backup.group).collect()
        };
        Marks {
            pointer: self.primary.pointer(),
            primary: self.primary.is_mlfs(),
            torn: self.is_torn,
            backups_with: of(true),
            backups_without: of(false),
        }
    }

    /// The file system's id.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.primary.uuid()
    }

    /// # Errors
    /// [`crate::Error::Refused`] if errors were found: e2fsck must look first.
    pub fn check_errors(&self) -> Result<()> {
        Ok(check_state(&self.primary)?)
    }

    /// Whether the journal must be replayed before the file system may be read.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.primary.needs_recovery()
    }

    /// Whether there are orphans.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.primary.last_orphan() != 0
    }

    /// Whether the bytes of the pointer are in use by other software.
    #[must_use]
    pub fn has_foreign_pointer(&self) -> bool {
        self.primary.has_foreign_pointer()
    }

    /// The blocks of a group, and the number of groups.
    #[must_use]
    pub fn groups(&self) -> (u32, u32) {
        (self.geometry.blocks_per_group, self.geometry.groups)
    }

    /// Corrects the checksum of a torn superblock.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mend(&mut self) -> Result<()> {
        if !self.is_torn {
            return Ok(());
        }
        self.write_primary().await
    }

    /// Sets or clears the pointer and the bit of the first superblock, durably. A crash leaves the
    /// old pointer or the new one, and the bit may be old or new with either.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mark_primary(&mut self, pointer: Option<Pointer>, bit: bool) -> Result<()> {
        self.primary.set_pointer(pointer);
        self.primary.set_mlfs(bit);
        self.write_primary().await
    }

    /// Notes in the first superblock, durably, that errors were found: mounts are refused until
    /// e2fsck has run.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mark_errors(&mut self) -> Result<()> {
        self.primary.set_errors();
        self.write_primary().await
    }

    /// Clears the note of errors, durably. Only for a view of a disk, which is read to find out
    /// what is wrong.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn forget_errors(&mut self) -> Result<()> {
        self.primary.clear_errors();
        self.write_primary().await
    }

    async fn write_primary(&mut self) -> Result<()> {
        let mut block = self.block.to_vec();
        self.primary.encode(&mut block);
        self.block = block.into();
        self.is_torn = false;
        self.write(BlockNo(0), self.block.clone()).await?;
        self.flush().await
    }

    /// Sets or clears the bit in all copies, durably. A crash leaves it set in some and clear in
    /// others.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mark_backups(&mut self, bit: bool) -> Result<()> {
        let mut writes = Vec::new();
        for backup in &mut self.backups {
            let Some(superblock) = &mut backup.superblock else { continue };
            // A damaged copy stays as it is: no program uses it.
            let is_sound = superblock.is_whole() || superblock.is_torn();
            if !is_sound || superblock.is_whole() && superblock.is_mlfs() == bit {
                continue;
            }
            superblock.set_mlfs(bit);
            let mut bytes = backup.bytes.to_vec();
            superblock.encode_at(&mut bytes, 0);
            backup.bytes = bytes.into();
            writes.push((backup.block, backup.bytes.clone()));
        }
        let writes = writes.into_iter().map(|(block, bytes)| self.write(block, bytes));
        let writes: Vec<Completion> = writes.collect();
        all_done(writes).await?;
        self.flush().await
    }

    fn write(&self, block: BlockNo, bytes: Bytes) -> Completion {
        let (extent, payload) = (block.sectors(), Payload::bytes(bytes));
        self.device.submit(Request::Write { extent, payload, fua: false, hint: Hint::None })
    }

    /// Makes all writes to the device durable.
    ///
    /// # Errors
    /// That of the device.
    pub async fn flush(&self) -> Result<()> {
        if !is(Bug::MlfsMarksNotFlushed) {
            self.device.submit(Request::Flush).await?;
        }
        Ok(())
    }
}

/// The superblock without the bit of MLFS.
pub(crate) fn without_bit(superblock: &Superblock) -> Superblock {
    let mut plain = superblock.clone();
    plain.set_mlfs(false);
    plain
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("marks", &self.marks()).finish_non_exhaustive()
    }
}
