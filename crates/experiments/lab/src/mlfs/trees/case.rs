//! The description of a measurement.

use super::super::case::DiskCase;

/// Bytes per inode of the file system, the default of mkfs.
pub const BYTES_PER_INODE: u64 = 1 << 14;

/// One tree in one mode of the journal.
#[derive(Clone, Debug)]
pub struct TreesCase {
    /// The disk, and the mode of its journal.
    pub disk: DiskCase,
    /// Number of directories of the tree.
    pub directories: u32,
    /// Whether the directories of a level are made in a random order, drawn from the seed; else one
    /// after the other.
    pub shuffled: bool,
}
