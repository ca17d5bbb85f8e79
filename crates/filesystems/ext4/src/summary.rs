//! What a superblock tells without a mount.

use crate::error::{Corruption, Place, Refusal, Result};
use crate::geometry::check_state;
use crate::ondisk::pointer::Pointer;
use crate::ondisk::superblock::{OFFSET, Superblock};
use crate::units::{BLOCK, Ino};

/// What is known of a file system from its superblock. Counts of what is free are those of the
/// last time that it was unmounted.
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
    /// Names of its features, as `tune2fs -O` has them.
    pub features: Vec<&'static str>,
    /// Why it cannot be mounted.
    pub refusal: Option<Refusal>,
    /// The journal's inode.
    pub journal: Ino,
    /// The journal must be replayed, or it is mounted.
    pub needs_recovery: bool,
    /// Somebody found errors in it.
    pub has_errors: bool,
    /// Inodes wait for their end.
    pub has_orphans: bool,
    /// How far it is on its way to MLFS, or back.
    pub pointer: Option<Pointer>,
}

impl Summary {
    /// What the first 4096 bytes of a device tell.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if there is no ext4, [`crate::Error::Corrupt`] if the superblock
    /// is not whole.
    pub fn of(block: &[u8]) -> Result<Self> {
        let superblock = Superblock::decode_loosely(block, OFFSET)?;
        let pointer = superblock.pointer();
        // Of a torn one each half tells what it tells.
        if !superblock.is_whole() && pointer.is_none() {
            return Err(Corruption::of(Place::Superblock, "wrong checksum").into());
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

/// The id as four groups of hexadecimal digits after the first.
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
