//! The findings of a check.

use std::io;

use thiserror::Error;

use crate::units::{BlockNo, GroupNo, Ino};

/// Why a file system cannot be judged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// There is no magic number.
    #[error("no ext4 file system is here")]
    NotExt4,
    /// Another block size.
    #[error("blocks do not have 4096 bytes: use e2fsck")]
    BlockSize,
    /// Features that this crate does not know, or no journal.
    #[error(
        "unknown features (incompat {incompat:#x}, ro_compat {ro_compat:#x}), or no journal: \
         use e2fsck"
    )]
    Features {
        /// Bits of the incompatible set.
        incompat: u32,
        /// Bits of the read-only compatible set.
        ro_compat: u32,
    },
    /// A field of the superblock is impossible, or the superblock is damaged.
    #[error("the superblock: {0}: use e2fsck, which looks for copies")]
    Superblock(&'static str),
    /// The device failed.
    #[error("cannot read the file system: {0}")]
    Io(#[from] io::Error),
}

/// Where something is wrong.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// The superblock.
    #[error("superblock")]
    Superblock,
    /// A group, its descriptor or its bitmaps.
    #[error("{0}")]
    Group(GroupNo),
    /// An inode.
    #[error("{0}")]
    Inode(Ino),
    /// A block of metadata of an inode.
    #[error("{0}, {1}")]
    Block(Ino, BlockNo),
    /// A block of the file system.
    #[error("{0}")]
    Space(BlockNo),
    /// The journal's superblock.
    #[error("journal")]
    Journal,
}

/// A count that the device stores, and its right value.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{kept} kept, {found} found")]
pub struct Count {
    /// The count on the device.
    pub kept: u64,
    /// The count that the check found.
    pub found: u64,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A structure and its checksum do not agree.
    #[error("wrong checksum of {0}")]
    Checksum(&'static str),
    /// A number leads outside of the file system, or into its own structures.
    #[error("{0} lies where it cannot be")]
    Misplaced(&'static str),
    /// Two structures or files have the same block.
    #[error("it is used twice")]
    UsedTwice,
    /// A count is wrong.
    #[error("wrong count of {0}: {1}")]
    Count(&'static str, Count),
    /// A field has an impossible value, or the structure cannot be read.
    #[error("impossible: {0}")]
    Impossible(&'static str),
    /// Entries are in the wrong order, or overlap.
    #[error("out of order: {0}")]
    Order(&'static str),
    /// A bitmap's bit differs from the use that was found.
    #[error("{what} {number} is in use, but its bit is clear")]
    BitClear {
        /// Blocks or inodes.
        what: &'static str,
        /// Its number in the whole file system.
        number: u64,
    },
    /// See [`Problem::BitClear`].
    #[error("{what} {number} is free, but its bit is set")]
    BitSet {
        /// Blocks or inodes.
        what: &'static str,
        /// Its number in the whole file system.
        number: u64,
    },
    /// A name leads to an inode that is not in use.
    #[error("a name leads to unused inode {0}")]
    DeadName(u32),
    /// A name states another kind than its inode.
    #[error("a name says another kind than inode {0}")]
    WrongKind(u32),
    /// A name occurs twice in one directory.
    #[error("the same name is there twice")]
    NameTwice,
    /// A directory has two names, or its `..` is wrong.
    #[error("a directory has several names, or a wrong '..'")]
    Parent,
    /// No name leads to the inode.
    #[error("nothing leads to it")]
    Unreachable,
    /// The inode is in the list of orphans: a mount has work to do.
    #[error("it is an orphan, or the list of orphans is broken")]
    Orphan,
    /// A name is not where the index looks for it, or a block of names is missing from the index.
    #[error("index: {0}")]
    Index(&'static str),
}

/// A problem, and its place.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{place}: {problem}")]
pub struct Finding {
    /// Its place.
    pub place: Location,
    /// The kind of problem.
    pub problem: Problem,
}

impl Finding {
    /// Whether every mount, and e2fsck, corrects the problem silently because nobody relies on the
    /// wrong value. This holds for the counts of the superblock: both the kernel and MLFS write
    /// them only at an unmount, and the groups' counts are the ones used. It also holds for its
    /// copy of the journal's map.
    #[must_use]
    pub fn is_note(&self) -> bool {
        let superblock = self.place == Location::Superblock;
        match self.problem {
            Problem::Count(..) => superblock,
            Problem::Impossible(what) => superblock && what == JOURNAL_COPY,
            _ => false,
        }
    }
}

/// See [`Finding::is_note`].
pub(crate) const JOURNAL_COPY: &str = "the copy of the journal's place is another";

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first [`crate::FINDINGS_MAX`] findings, notes included.
    pub findings: Vec<Finding>,
    /// Number of findings beyond those.
    pub more: u64,
    /// The journal holds blocks that are not at home yet: findings may be due to that alone.
    pub needs_recovery: bool,
    /// Number of inodes in use, including the file system's own.
    pub inodes: u64,
    /// Number of directories.
    pub directories: u64,
    /// Number of blocks in use.
    pub blocks: u64,
}

impl Report {
    /// Whether there are no findings but those that a mount corrects: see [`Finding::is_note`].
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.more == 0 && self.findings.iter().all(Finding::is_note)
    }

    /// Whether there are no findings, not even notes.
    #[must_use]
    pub fn is_spotless(&self) -> bool {
        self.findings.is_empty()
    }
}
