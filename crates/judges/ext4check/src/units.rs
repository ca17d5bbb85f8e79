//! Numbers that must not be mistaken for one another.

use std::fmt;

/// Bytes of a block: other sizes are not read.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks that one block of a bitmap covers at most.
pub(crate) const BITS: u32 = 32_768;

/// A block of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

/// An inode; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u32);

/// A group of blocks; the first is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNo(pub u32);

impl Ino {
    /// The inode that lists bad blocks.
    pub(crate) const BAD_BLOCKS: Self = Self(1);
    /// The directory that everything is in.
    pub(crate) const ROOT: Self = Self(2);
    /// The inode that keeps room for more group descriptors.
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
