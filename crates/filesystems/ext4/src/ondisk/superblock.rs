//! The superblock: bytes 1024 to 2047 of the device, which are part of block 0.

mod damage;

use manylogs_block::{SECTOR_BYTES, Sectors};

use crate::checksum::{NO_SEED, crc};
use crate::error::{Corruption, Location, Refusal, Result};
use crate::ondisk::bytes::{high32, join32, le16, le32, low32, put_le16, put_le32};
use crate::ondisk::features::{Features, compat, incompat, ro_compat};
use crate::ondisk::inode::{MAP_BYTES, RawInode};
use crate::ondisk::pointer::{POINTER, Pointer};
use crate::units::{BLOCK, Ino};

pub(crate) use damage::Damage;

/// Where the superblock begins in block 0.
pub(crate) const OFFSET: usize = 1024;
/// Its length.
pub(crate) const BYTES: usize = 1024;

const MAGIC: u16 = 0xEF53;
const CHECKSUM: usize = 0x3FC;
const LAST_ORPHAN: usize = 0xE8;
const STATE: usize = 0x3A;
/// Which copy of the journal's inode there is: 1 is that of the map of its blocks and its size.
const JOURNAL_BACKUP_TYPE: usize = 0xFD;
const JOURNAL_BACKUP: usize = 0x10C;
/// The file system was unmounted cleanly.
const STATE_VALID: u16 = 1;
/// State bit: errors were found.
const STATE_ERROR: u16 = 2;

/// The bytes of a superblock, unknown fields included.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Superblock(Box<[u8; BYTES]>);

impl Superblock {
    /// The superblock in `block`, which is block 0. Only its checksum is checked; its fields may be
    /// impossible.
    pub(crate) fn decode(block: &[u8]) -> Result<Self> {
        let found = Self::decode_loosely(block, OFFSET)?;
        if !found.is_whole() {
            return Err(Corruption::of(Location::Superblock, "wrong checksum").into());
        }
        Ok(found)
    }

    /// The superblock at `offset` of a block, without a check of its checksum.
    pub(crate) fn decode_loosely(block: &[u8], offset: usize) -> Result<Self, Refusal> {
        let mut bytes = Box::new([0; BYTES]);
        bytes.copy_from_slice(&block[offset..offset + BYTES]);
        let found = Self(bytes);
        let magic = found.u16(0x38);
        if magic == MAGIC { Ok(found) } else { Err(Refusal::NotExt4(magic)) }
    }

    /// Writes it into `block`, which is block 0.
    pub(crate) fn encode(&mut self, block: &mut [u8]) {
        self.encode_at(block, OFFSET);
    }

    /// Writes it into a block at `offset`, e.g. into a copy.
    pub(crate) fn encode_at(&mut self, block: &mut [u8], offset: usize) {
        if self.has_checksum() {
            let checksum = self.checksum();
            put_le32(&mut *self.0, CHECKSUM, checksum);
        }
        block[offset..offset + BYTES].copy_from_slice(&*self.0);
    }

    /// Whether the checksum is right, if there is one.
    pub(crate) fn is_whole(&self) -> bool {
        !self.has_checksum() || le32(&*self.0, CHECKSUM) == self.checksum()
    }

    /// Whether the checksum is right for the other value of [`incompat::MLFS`]: one sector of the
    /// superblock is older than the other.
    pub(crate) fn is_torn(&self) -> bool {
        let mut other = self.clone();
        other.set_mlfs(!self.is_mlfs());
        !self.is_whole() && other.is_whole()
    }

    /// Whether both have the same values in fields that never change while a file system is in use.
    pub(crate) fn has_same_shape(&self, other: &Self) -> bool {
        let same = |range: std::ops::Range<usize>| self.0[range.clone()] == other.0[range];
        same(0..8)
            && same(0x14..0x2C)
            && same(0x4C..0x50)
            && same(0x54..0x5A)
            && same(0x68..0x78)
            && same(0x150..0x154)
    }

    /// Whether it has the bit of MLFS, which keeps other programs away.
    pub(crate) fn is_mlfs(&self) -> bool {
        self.features().incompat & incompat::MLFS != 0
    }

    /// See [`Superblock::is_mlfs`].
    pub(crate) fn set_mlfs(&mut self, is: bool) {
        let bits = self.u32(0x60) & !incompat::MLFS;
        put_le32(&mut *self.0, 0x60, bits | if is { incompat::MLFS } else { 0 });
    }

