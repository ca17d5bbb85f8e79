//! Group descriptors.

use crate::checksum::{crc, crc16};
use crate::ondisk::bytes::{high16, join32, le16, le32, low16, put_le16};
use crate::units::{BlockNo, GroupNo};

/// No inode of the group was ever used, and its bitmap of inodes was not written.
pub(crate) const INODE_UNINIT: u16 = 1;
/// The bitmap of blocks was not written: only the group's own structures are in use.
pub(crate) const BLOCK_UNINIT: u16 = 2;

const FLAGS: usize = 0x12;
const CHECKSUM: usize = 0x1E;
/// Length of a descriptor without upper halves.
const SHORT: usize = 32;

/// The checksum that protects descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorChecksum {
    /// No checksum.
    None,
    /// CRC-16, seeded with the file system's UUID.
    Crc16 {
        /// What it begins with.
        seed: u16,
    },
    /// CRC-32C.
    Crc32c {
        /// What it begins with.
        seed: u32,
    },
}

/// One descriptor, in the bytes of the table's block.
pub(crate) struct Group<'a>(pub(crate) &'a [u8]);

/// One descriptor that is changed; [`GroupMut::seal`] ends the change.
pub(crate) struct GroupMut<'a>(pub(crate) &'a mut [u8]);

impl DescriptorChecksum {
    fn of(self, group: GroupNo, bytes: &[u8]) -> Option<u16> {
        let number = group.0.to_le_bytes();
        match self {
            Self::None => None,
            Self::Crc16 { seed } => {
                let sum = crc16(crc16(seed, &number), &bytes[..CHECKSUM]);
                Some(crc16(sum, &bytes[SHORT..]))
            }
            Self::Crc32c { seed } => {
                let sum = crc(crc(seed, &number), &bytes[..CHECKSUM]);
                Some(low16(crc(crc(sum, &[0; 2]), &bytes[SHORT..])))
            }
        }
    }
}

impl Group<'_> {
    pub(crate) fn is_whole(&self, group: GroupNo, checksum: DescriptorChecksum) -> bool {
        checksum.of(group, self.0).is_none_or(|sum| sum == le16(self.0, CHECKSUM))
    }

    fn upper32(&self, at: usize) -> u32 {
        if self.0.len() > SHORT { le32(self.0, at) } else { 0 }
    }

    fn upper16(&self, at: usize) -> u32 {
        if self.0.len() > SHORT { le16(self.0, at).into() } else { 0 }
    }

    fn number(&self, low: usize, high: usize) -> u32 {
        u32::from(le16(self.0, low)) | self.upper16(high) << 16
    }

    pub(crate) fn block_bitmap(&self) -> BlockNo {
        BlockNo(join32(le32(self.0, 0x0), self.upper32(0x20)))
    }

    pub(crate) fn inode_bitmap(&self) -> BlockNo {
        BlockNo(join32(le32(self.0, 0x4), self.upper32(0x24)))
    }

    pub(crate) fn inode_table(&self) -> BlockNo {
        BlockNo(join32(le32(self.0, 0x8), self.upper32(0x28)))
    }

    pub(crate) fn free_blocks(&self) -> u32 {
        self.number(0xC, 0x2C)
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.number(0xE, 0x2E)
    }

    pub(crate) fn directories(&self) -> u32 {
        self.number(0x10, 0x30)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        le16(self.0, FLAGS) & flag != 0
    }

    /// Inodes at the end of the table that were never used.
    pub(crate) fn unused_inodes(&self) -> u32 {
        self.number(0x1C, 0x32)
    }

    /// Whether `sum` is the checksum of the bitmap of blocks, or of inodes. A short descriptor has
    /// only the lower half of it.
    pub(crate) fn bitmap_matches(&self, kind: BitmapKind, sum: u32) -> bool {
        let (low, high) = kind.checksum_at();
        let is_whole = self.0.len() >= high + 2;
        le16(self.0, low) == low16(sum) && (!is_whole || le16(self.0, high) == high16(sum))
    }
}

/// The kind of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitmapKind {
    /// Blocks of the group.
    Blocks,
    /// Inodes of the group.
    Inodes,
}

impl BitmapKind {
    const fn checksum_at(self) -> (usize, usize) {
        match self {
            Self::Blocks => (0x18, 0x38),
            Self::Inodes => (0x1A, 0x3A),
        }
    }
}

impl GroupMut<'_> {
    fn put(&mut self, low: usize, high: usize, number: u32) {
        put_le16(self.0, low, low16(number));
        if self.0.len() > SHORT {
            put_le16(self.0, high, high16(number));
        }
    }

    pub(crate) fn set_free_blocks(&mut self, blocks: u32) {
        self.put(0xC, 0x2C, blocks);
    }

    pub(crate) fn set_free_inodes(&mut self, inodes: u32) {
        self.put(0xE, 0x2E, inodes);
    }

    pub(crate) fn set_directories(&mut self, directories: u32) {
        self.put(0x10, 0x30, directories);
    }

    pub(crate) fn set_unused_inodes(&mut self, inodes: u32) {
        self.put(0x1C, 0x32, inodes);
    }

    pub(crate) fn clear(&mut self, flag: u16) {
        let flags = le16(self.0, FLAGS) & !flag;
        put_le16(self.0, FLAGS, flags);
    }

    pub(crate) fn set_bitmap_checksum(&mut self, kind: BitmapKind, sum: u32) {
        let (low, high) = kind.checksum_at();
        put_le16(self.0, low, low16(sum));
        if self.0.len() >= high + 2 {
            put_le16(self.0, high, high16(sum));
        }
    }

    /// Computes the descriptor's own checksum.
    pub(crate) fn seal(&mut self, group: GroupNo, checksum: DescriptorChecksum) {
        if let Some(sum) = checksum.of(group, self.0) {
            put_le16(self.0, CHECKSUM, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::bytes::{high32, low32, put_le32};

    /// Puts the places of a group's structures into a descriptor.
    fn set_places(bytes: &mut [u8], places: [BlockNo; 3]) {
        for (place, (low, high)) in places.iter().zip([(0x0, 0x20), (0x4, 0x24), (0x8, 0x28)]) {
            put_le32(bytes, low, low32(place.0));
            if bytes.len() > SHORT {
                put_le32(bytes, high, high32(place.0));
            }
        }
    }

    #[test]
    fn numbers_keep_their_upper_halves_and_no_bit_flip_passes() {
        for (bytes, checksum) in [
            (64, DescriptorChecksum::Crc32c { seed: 5 }),
            (32, DescriptorChecksum::Crc16 { seed: 9 }),
        ] {
            let mut raw = vec![0; bytes];
            set_places(&mut raw, [BlockNo(7), BlockNo(8), BlockNo(9)]);
            let mut group = GroupMut(&mut raw);
            group.set_free_blocks(32_768);
            group.set_unused_inodes(8192);
            group.set_bitmap_checksum(BitmapKind::Inodes, 0xdead_beef);
            group.seal(GroupNo(3), checksum);
            let group = Group(&raw);
            assert_eq!((group.free_blocks(), group.unused_inodes()), (32_768, 8192));
            assert_eq!(group.inode_table(), BlockNo(9));
            assert!(group.bitmap_matches(BitmapKind::Inodes, 0xdead_beef));
            assert!(group.is_whole(GroupNo(3), checksum) && !group.is_whole(GroupNo(4), checksum));
            for bit in 0..bytes * 8 {
                let mut bad = raw.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(!Group(&bad).is_whole(GroupNo(3), checksum), "bit {bit}");
            }
        }
    }
}
