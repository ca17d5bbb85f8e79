//! Whose a file system is: the marks of MLFS in the superblock and in its copies.
//!
//! The feature bit keeps the kernel and the programs of e2fsprogs away, and it must be in every
//! copy: a mount or a check that is told to use a copy looks at that one alone. The pointer is in
//! the first superblock only, and decides: a file system belongs to MLFS if its stage is
//! [`Stage::Adopted`], whatever the bits say. It changes in one sector, so a torn write leaves the
//! old stage or the new one.
//!
//! A superblock has two sectors, the checksum in the second. A crash can leave sectors of two
//! times, with a checksum that fits neither. Where the checksum fits the other value of the bit,
//! or a whole pointer says that MLFS was at work and a copy has the same shape, each sector is
//! believed, and [`Copies::mend`] makes the checksum fit.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Completion, Hint, Payload, Request, all_done};
use manylogs_plant::{Bug, is};

use crate::cache::read_block;
use crate::error::{Corruption, Place, Result};
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
    /// Its two sectors are from different times.
    is_torn: bool,
    backups: Vec<Backup>,
}

struct Backup {
    group: GroupNo,
    block: BlockNo,
    bytes: Bytes,
    /// `None` if there is no superblock where one should be: no program takes it for one.
    superblock: Option<Superblock>,
}

/// What the copies say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Where the log file is, and how far the file system is on its way.
    pub pointer: Option<Pointer>,
    /// The first superblock has the bit.
    pub primary: bool,
    /// The first superblock was torn by a crash.
    pub torn: bool,
    /// The groups whose copy has the bit.
    pub backups_with: Vec<GroupNo>,
    /// The groups whose copy has not.
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
    /// Reads the copies.
    ///
    /// # Errors
    /// [`crate::Error::Refused`], with what to do, for file systems that cannot be mounted; the bit
    /// of MLFS and errors that were found are no such reason. [`crate::Error::Corrupt`] if the
    /// first superblock is damaged. Errors of the device.
    pub async fn read(device: Rc<dyn BlockDevice>) -> Result<Self> {
        // What was found must not be lost with the power afterwards.
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

    /// Whether a wrong checksum is explained by a write of ours that a crash tore.
    fn check_torn(&self) -> Result<()> {
        let mut copies = self.backups.iter().filter_map(|backup| backup.superblock.as_ref());
        let explained = self.primary.is_torn()
            || self.primary.pointer().is_some()
                && copies.all(|copy| copy.has_same_shape(&self.primary));
        if self.is_torn && !explained {
            return Err(Corruption::of(Place::Superblock, "wrong checksum").into());
        }
        Ok(())
    }

    /// What they say.
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

    /// The journal must be replayed before anybody may look at the file system.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.primary.needs_recovery()
    }

    /// Inodes wait for their end.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.primary.last_orphan() != 0
    }

    /// The bytes that the pointer needs are in use by a program that is not known here.
    #[must_use]
    pub fn has_foreign_pointer(&self) -> bool {
        self.primary.has_foreign_pointer()
    }

    /// Blocks of a group, and groups.
    #[must_use]
    pub fn groups(&self) -> (u32, u32) {
        (self.geometry.blocks_per_group, self.geometry.groups)
    }

    /// Makes the checksum of a torn superblock fit.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mend(&mut self) -> Result<()> {
        if !self.is_torn {
            return Ok(());
        }
        self.write_primary().await
    }

    /// Gives the first superblock this pointer and the bit, or takes them away, and makes it
    /// durable. A crash leaves the old pointer or the new one; the bit may be either.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mark_primary(&mut self, pointer: Option<Pointer>, bit: bool) -> Result<()> {
        self.primary.set_pointer(pointer);
        self.primary.set_mlfs(bit);
        self.write_primary().await
    }

    /// Says in the first superblock that errors were found, durably: mounts are refused until
    /// e2fsck has looked.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mark_errors(&mut self) -> Result<()> {
        self.primary.set_errors();
        self.write_primary().await
    }

    /// Takes back that errors were found, durably. Only for a view of a disk, which somebody looks
    /// at to find out what is wrong.
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

    /// Gives all copies the bit, or takes it away, and makes that durable. A crash leaves some with
    /// it and some without.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn mark_backups(&mut self, bit: bool) -> Result<()> {
        let mut writes = Vec::new();
        for backup in &mut self.backups {
            let Some(superblock) = &mut backup.superblock else { continue };
            // What is damaged stays so: nobody believes it.
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

    /// Makes durable whatever was written to the device.
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

/// The superblock as it is when the file system belongs to nobody.
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
