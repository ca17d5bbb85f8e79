//! Entries of directories, in blocks of which each is a chain of records.

use std::ops::Range;

use crate::checksum::crc;
use crate::ondisk::bytes::{le16, le32, put_le16, put_le32};
use crate::ondisk::inode::FileKind;
use crate::units::{BLOCK_BYTES, Ino};

/// Bytes of a record before its name.
const HEADER: usize = 8;
/// The longest name.
pub(crate) const NAME_MOST: usize = 255;
/// The record at a block's end that looks unused and holds the checksum.
const TAIL: usize = 12;
/// The code in the tail's field for a kind.
const TAIL_CODE: u8 = 0xDE;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Its offset in the block.
    pub(crate) at: usize,
    /// Its length, up to the next record.
    pub(crate) len: usize,
    /// The inode of the name; `None` if the record is unused.
    pub(crate) ino: Option<Ino>,
    /// The inode's kind, if the record has a known one.
    pub(crate) kind: Option<FileKind>,
    /// The name.
    pub(crate) name: &'a [u8],
}

/// How blocks of a directory are laid out: with a checksum at their end, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirentFormat {
    /// The seed of the directory's checksums, if it has any.
    pub(crate) seed: Option<u32>,
}

/// Bytes that a name takes.
pub(crate) const fn needed(name: usize) -> usize {
    (HEADER + name).next_multiple_of(4)
}

/// The records of `block` within `range`; the last item is `None` if the chain is broken.
pub(crate) fn records(
    block: &[u8],
    range: Range<usize>,
) -> impl Iterator<Item = Option<Record<'_>>> {
    let mut at = Some(range.start);
    std::iter::from_fn(move || {
        let here = at.filter(|here| *here < range.end)?;
        let record = decode(block, here, range.end);
        at = record.map(|record| here + record.len);
        Some(record)
    })
}

fn decode(block: &[u8], at: usize, end: usize) -> Option<Record<'_>> {
    if end - at < HEADER {
        return None;
    }
    let (number, len) = (le32(block, at), usize::from(le16(block, at + 4)));
    let name = usize::from(block[at + 6]);
    let sound = len >= HEADER
        && len.is_multiple_of(4)
        && at + len <= end
        && HEADER + name <= len
        && (number == 0 || name > 0);
    let record = || Record {
        at,
        len,
        ino: (number != 0).then_some(Ino(number)),
        kind: FileKind::of_code(block[at + 7]),
        name: &block[at + HEADER..at + HEADER + name],
    };
    sound.then(record)
}

/// Writes a record of `len` bytes.
pub(crate) fn put(
    block: &mut [u8],
    at: usize,
    len: usize,
    entry: Option<(Ino, Option<FileKind>)>,
    name: &[u8],
) {
    put_le32(block, at, entry.map_or(0, |(ino, _)| ino.0));
    put_le16(block, at + 4, manylogs_block::narrow(len));
    block[at + 6] = manylogs_block::narrow(name.len());
    block[at + 7] = entry.and_then(|(_, kind)| kind).map_or(0, FileKind::code);
    block[at + HEADER..at + HEADER + name.len()].copy_from_slice(name);
}

/// Gives a record another length.
pub(crate) fn set_len(block: &mut [u8], at: usize, len: usize) {
    put_le16(block, at + 4, manylogs_block::narrow(len));
}

/// Gives a record another inode.
pub(crate) fn set_ino(block: &mut [u8], at: usize, ino: Ino, kind: FileKind) {
    put_le32(block, at, ino.0);
    block[at + 7] = kind.code();
}

/// Makes a record unused.
pub(crate) fn clear(block: &mut [u8], at: usize) {
    put_le32(block, at, 0);
    block[at + 6] = 0;
    block[at + 7] = 0;
}

impl DirentFormat {
    /// The offset at which records end.
    pub(crate) const fn end(self) -> usize {
        if self.seed.is_some() { BLOCK_BYTES - TAIL } else { BLOCK_BYTES }
    }

