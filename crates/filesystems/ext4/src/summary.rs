//! Reading a superblock without a mount.

use crate::error::{Corruption, Location, Refusal, Result};
use crate::geometry::check_state;
use crate::ondisk::pointer::Pointer;
use crate::ondisk::superblock::{OFFSET, Superblock};
use crate::units::{BLOCK, Ino};

/// What the superblock of a file system says. Free counts are those of the last unmount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its id, as `blkid` writes it.
    pub uuid: String,
    /// Its label; empty if there is none.
    pub label: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks, and those of them that are free.
    pub blocks: u64,
    /// See [`Summary::blocks`].
    pub free_blocks: u64,
    /// Inodes, and those of them that are free.
    pub inodes: u64,
    /// See [`Summary::inodes`].
    pub free_inodes: u64,
    /// Names of its features, as in `tune2fs -O`.
    pub features: Vec<&'static str>,
    /// Why it cannot be mounted, if so.
    pub refusal: Option<Refusal>,
    /// The journal's inode.
    pub journal: Ino,
    /// Whether the journal must be replayed; also set while it is mounted.
    pub needs_recovery: bool,
    /// Whether errors were found in it.
    pub has_errors: bool,
    /// Whether there are orphans.
    pub has_orphans: bool,
    /// The pointer to its log file, with the stage.
    pub pointer: Option<Pointer>,
}

impl Summary {
    /// Reads the first 4096 bytes of a device.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if there is no ext4, [`crate::Error::Corrupt`] if the superblock
    /// is not whole.
    pub fn of(block: &[u8]) -> Result<Self> {
        let superblock = Superblock::decode_loosely(block, OFFSET)?;
        let pointer = superblock.pointer();
        // With a pointer, a torn superblock is accepted: each sector counts as it is.
        if !superblock.is_whole() && pointer.is_none() {
            return Err(Corruption::of(Location::Superblock, "wrong checksum").into());
        }
        let features = superblock.features();
        let size = Some(Refusal::BlockSize(superblock.block_bytes()));
        let refusal = size.filter(|_| superblock.block_bytes() != BLOCK);
        let refusal = refusal.or_else(|| features.check().err());
        Ok(Self {
            uuid: dashed(superblock.uuid()),
            label: String::from_utf8_lossy(&superblock.label()).into_owned(),
            block_bytes: superblock.block_bytes(),
            blocks: superblock.blocks(),
            free_blocks: superblock.free_blocks(),
            inodes: superblock.inodes().into(),
            free_inodes: superblock.free_inodes().into(),
            features: features.names(),
            refusal: refusal.or_else(|| check_state(&superblock).err()),
            journal: superblock.journal(),
            needs_recovery: superblock.needs_recovery(),
            has_errors: superblock.has_errors(),
            has_orphans: superblock.last_orphan() != 0,
            pointer,
        })
    }
}

/// The id as text: five groups of hexadecimal digits.
fn dashed(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (at, byte) in uuid.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.extend(
            [byte >> 4, byte & 15]
                .map(|digit| char::from_digit(digit.into(), 16))
                .into_iter()
                .flatten(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_others_write_it() {
        let uuid = std::array::from_fn(|at| u8::try_from(at * 17).unwrap());
        assert_eq!(dashed(uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