    /// The pointer to the log file, if there is a whole one.
    pub(crate) fn pointer(&self) -> Option<Pointer> {
        Pointer::decode(&*self.0, self.uuid())
    }

    /// Writes or clears the pointer to the log file.
    pub(crate) fn set_pointer(&mut self, pointer: Option<Pointer>) {
        let uuid = self.uuid();
        match pointer {
            Some(pointer) => pointer.encode(&mut *self.0, uuid),
            None => self.0[POINTER].fill(0),
        }
    }

    /// Whether the bytes of the pointer are in use by other software.
    pub(crate) fn has_foreign_pointer(&self) -> bool {
        self.pointer().is_none() && self.0[POINTER].iter().any(|byte| *byte != 0)
    }

    fn has_checksum(&self) -> bool {
        self.features().ro_compat & ro_compat::METADATA_CSUM != 0
    }

    fn checksum(&self) -> u32 {
        crc(NO_SEED, &self.0[..CHECKSUM])
    }

    fn u16(&self, at: usize) -> u16 {
        le16(&*self.0, at)
    }

    fn u32(&self, at: usize) -> u32 {
        le32(&*self.0, at)
    }

    /// A number in two halves; the upper one counts only with the feature 64bit.
    fn wide(&self, low: usize, high: usize) -> u64 {
        let is_wide = self.features().incompat & incompat::BITS64 != 0;
        join32(self.u32(low), if is_wide { self.u32(high) } else { 0 })
    }

    pub(crate) fn features(&self) -> Features {
        Features { compat: self.u32(0x5C), incompat: self.u32(0x60), ro_compat: self.u32(0x64) }
    }

