//! The journal's superblock.

use super::saved::{NOTE_BYTES, SavedMap};
use super::{Checksums, Format, MAGIC, Tid, incompat};
use crate::checksum::{NO_SEED, crc};
use crate::ondisk::bytes::{be32, put_be32};

/// Bytes of the journal's superblock, in its first block.
const SUPERBLOCK_BYTES: usize = 1024;

/// Behind the superblock in its block, where no other program reads or writes: a word that says
/// that this crate left the log empty, and the number with which it did.
const EMPTIED: usize = SUPERBLOCK_BYTES;
const EMPTIED_WORD: u32 = u32::from_be_bytes(*b"MLFS");
/// Behind these the note of a saved map.
const SAVED: usize = EMPTIED + 8;
const KEPT_BYTES: usize = SAVED + NOTE_BYTES;

/// The journal's superblock, and what this crate keeps behind it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JournalSuperblock(Box<[u8; KEPT_BYTES]>);

impl JournalSuperblock {
    /// The superblock in `block`; `None` if it is not of a journal with [`BLOCK_BYTES`] blocks, or
    /// not whole.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let mut found = Self(Box::new([0; KEPT_BYTES]));
        found.0.copy_from_slice(&block[..KEPT_BYTES]);
        let sound = found.u32(0) == MAGIC && found.u32(4) == 4 && found.u32(0xC) == 4096;
        let protected = found.incompat() & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0;
        let whole = !protected || (found.0[0x50] == 4 && found.u32(0xFC) == found.checksum());
        (sound && whole).then_some(found)
    }

    pub(crate) fn encode(&mut self, block: &mut [u8]) {
        if self.incompat() & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0 {
            self.0[0x50] = 4;
            let sum = self.checksum();
            put_be32(&mut *self.0, 0xFC, sum);
        }
        block[..KEPT_BYTES].copy_from_slice(&*self.0);
    }

    fn checksum(&self) -> u32 {
        let sum = crc(NO_SEED, &self.0[..0xFC]);
        crc(crc(sum, &[0; 4]), &self.0[0x100..SUPERBLOCK_BYTES])
    }

    fn u32(&self, at: usize) -> u32 {
        be32(&*self.0, at)
    }

    /// Blocks of the journal, this one included.
    pub(crate) fn blocks(&self) -> u32 {
        self.u32(0x10)
    }

    /// Sets the blocks of the journal: the log ends with them.
    pub(crate) fn set_blocks(&mut self, blocks: u32) {
        put_be32(&mut *self.0, 0x10, blocks);
    }

    /// The first block of the log.
    pub(crate) fn first(&self) -> u32 {
        self.u32(0x14)
    }

    /// The transaction that a replay expects first.
    pub(crate) fn sequence(&self) -> Tid {
        Tid(self.u32(0x18))
    }

    /// Where a replay begins; `None` if there is nothing to replay.
    pub(crate) fn start(&self) -> Option<u32> {
        Some(self.u32(0x1C)).filter(|start| *start != 0)
    }

    pub(crate) fn set_tail(&mut self, sequence: Tid, start: Option<u32>) {
        put_be32(&mut *self.0, 0x18, sequence.0);
        put_be32(&mut *self.0, 0x1C, start.unwrap_or(0));
        let (word, number) = if start.is_none() { (EMPTIED_WORD, sequence.0) } else { (0, 0) };
        put_be32(&mut *self.0, EMPTIED, word);
        put_be32(&mut *self.0, EMPTIED + 4, number);
        if start.is_none() {
            self.set_saved(None);
        }
    }

    /// The map that was saved, if a note says that there is one.
    pub(crate) fn saved(&self) -> Option<SavedMap> {
        SavedMap::of_note(&self.0[SAVED..KEPT_BYTES], self.uuid())
    }

    /// Notes where the map is saved; `None` if it is not.
    pub(crate) fn set_saved(&mut self, saved: Option<&SavedMap>) {
        let note = saved.map_or([0; NOTE_BYTES], |saved| saved.note(self.uuid()));
        self.0[SAVED..KEPT_BYTES].copy_from_slice(&note);
    }

    /// What the checksums of a saved map's blocks begin with.
    pub(crate) fn saved_seed(&self, saved: &SavedMap) -> u32 {
        saved.seed(self.uuid())
    }

    fn uuid(&self) -> &[u8] {
        &self.0[0x30..0x40]
    }

    /// Whether this crate left the log empty, and nobody used it since: then no block of it has the
    /// number of a later transaction.
    pub(crate) fn is_emptied_here(&self) -> bool {
        let left = (self.u32(EMPTIED), self.u32(EMPTIED + 4));
        left == (EMPTIED_WORD, self.sequence().0) && self.start().is_none()
    }

    /// The error with which the last user gave up.
    pub(crate) fn error(&self) -> u32 {
        self.u32(0x20)
    }

    /// Notes that damage was found (EUCLEAN, as the kernel does).
    pub(crate) fn set_damaged(&mut self) {
        put_be32(&mut *self.0, 0x20, (-117_i32).cast_unsigned());
    }

    pub(crate) fn incompat(&self) -> u32 {
        self.u32(0x28)
    }

    /// Whether a commit block may be durable before the blocks that it commits.
    pub(crate) fn commits_early(&self) -> bool {
        self.incompat() & incompat::ASYNC_COMMIT != 0
    }

    /// Whether the log has the format that [`JournalSuperblock::set_format`] would set.
    pub(crate) fn is_of_format(&self, wide: bool, checksums: bool) -> bool {
        let mut other = self.clone();
        other.set_format(wide, checksums);
        (other.u32(0x24), other.incompat()) == (self.u32(0x24), self.incompat())
    }

    /// Sets the format of the log. Nothing may be left to replay.
    pub(crate) fn set_format(&mut self, wide: bool, checksums: bool) {
        put_be32(&mut *self.0, 0x24, 0);
        let bits = incompat::REVOKE
            | if wide { incompat::BITS64 } else { 0 }
            | if checksums { incompat::CSUM_V3 } else { 0 };
        put_be32(&mut *self.0, 0x28, bits);
        self.0[0x50] = 0;
        put_be32(&mut *self.0, 0xFC, 0);
    }

    /// The format of the log.
    pub(crate) fn format(&self) -> Format {
        let (bits, seed) = (self.incompat(), crc(NO_SEED, self.uuid()));
        let checksums = if bits & incompat::CSUM_V3 != 0 {
            Checksums::V3 { seed }
        } else if bits & incompat::CSUM_V2 != 0 {
            Checksums::V2 { seed }
        } else {
            Checksums::None
        };
        Format { wide: bits & incompat::BITS64 != 0, checksums }
    }

    /// Blocks at the journal's end that the log does not use.
    pub(crate) fn fast_commit_blocks(&self) -> u32 {
        match (self.incompat() & incompat::FAST_COMMIT != 0, self.u32(0x54)) {
            (false, _) => 0,
            (true, 0) => 256,
            (true, blocks) => blocks,
        }
    }
}

impl std::fmt::Debug for JournalSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalSuperblock")
            .field("sequence", &self.sequence())
            .field("start", &self.start())
            .field("format", &self.format())
            .finish_non_exhaustive()
    }
}
