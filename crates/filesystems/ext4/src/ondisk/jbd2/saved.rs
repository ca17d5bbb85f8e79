//! The map of a log that keeps its content, saved in blocks of the log that no transaction takes,
//! and the note in the journal's first block that leads to it.
//!
//! No other program reads either: a replay ends where the transactions end, and nobody looks behind
//! the superblock in its block. Whoever writes transactions over the map spoils its checksums.

use manylogs_plant::{Bug, is};

use super::Tid;
use crate::checksum::{NO_SEED, crc};
use crate::ondisk::bytes::{be32, be64, put_be32, put_be64};
use crate::units::BLOCK_BYTES;

/// Begins the note, and each block of the map: "MLSM".
const WORD: u32 = u32::from_be_bytes(*b"MLSM");
/// Bytes in front of the records of a block: the word, the block's number, zero, the checksum.
const HEADER: usize = 16;
/// Bytes of a record.
const RECORD: usize = 16;
/// Records of a block.
pub(crate) const RECORDS: usize = (BLOCK_BYTES - HEADER) / RECORD;
/// Bytes of the note.
pub(super) const NOTE_BYTES: usize = 40;

/// Where a saved map is, and what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedMap {
    /// One more than that of the map before, so that blocks of two are never taken for one map.
    pub(crate) generation: u32,
    /// Whether nothing was committed since: an unmount saved it, and there was no mount after that.
    pub(crate) is_left: bool,
    /// The block of the journal where it begins: in the log, whose first block follows its last.
    pub(crate) start: u32,
    /// The oldest transaction in it.
    pub(crate) first: Tid,
    /// The block of the journal where that one begins.
    pub(crate) first_at: u32,
    /// How many transactions it has, one behind the other.
    pub(crate) transactions: u32,
    /// How many copies it has.
    pub(crate) copies: u32,
}

/// A record: a transaction or a copy, packed.
pub(crate) type Record = [u64; 2];

impl SavedMap {
    /// How many blocks so many records take.
    pub(crate) const fn blocks_of(records: u64) -> u64 {
        records.div_ceil(RECORDS as u64)
    }

    /// How many blocks it takes.
    pub(crate) const fn blocks(&self) -> u64 {
        Self::blocks_of(self.transactions as u64 + self.copies as u64)
    }

    /// The transaction behind those in it.
    pub(crate) const fn next(&self) -> Tid {
        Tid(self.first.0.wrapping_add(self.transactions))
    }

    /// The note of it, of the journal with this UUID.
    pub(super) fn note(&self, uuid: &[u8]) -> [u8; NOTE_BYTES] {
        let mut note = [0; NOTE_BYTES];
        let words = [
            WORD,
            u32::from(self.is_left),
            self.generation,
            self.start,
            self.first.0,
            self.first_at,
            self.transactions,
            self.copies,
        ];
        for (number, word) in words.into_iter().enumerate() {
            put_be32(&mut note, 4 * number, word);
        }
        let sum = crc(crc(NO_SEED, uuid), &note[..NOTE_BYTES - 4]);
        put_be32(&mut note, NOTE_BYTES - 4, sum);
        note
    }

    /// What a note says; `None` if it is none, or of another journal.
    pub(super) fn of_note(note: &[u8], uuid: &[u8]) -> Option<Self> {
        let word = |number: usize| be32(note, 4 * number);
        let found = Self {
            is_left: word(1) != 0,
            generation: word(2),
            start: word(3),
            first: Tid(word(4)),
            first_at: word(5),
            transactions: word(6),
            copies: word(7),
        };
        (found.note(uuid) == *note).then_some(found)
    }

    /// What the checksums of its blocks begin with, in the journal with this UUID.
    pub(super) fn seed(&self, uuid: &[u8]) -> u32 {
        let own = Self { is_left: false, copies: 0, ..*self };
        crc(NO_SEED, &own.note(uuid))
    }
}

/// Block `number` of a map, with at most [`RECORDS`] records; `seed` is the map's.
pub(crate) fn block(seed: u32, number: u32, records: &[Record]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    put_be32(&mut block, 0, WORD);
    put_be32(&mut block, 4, number);
    for (at, record) in (HEADER..).step_by(RECORD).zip(records) {
        put_be64(&mut block, at, record[0]);
        put_be64(&mut block, at + 8, record[1]);
    }
    let sum = crc(seed, &block);
    put_be32(&mut block, 12, sum);
    block
}

/// The records of block `number` of a map, behind them zeroes; `None` if it is not whole, or is a
/// block of something else.
pub(crate) fn records(seed: u32, number: u32, block: &[u8]) -> Option<Vec<Record>> {
    let sum = crc(crc(crc(seed, &block[..12]), &[0; 4]), &block[HEADER..]);
    let is_it = be32(block, 0) == WORD && be32(block, 4) == number && be32(block, 12) == sum;
    let places = (HEADER..BLOCK_BYTES).step_by(RECORD);
    let is_it = is_it || is(Bug::LazySavedTorn);
    is_it.then(|| places.map(|at| [be64(block, at), be64(block, at + 8)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: SavedMap = SavedMap {
        generation: 3,
        is_left: true,
        start: 900,
        first: Tid(u32::MAX),
        first_at: 7,
        transactions: 2,
        copies: 300,
    };

    #[test]
    fn a_note_is_of_one_journal_and_whole() {
        let note = MAP.note(b"one");
        assert_eq!(SavedMap::of_note(&note, b"one"), Some(MAP));
        assert_eq!(SavedMap::of_note(&note, b"two"), None, "another journal's");
        assert_eq!((MAP.next(), MAP.blocks()), (Tid(1), 2));
        for at in 0..8 * NOTE_BYTES {
            let mut bad = note;
            bad[at / 8] ^= 1 << (at % 8);
            assert_eq!(SavedMap::of_note(&bad, b"one"), None, "bit {at}");
        }
    }

    #[test]
    fn a_block_is_of_one_map_and_one_place_in_it() {
        let all: Vec<Record> = (0..RECORDS as u64).map(|n| [n, n << 40]).collect();
        let (seed, other) = (MAP.seed(b"one"), SavedMap { generation: 4, ..MAP }.seed(b"one"));
        let bytes = block(seed, 5, &all);
        assert_eq!(records(seed, 5, &bytes), Some(all));
        assert_eq!(records(seed, 6, &bytes), None);
        assert_eq!(records(other, 5, &bytes), None, "a map before it");
        assert_eq!(super::super::header(&bytes), None, "no block of the journal's own");
        let mut torn = bytes;
        torn[4095] ^= 1;
        assert_eq!(records(seed, 5, &torn), None);
    }
}