    pub(crate) fn inodes(&self) -> u32 {
        self.u32(0)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.wide(0x4, 0x150)
    }

    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.wide(0x8, 0x154)
    }

    /// The user, and the group, that may have reserved blocks besides root.
    pub(crate) fn reserved_for(&self) -> (u32, u32) {
        (self.u16(0x50).into(), self.u16(0x52).into())
    }

    pub(crate) fn first_data_block(&self) -> u32 {
        self.u32(0x14)
    }

    /// Bytes of a block, if the field makes sense.
    pub(crate) fn block_bytes(&self) -> u64 {
        1024_u64.checked_shl(self.u32(0x18)).unwrap_or(0)
    }

    pub(crate) fn blocks_per_group(&self) -> u32 {
        self.u32(0x20)
    }

    pub(crate) fn inodes_per_group(&self) -> u32 {
        self.u32(0x28)
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.u16(STATE) & STATE_ERROR != 0
    }

    pub(crate) fn revision(&self) -> u32 {
        self.u32(0x4C)
    }

    pub(crate) fn first_free_inode(&self) -> u32 {
        self.u32(0x54)
    }

    pub(crate) fn inode_bytes(&self) -> u16 {
        self.u16(0x58)
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.0[0x68..0x78]);
        uuid
    }

    /// The label, without the zeroes at its end.
    pub(crate) fn label(&self) -> Vec<u8> {
        self.0[0x78..0x88].iter().copied().take_while(|byte| *byte != 0).collect()
    }

    pub(crate) fn reserved_descriptor_blocks(&self) -> u16 {
        self.u16(0xCE)
    }

    pub(crate) fn journal(&self) -> Ino {
        Ino(self.u32(0xE0))
    }

    /// Whether it names a device with its journal.
    pub(crate) fn has_journal_elsewhere(&self) -> bool {
        self.u32(0xE4) != 0
    }

    /// The first inode of the list of orphans; zero if it is empty.
    pub(crate) fn last_orphan(&self) -> u32 {
        self.u32(LAST_ORPHAN)
    }

    pub(crate) fn set_last_orphan(&mut self, first: u32) {
        put_le32(&mut *self.0, LAST_ORPHAN, first);
    }

    pub(crate) fn hash_seed(&self) -> [u32; 4] {
        [0xEC, 0xF0, 0xF4, 0xF8].map(|at| self.u32(at))
    }

    pub(crate) fn hash_version(&self) -> u8 {
        self.0[0xFC]
    }

    /// Whether hashes treat the bytes of names as unsigned.
    pub(crate) fn hashes_unsigned(&self) -> bool {
        self.u32(0x160) & 2 != 0
    }

    pub(crate) fn descriptor_bytes(&self) -> u16 {
        if self.features().incompat & incompat::BITS64 == 0 { 32 } else { self.u16(0xFE) }
    }

    /// How many groups have their bitmaps and tables in one place.
    pub(crate) fn groups_in_flex(&self) -> u32 {
        let log = self.0[0x174];
        let has = self.features().incompat & incompat::FLEX_BG != 0;
        if has && log < 32 { 1 << log } else { 1 }
    }

    pub(crate) fn first_meta_group(&self) -> u32 {
        self.u32(0x104)
    }

    pub(crate) fn extra_inode_bytes(&self) -> u16 {
        self.u16(0x15E)
    }

    pub(crate) fn backup_groups(&self) -> [u32; 2] {
        [0x24C, 0x250].map(|at| self.u32(at))
    }

    /// The seed of checksums of metadata.
    pub(crate) fn seed(&self) -> u32 {
        if self.features().incompat & incompat::CSUM_SEED == 0 {
            crc(NO_SEED, &self.uuid())
        } else {
            self.u32(0x270)
        }
    }

    pub(crate) fn needs_recovery(&self) -> bool {
        self.features().incompat & incompat::RECOVER != 0
    }

    /// Sets whether the journal must be replayed before the file system may be read.
    pub(crate) fn set_needs_recovery(&mut self, needs: bool) {
        let bits = self.u32(0x60) & !incompat::RECOVER;
        put_le32(&mut *self.0, 0x60, bits | if needs { incompat::RECOVER } else { 0 });
    }

    /// Notes that there may be files of 2 GiB and more.
    pub(crate) fn set_has_large_files(&mut self) {
        let features = self.u32(0x64) | ro_compat::LARGE_FILE;
        put_le32(&mut *self.0, 0x64, features);
    }

    /// Notes that there may be blocks of extended attributes.
    pub(crate) fn set_has_xattrs(&mut self) {
        let features = self.u32(0x5C) | compat::EXT_ATTR;
        put_le32(&mut *self.0, 0x5C, features);
    }

    /// Notes that errors were found: the file system must be checked before it is mounted.
    pub(crate) fn set_errors(&mut self) {
        let state = self.u16(STATE) | STATE_ERROR;
        put_le16(&mut *self.0, STATE, state);
    }

    /// See [`Superblock::set_errors`].
    pub(crate) fn clear_errors(&mut self) {
        let state = self.u16(STATE) & !STATE_ERROR;
        put_le16(&mut *self.0, STATE, state);
    }

    pub(crate) fn set_clean(&mut self) {
        let state = self.u16(STATE) | STATE_VALID;
        put_le16(&mut *self.0, STATE, state);
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.wide(0xC, 0x158)
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.u32(0x10)
    }

    /// Keeps a copy of where the journal lies, which e2fsck takes if the journal's inode is
    /// damaged: what the inode says of it.
    pub(crate) fn back_up_journal(&mut self, raw: &RawInode) {
        self.0[JOURNAL_BACKUP_TYPE] = 1;
        self.0[JOURNAL_BACKUP..JOURNAL_BACKUP + MAP_BYTES].copy_from_slice(raw.map());
        put_le32(&mut *self.0, JOURNAL_BACKUP + MAP_BYTES, high32(raw.size()));
        put_le32(&mut *self.0, JOURNAL_BACKUP + MAP_BYTES + 4, low32(raw.size()));
    }

    /// The totals, which programs like `dumpe2fs` show.
    pub(crate) fn set_free(&mut self, blocks: u64, inodes: u32) {
        put_le32(&mut *self.0, 0xC, low32(blocks));
        if self.features().incompat & incompat::BITS64 != 0 {
            put_le32(&mut *self.0, 0x158, high32(blocks));
        }
        put_le32(&mut *self.0, 0x10, inodes);
    }

    /// Checks that the device is large enough, and that the block size is 4096.
    pub(crate) fn check_size(&self, device: Sectors) -> Result<(), Refusal> {
        if self.block_bytes() != BLOCK {
            return Err(Refusal::BlockSize(self.block_bytes()));
        }
        let (blocks, device) = (self.blocks(), device.0 / (BLOCK / SECTOR_BYTES));
        if blocks > device {
            return Err(Refusal::DeviceTooSmall { blocks, device });
        }
        Ok(())
    }
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("blocks", &self.blocks())
            .field("inodes", &self.inodes())
            .field("features", &self.features())
            .finish_non_exhaustive()
    }
}
