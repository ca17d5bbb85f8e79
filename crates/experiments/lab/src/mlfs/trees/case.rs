//! What is measured.

use super::super::case::DiskCase;

/// The file system has an inode for so many bytes, as mkfs makes it.
pub const BYTES_PER_INODE: u64 = 1 << 14;

/// One tree in one mode of the journal.
#[derive(Clone, Debug)]
pub struct TreesCase {
    /// The disk, and the mode of its journal.
    pub disk: DiskCase,
    /// How many directories the tree has.
    pub directories: u32,
    /// The directories of a level are made in an order drawn from the seed; else one after the
    /// other.
    pub shuffled: bool,
}
