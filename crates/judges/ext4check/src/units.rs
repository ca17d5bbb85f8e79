//! Types of numbers that must not be mistaken for one another.

use std::fmt;

/// Bytes of a block: other block sizes are not supported.
pub const BLOCK_BYTES: usize = 4096;
/// The most blocks that one block of a bitmap covers.
pub(crate) const BITS: u32 = 32_768;

/// Number of a block of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

/// Number of an inode; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u32);

/// Number of a group of blocks; the first is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNo(pub u32);

impl Ino {
    /// The inode that lists bad blocks.
    pub(crate) const BAD_BLOCKS: Self = Self(1);
    /// The root directory.
    pub(crate) const ROOT: Self = Self(2);
    /// The inode that reserves room for more group descriptors.
    pub(crate) const RESIZE: Self = Self(7);
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
