//! Extended attributes: in an inode behind its fields, and in a block that inodes with the same
//! attributes may share.

use bytes::Bytes;

use crate::checksum::crc;
use crate::ondisk::bytes::{le16, le32, put_le16, put_le32};
use crate::units::{BLOCK_BYTES, BlockNo};

/// Magic number before the attributes in an inode, and at the start of a block of them.
pub(crate) const MAGIC: u32 = 0xEA02_0000;
/// Offset of the attributes in a block: behind magic number, count of users, count of blocks, hash
/// and checksum.
const HEADER: usize = 32;
const USERS: usize = 4;
const BLOCKS: usize = 8;
const HASH: usize = 12;
const CHECKSUM: usize = 16;
/// Bytes of an entry without its name.
const ENTRY: usize = 16;
/// Bytes of zeroes behind the last entry.
const END: usize = 4;

/// The name of an attribute: a code for its prefix, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u8,
    pub(crate) name: Vec<u8>,
}

/// An attribute with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xattr {
    pub(crate) key: Key,
    pub(crate) value: Bytes,
}

impl Xattr {
    /// Bytes that it takes.
    fn needed(&self) -> usize {
        entry_bytes(self.key.name.len()) + self.value.len().next_multiple_of(4)
    }

    /// The hash in an entry, by which a block is found when another inode has the same attributes.
    fn hash(&self) -> u32 {
        let name = self.key.name.iter();
        let hash = name.fold(0_u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
        self.value.chunks(4).fold(hash, |hash, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

const fn entry_bytes(name: usize) -> usize {
    (ENTRY + name).next_multiple_of(4)
}

/// Whether attributes fit into an area of `bytes` bytes.
pub(crate) fn fit(xattrs: &[Xattr], bytes: usize) -> bool {
    xattrs.is_empty() || xattrs.iter().map(Xattr::needed).sum::<usize>() + END <= bytes
}

/// Whether attributes fit into a block.
pub(crate) fn fit_block(xattrs: &[Xattr]) -> bool {
    fit(xattrs, BLOCK_BYTES - HEADER)
}

/// The attributes in `area` from `first` on; `None` if they say something impossible.
pub(crate) fn decode(area: &[u8], first: usize) -> Option<Vec<Xattr>> {
    let (mut xattrs, mut at, mut values) = (Vec::new(), first, area.len());
    while le32(area.get(at..at + 4)?, 0) != 0 {
        let entry = area.get(at..at + ENTRY)?;
        let (name, index) = (usize::from(entry[0]), entry[1]);
        let start = usize::from(le16(entry, 2));
        let len = usize::try_from(le32(entry, 8)).ok()?;
        let is_here = le32(entry, 4) == 0;
        let name = area.get(at + ENTRY..at + ENTRY + name)?.to_vec();
        at += entry_bytes(name.len());
        let value = if len == 0 {
            Bytes::new()
        } else {
            values = values.min(start);
            Bytes::copy_from_slice(area.get(start..start.checked_add(len)?)?)
        };
        if !is_here {
            return None;
        }
        xattrs.push(Xattr { key: Key { index, name }, value });
    }
    (at + END <= values).then_some(xattrs)
}

/// Writes attributes into `area` from `first` on; they must fit. In blocks entries have hashes.
fn encode(area: &mut [u8], first: usize, xattrs: &[Xattr], hashed: bool) {
    area[first..].fill(0);
    let (mut at, mut values) = (first, area.len());
    for xattr in xattrs {
        let (name, value) = (&xattr.key.name, &xattr.value);
        area[at] = manylogs_block::narrow(name.len());
        area[at + 1] = xattr.key.index;
        if !value.is_empty() {
            values -= value.len().next_multiple_of(4);
            area[values..values + value.len()].copy_from_slice(value);
            put_le16(area, at + 2, manylogs_block::narrow(values));
            put_le32(area, at + 8, manylogs_block::narrow(value.len()));
        }
        if hashed {
            let bug = manylogs_plant::is(manylogs_plant::Bug::Ext4XattrHashWrong);
            put_le32(area, at + 12, xattr.hash() ^ u32::from(bug));
        }
        area[at + ENTRY..at + ENTRY + name.len()].copy_from_slice(name);
        at += entry_bytes(name.len());
    }
}

/// Writes attributes into the rest of an inode.
pub(crate) fn encode_inline(area: &mut [u8], xattrs: &[Xattr]) {
    encode(area, 0, xattrs, false);
}

/// The attributes of a block; `None` if they say something impossible.
pub(crate) fn decode_block(block: &[u8]) -> Option<Vec<Xattr>> {
    decode(block, HEADER)
}

/// Makes `block` a block of attributes for one user.
pub(crate) fn encode_block(block: &mut [u8], xattrs: &[Xattr]) {
    let mut sorted = xattrs.to_vec();
    sorted.sort_by_key(|x| (x.key.index, x.key.name.len(), x.key.name.clone()));
    block[..HEADER].fill(0);
    put_le32(block, 0, MAGIC);
    put_le32(block, USERS, 1);
    put_le32(block, BLOCKS, 1);
    encode(block, HEADER, &sorted, true);
    let hashes: Vec<u32> = sorted.iter().map(Xattr::hash).collect();
    // A block in which an attribute has no hash is never shared, and has none itself.
    let hash = if hashes.contains(&0) {
        0
    } else {
        hashes.iter().fold(0_u32, |all, hash| all.rotate_left(16) ^ hash)
    };
    put_le32(block, HASH, hash);
}

/// How many inodes share a block of attributes.
pub(crate) fn users(block: &[u8]) -> u32 {
    le32(block, USERS)
}

pub(crate) fn set_users(block: &mut [u8], users: u32) {
    put_le32(block, USERS, users);
}

/// Whether `block` is a whole block of attributes that an inode has.
pub(crate) fn is_whole(block: &[u8], number: BlockNo, seed: Option<u32>) -> bool {
    let sum = |seed| checksum(seed, number, block) == le32(block, CHECKSUM);
    let sound = le32(block, 0) == MAGIC && le32(block, BLOCKS) == 1 && users(block) > 0;
    sound && seed.is_none_or(sum)
}

/// Computes the checksum of a block of attributes, if the file system has checksums.
pub(crate) fn seal(block: &mut [u8], number: BlockNo, seed: Option<u32>) {
    let sum = seed.map_or(0, |seed| checksum(seed, number, block));
    put_le32(block, CHECKSUM, sum);
}

fn checksum(seed: u32, number: BlockNo, block: &[u8]) -> u32 {
    let sum = crc(crc(seed, &number.0.to_le_bytes()), &block[..CHECKSUM]);
    crc(crc(sum, &[0; 4]), &block[CHECKSUM + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(index: u8, name: &str, value: &[u8]) -> Xattr {
        let key = Key { index, name: name.as_bytes().to_vec() };
        Xattr { key, value: Bytes::copy_from_slice(value) }
    }

    #[test]
    fn what_fits_survives_encoding_to_the_last_byte() {
        let xattrs = vec![xattr(1, "a", b"12345"), xattr(2, "", b""), xattr(6, "name", &[7; 40])];
        let needed: usize = xattrs.iter().map(Xattr::needed).sum::<usize>() + END;
        let mut area = vec![9; needed];
        assert!(fit(&xattrs, needed) && !fit(&xattrs, needed - 1));
        encode_inline(&mut area, &xattrs);
        assert_eq!(decode(&area, 0), Some(xattrs.clone()));
        let mut block = vec![9; BLOCK_BYTES];
        encode_block(&mut block, &xattrs);
        seal(&mut block, BlockNo(77), Some(5));
        assert_eq!(decode_block(&block), Some(xattrs));
        assert!(is_whole(&block, BlockNo(77), Some(5)) && !is_whole(&block, BlockNo(78), Some(5)));
    }

    #[test]
    fn impossible_entries_are_noticed() {
        let mut area = vec![0; 100];
        encode_inline(&mut area, &[xattr(1, "name", b"value")]);
        for (at, byte) in [(0, 200), (2, 99), (3, 1), (4, 1), (8, 200), (2, 10)] {
            let mut bad = area.clone();
            bad[at] = byte;
            assert_eq!(decode(&bad, 0), None, "byte {at} is {byte}");
        }
        // An area without an end.
        assert_eq!(decode(&area[..20], 0), None);
    }
}
