//! The journal's superblock, and the copy of the journal's map in the file system's superblock.

use crate::bytes::{be32, crc32c, le32, put_be32};
use crate::checker::{Checked, Checker};
use crate::finding::{JOURNAL_COPY, Location, Problem};
use crate::source::Block;
use crate::structures::Structure;

pub(crate) const MAGIC: u32 = 0xC03B_3998;
/// Bytes of the superblock.
const BYTES: usize = 1024;
/// Place of its checksum.
pub(crate) const SUM: usize = 0xFC;
/// Incompatible features: `csum_v2` or `csum_v3`.
const SUMMED: u32 = 0x18;
/// All incompatible features that exist.
const KNOWN: u32 = 0x3F;

/// The right checksum of the superblock; `None` if it has none.
pub(crate) fn superblock_sum(bytes: &Block) -> Option<u32> {
    let is_summed = be32(bytes, 4) == 4 && be32(bytes, 0x28) & SUMMED != 0;
    is_summed.then(|| crc32c(!0, &[&bytes[..SUM], &[0; 4], &bytes[SUM + 4..BYTES]]))
}

/// Corrects the checksum of a descriptor, a commit block or a revoke block.
pub(crate) fn seal_log(bytes: &mut Block, seed: u32) {
    if be32(bytes, 0) != MAGIC {
        return;
    }
    let (at, tail) = match be32(bytes, 4) {
        1 | 5 => (bytes.len() - 4, 0),
        2 => (0x10, bytes.len() - 0x14),
        _ => return,
    };
    let sum = crc32c(seed, &[&bytes[..at], &[0; 4], &bytes[bytes.len() - tail..]]);
    put_be32(bytes, at, sum);
}

impl Checker<'_> {
    pub(crate) fn check_journal(&mut self) -> Checked<()> {
        let Some(first) = self.journal.first().copied() else {
            self.find(Location::Journal, Problem::Impossible("there is none"));
            return Ok(());
        };
        self.note(Structure::Journal(first));
        for block in self.journal.clone().into_iter().skip(1) {
            self.note(Structure::Log(block));
        }
        let bytes = self.read(first)?;
        let number = |at: usize| be32(&*bytes, at);
        if number(0) != MAGIC || !matches!(number(4), 3 | 4) {
            self.find(Location::Journal, Problem::Impossible("no superblock"));
            return Ok(());
        }
        if superblock_sum(&bytes).is_some_and(|sum| sum != number(SUM)) {
            self.find(Location::Journal, Problem::Checksum("the superblock"));
        }
        let (blocks, log, start) = (number(0x10), number(0x14), number(0x1C));
        let incompat = if number(4) == 4 { number(0x28) } else { 0 };
        let summed = incompat & SUMMED;
        let impossible = [
            (number(0xC) != 4096, "blocks of another size"),
            (blocks as usize > self.journal.len(), "more blocks than its inode has"),
            (blocks < 1024, "fewer than 1024 blocks"),
            (log == 0 || log >= blocks, "a log that begins nowhere"),
            (incompat & !KNOWN != 0, "unknown features"),
            (
                number(4) == 4 && number(0x2C) != 0,
                "features that only readers may leave aside, of which there are none",
            ),
            (
                number(4) == 3 && bytes[0x24..0x30].iter().any(|byte| *byte != 0),
                "features, which its version does not have",
            ),
            (summed == SUMMED, "two kinds of checksums"),
            (summed != 0 && bytes[0x50] != 4, "another checksum than CRC-32C"),
            (start >= blocks, "a replay that begins nowhere"),
            (start != 0 && !self.report.needs_recovery, "something to replay, not announced"),
            (number(0x20) != 0, "an error of its last user"),
        ];
        for (is_so, what) in impossible {
            if is_so {
                self.find(Location::Journal, Problem::Impossible(what));
            }
        }
        self.check_copy()
    }

    /// Compares the map and the size of the journal's inode with the copy in the superblock.
    fn check_copy(&mut self) -> Checked<()> {
        let Some(copy) = self.layout.journal_copy.clone() else { return Ok(()) };
        let Some(raw) = self.raw_inode(self.layout.journal)? else { return Ok(()) };
        let same = copy[..60] == raw[0x28..0x64]
            && le32(&copy, 60) == le32(&raw, 0x6C)
            && le32(&copy, 64) == le32(&raw, 0x4);
        if !same {
            self.find(Location::Superblock, Problem::Impossible(JOURNAL_COPY));
        }
        Ok(())
    }
}