    /// All records of a block.
    pub(crate) fn records(self, block: &[u8]) -> impl Iterator<Item = Option<Record<'_>>> {
        records(block, 0..self.end())
    }

    /// Whether the block's tail is there and its checksum right.
    pub(crate) fn is_whole(self, block: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let at = self.end();
        le32(block, at) == 0
            && usize::from(le16(block, at + 4)) == TAIL
            && block[at + 7] == TAIL_CODE
            && le32(block, at + 8) == crc(seed, &block[..at])
    }

    /// Writes the tail.
    pub(crate) fn seal(self, block: &mut [u8]) {
        let Some(seed) = self.seed else { return };
        let at = self.end();
        put_le32(block, at, 0);
        put_le16(block, at + 4, manylogs_block::narrow(TAIL));
        put_le16(block, at + 6, u16::from(TAIL_CODE) << 8);
        let sum = crc(seed, &block[..at]);
        put_le32(block, at + 8, sum);
    }

    /// Makes a block without names.
    pub(crate) fn format(self, block: &mut [u8]) {
        block.fill(0);
        put(block, 0, self.end(), None, b"");
        self.seal(block);
    }

    /// Makes the first block of a new directory.
    pub(crate) fn format_first(self, block: &mut [u8], own: Ino, parent: Ino) {
        block.fill(0);
        put(block, 0, 12, Some((own, Some(FileKind::Directory))), b".");
        put(block, 12, self.end() - 12, Some((parent, Some(FileKind::Directory))), b"..");
        self.seal(block);
    }

    /// Adds a name; false if there is no room for it.
    pub(crate) fn insert(self, block: &mut [u8], ino: Ino, kind: FileKind, name: &[u8]) -> bool {
        self.insert_as(block, ino, Some(kind), name)
    }

    /// As [`DirentFormat::insert`], for an inode whose kind the directory may not know.
    pub(crate) fn insert_as(
        self,
        block: &mut [u8],
        ino: Ino,
        kind: Option<FileKind>,
        name: &[u8],
    ) -> bool {
        let need = needed(name.len());
        let used = |record: &Record<'_>| record.ino.map_or(0, |_| needed(record.name.len()));
        let fits = |record: &Record<'_>| record.len >= used(record) + need;
        let place = self.records(block).flatten().find(fits);
        let place = place.map(|record| (record.at, record.len, used(&record)));
        let Some((at, len, used)) = place else { return false };
        if used > 0 {
            set_len(block, at, used);
        }
        put(block, at + used, len - used, Some((ino, kind)), name);
        self.seal(block);
        true
    }

    /// Removes the record at `at`: the one before it takes over its room.
    pub(crate) fn remove(self, block: &mut [u8], at: usize) {
        let before = self.records(block).flatten().take_while(|record| record.at < at).last();
        let before = before.map(|record| (record.at, record.len));
        match before {
            Some((before, len)) => {
                let gone = usize::from(le16(block, at + 4));
                set_len(block, before, len + gone);
            }
            None => clear(block, at),
        }
        self.seal(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: DirentFormat = DirentFormat { seed: Some(3) };

    fn names(block: &[u8]) -> Vec<Vec<u8>> {
        let used = LAYOUT.records(block).map(Option::unwrap).filter(|record| record.ino.is_some());
        used.map(|record| record.name.to_vec()).collect()
    }

    #[test]
    fn names_go_in_until_the_block_is_full_and_room_is_used_again() {
        let mut block = vec![0; BLOCK_BYTES];
        LAYOUT.format(&mut block);
        let mut count = 0;
        while LAYOUT.insert(&mut block, Ino(9), FileKind::File, format!("{count:08}").as_bytes()) {
            count += 1;
        }
        assert_eq!(count, (BLOCK_BYTES - 12) / 16);
        let second = LAYOUT.records(&block).flatten().nth(1).unwrap().at;
        LAYOUT.remove(&mut block, second);
        LAYOUT.remove(&mut block, 0);
        assert_eq!(names(&block).len(), count - 2);
        assert!(LAYOUT.insert(&mut block, Ino(9), FileKind::File, b"other"));
        assert!(LAYOUT.insert(&mut block, Ino(9), FileKind::File, b"another"));
        assert!(!LAYOUT.insert(&mut block, Ino(9), FileKind::File, b"one more"));
        assert_eq!(names(&block)[..2], [b"other".to_vec(), b"another".to_vec()]);
        assert!(LAYOUT.is_whole(&block));
        block[100] ^= 1;
        assert!(!LAYOUT.is_whole(&block));
    }

    #[test]
    fn broken_chains_end_and_do_not_panic() {
        let mut rng = manylogs_block::Rng::new(4);
        let mut block = vec![0; BLOCK_BYTES];
        LAYOUT.format_first(&mut block, Ino(5), Ino(2));
        for _ in 0..20_000 {
            let at = manylogs_block::to_usize(rng.below(64));
            block[at] = u8::try_from(rng.below(256)).unwrap();
            assert!(LAYOUT.records(&block).count() <= BLOCK_BYTES / 8);
        }
    }
}
