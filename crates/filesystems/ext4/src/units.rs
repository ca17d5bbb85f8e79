//! Numbers of a file system, each with its own type.

use std::fmt;
use std::ops::Range;

use manylogs_block::{Extent, SECTOR_BYTES};

/// The block size in bytes: no other is supported.
pub const BLOCK_BYTES: usize = 4096;
/// [`BLOCK_BYTES`] for arithmetic with sizes and offsets in bytes.
pub(crate) const BLOCK: u64 = 4096;
/// Sectors of a block, the unit of the device.
pub(crate) const BLOCK_SECTORS: u64 = BLOCK / SECTOR_BYTES;

/// A block of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

/// A block of a file, counted from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileBlock(pub u32);

/// The number of an inode; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u32);

/// A block group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNo(pub u32);

/// Consecutive blocks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The first block.
    pub start: BlockNo,
    /// Number of blocks; never zero.
    pub blocks: u32,
}

/// A time as inodes keep it: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970 began, UTC.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanos: u32,
}

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(2);
}

impl Run {
    /// The run as a range of block numbers.
    #[must_use]
    pub fn range(self) -> Range<u64> {
        self.start.0..self.start.0 + u64::from(self.blocks)
    }

    /// The run's extent on the device.
    pub(crate) fn sectors(self) -> Extent {
        Extent::new(self.start.0 * BLOCK_SECTORS, u64::from(self.blocks) * BLOCK_SECTORS)
    }
}

impl BlockNo {
    /// The block's extent on the device.
    #[must_use]
    pub fn sectors(self) -> Extent {
        Run { start: self, blocks: 1 }.sectors()
    }
}

impl FileBlock {
    /// Files end before this block, because extents have no larger block numbers.
    pub(crate) const MAX: u64 = u32::MAX as u64;
}

impl fmt::Display for BlockNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.0)
    }
}

impl fmt::Display for GroupNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}
