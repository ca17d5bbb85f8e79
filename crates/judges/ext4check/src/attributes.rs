//! Extended attributes: behind the fields of an inode, and in blocks that inodes may share.

use crate::bytes::{crc32c, le16, le32, part};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::inodes::{Raw, SHORT};
use crate::layout::compat;
use crate::structures::Structure;
use crate::units::{BLOCK_BYTES, BlockNo};

const MAGIC: u32 = 0xEA02_0000;
/// Where the checksum of a block is.
pub(crate) const BLOCK_SUM: usize = 16;
/// Where entries begin in a block.
const ENTRIES: usize = 32;
/// Bytes of an entry without its name.
const ENTRY: usize = 16;

/// The checksum of a block of attributes.
pub(crate) fn block_sum(seed: u32, block: BlockNo, bytes: &[u8]) -> u32 {
    let parts = [part(bytes, 0..BLOCK_SUM), &[0; 4], part(bytes, BLOCK_SUM + 4..bytes.len())];
    crc32c(seed, &[&block.0.to_le_bytes(), parts[0], parts[1], parts[2]])
}

/// The hash of an entry, over its name and its value. Bytes of names are taken as signed or
/// unsigned.
fn hash_of(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let number = |byte: u8| {
        if signed { i32::from(byte.cast_signed()).cast_unsigned() } else { byte.into() }
    };
    let names = name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ number(*byte));
    value.chunks(4).fold(names, |hash, word| {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        hash.rotate_left(16) ^ u32::from_le_bytes(bytes)
    })
}

/// Why entries are wrong.
struct Wrong(&'static str);

/// Checks the entries from `first` on; offsets of values count from `base`. In a block every entry
/// has a hash.
fn check_entries(bytes: &[u8], first: usize, base: usize, in_block: bool) -> Result<(), Wrong> {
    let mut at = first;
    let mut taken: Vec<(usize, usize)> = Vec::new();
    while le32(bytes, at) != 0 {
        let name_len = usize::from(*bytes.get(at).ok_or(Wrong("an entry"))?);
        let name = bytes.get(at + ENTRY..at + ENTRY + name_len).ok_or(Wrong("a name"))?;
        let (offset, len) = (usize::from(le16(bytes, at + 2)), le32(bytes, at + 8));
        let start = base + offset;
        let len = usize::try_from(len).ok().filter(|len| *len <= BLOCK_BYTES);
        let len = len.ok_or(Wrong("the length of a value"))?;
        if le32(bytes, at + 4) != 0 {
            return Err(Wrong("a value in an inode of its own"));
        }
        // Values are padded to whole words, and their padding counts.
        let padded = len.next_multiple_of(4);
        let value = bytes.get(start..start + padded).ok_or(Wrong("the place of a value"))?;
        if len > 0 {
            taken.push((start, start + padded));
        }
        let kept = le32(bytes, at + 12);
        let is_kept = |signed| hash_of(name, value, signed) == kept;
        if (in_block || kept != 0) && !is_kept(false) && !is_kept(true) {
            return Err(Wrong("the hash of an entry"));
        }
        at += (ENTRY + name_len).next_multiple_of(4);
    }
    if at + 4 > bytes.len() {
        return Err(Wrong("entries without an end"));
    }
    taken.push((first, at + 4));
    taken.sort_unstable();
    if taken.windows(2).any(|two| two[0].1 > two[1].0) {
        return Err(Wrong("values that overlap"));
    }
    Ok(())
}

impl Checker<'_> {
    /// Checks the attributes of an inode. Returns the number of blocks that they take: one or none.
    pub(crate) fn check_attributes(&mut self, raw: Raw<'_>) -> Checked<u64> {
        let (place, start) = (Location::Inode(raw.ino), SHORT + raw.extra());
        let room = raw.bytes.get(start..).filter(|room| room.len() > 4 && raw.extra() > 0);
        if let Some(room) = room
            && le32(room, 0) == MAGIC
            && let Err(Wrong(what)) = check_entries(room, 4, 4, false)
        {
            self.find(place, Problem::Impossible(what));
        }
        let block = raw.attribute_block();
        if block.0 == 0 {
            return Ok(0);
        }
        if let Some((found, _)) = self.attributes.get_mut(&block) {
            *found += 1;
            return Ok(1);
        }
        if !self.layout.has_compat(compat::EXT_ATTR) || !self.take(raw.ino, block) {
            self.find(place, Problem::Misplaced("a block of attributes"));
            return Ok(0);
        }
        self.note(Structure::Attributes(block));
        let bytes = self.read(block)?;
        let place = Location::Block(raw.ino, block);
        let whole = |seed| block_sum(seed, block, &*bytes) == le32(&*bytes, BLOCK_SUM);
        if !self.layout.seed.is_none_or(whole) {
            self.find(place, Problem::Checksum("a block of attributes"));
        }
        if le32(&*bytes, 0) != MAGIC || le32(&*bytes, 8) != 1 {
            self.find(place, Problem::Impossible("a block of attributes"));
        } else if let Err(Wrong(what)) = check_entries(&*bytes, ENTRIES, 0, true) {
            self.find(place, Problem::Impossible(what));
        }
        self.attributes.insert(block, (1, le32(&*bytes, 4)));
        Ok(1)
    }

    /// Compares the number of inodes that share a block of attributes with the one the block says.
    pub(crate) fn check_attribute_users(&mut self) {
        for (block, (found, kept)) in std::mem::take(&mut self.attributes) {
            let place = Location::Space(block);
            self.count(place, "users of attributes", kept.into(), found.into());
        }
    }
}
