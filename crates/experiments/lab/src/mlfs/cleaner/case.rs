//! The description of a measurement.

use manylogs_block::Sectors;
use manylogs_ext4::Cleaner;

use super::super::case::DiskCase;

/// Size of an inode such that each has a block of its own: an update of an inode changes one block.
pub const BLOCK_BYTES_PER_INODE: u32 = 4096;

/// Zipf updates of the metadata of one disk.
#[derive(Clone, Debug)]
pub struct CleanerCase {
    /// The disk, and the mode of its journal. Inodes have blocks of their own
    /// ([`BLOCK_BYTES_PER_INODE`]).
    pub disk: DiskCase,
    /// Length of the file system, at the beginning of the disk.
    pub span: Sectors,
    /// What is renewed, where metadata stays in the journal.
    pub cleaner: Cleaner,
    /// The exponent of Zipf's law.
    pub exponent: f64,
    /// Blocks that are updated, per cent of those of the journal.
    pub percent: u32,
    /// Updates after which all is synced.
    pub per_sync: u32,
}

impl CleanerCase {
    /// Blocks that are updated.
    pub(super) fn blocks(&self) -> u32 {
        let journal = self.disk.journal.bytes() / u64::from(BLOCK_BYTES_PER_INODE);
        manylogs_block::narrow(journal * u64::from(self.percent) / 100)
    }
}
