//! What a check can find.

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
    /// Features that this crate knows nothing of, or no journal.
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
    /// The superblock says something impossible, or is not whole.
    #[error("the superblock: {0}: use e2fsck, which looks for copies")]
    Superblock(&'static str),
    /// The device failed.
    #[error("cannot read the file system: {0}")]
    Io(#[from] io::Error),
}

/// Where something is wrong.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
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

/// A count that is kept, and what it ought to be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{kept} kept, {found} found")]
pub struct Count {
    /// As it is on the device.
    pub kept: u64,
    /// As it was found.
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
    /// A field says something that is never said, or the structure cannot be read.
    #[error("impossible: {0}")]
    Impossible(&'static str),
    /// Things stand in the wrong order, or overlap.
    #[error("out of order: {0}")]
    Order(&'static str),
    /// A bit of a bitmap and what was found do not agree.
    #[error("{what} {number} is in use, but its bit is clear")]
    BitClear {
        /// Blocks or inodes.
        what: &'static str,
        /// Which, of the whole file system.
        number: u64,
    },
    /// See [`Problem::BitClear`].
    #[error("{what} {number} is free, but its bit is set")]
    BitSet {
        /// Blocks or inodes.
        what: &'static str,
        /// Which, of the whole file system.
        number: u64,
    },
    /// A name leads to an inode that is not in use.
    #[error("a name leads to unused inode {0}")]
    DeadName(u32),
    /// A name says another kind than its inode.
    #[error("a name says another kind than inode {0}")]
    WrongKind(u32),
    /// A name is there twice in one directory.
    #[error("the same name is there twice")]
    NameTwice,
    /// A directory has two names, or none of its parents has it.
    #[error("a directory has several names, or a wrong '..'")]
    Parent,
    /// Nothing leads to it.
    #[error("nothing leads to it")]
    Unreachable,
    /// It is in the list of orphans: a mount has work to do.
    #[error("it is an orphan, or the list of orphans is broken")]
    Orphan,
    /// A name is not where the index looks for it, or a block of names is in no index.
    #[error("index: {0}")]
    Index(&'static str),
}

/// Something that is wrong, and where.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{place}: {problem}")]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

impl Finding {
    /// Whether whoever mounts it, and e2fsck, puts it right without a word: nobody relies on what
    /// is wrong. The counts of the superblock are such, as both the kernel and MLFS write them at
    /// an unmount only, and those of groups count; so is its copy of where the journal is.
    #[must_use]
    pub fn is_note(&self) -> bool {
        let superblock = self.place == Place::Superblock;
        match self.problem {
            Problem::Count(..) => superblock,
            Problem::Impossible(what) => superblock && what == JOURNAL_COPY,
            _ => false,
        }
    }
}

/// See [`Finding::is_note`].
pub(crate) const JOURNAL_COPY: &str = "the copy of the journal's place is another";

/// What a check came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, the first [`crate::FINDINGS_MAX`]; notes among them.
    pub findings: Vec<Finding>,
    /// How many findings more there are.
    pub more: u64,
    /// The journal holds what is not at home yet: findings may be due to that alone.
    pub needs_recovery: bool,
    /// Inodes in use, those of the file system itself included.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
}

impl Report {
    /// Whether nothing is wrong but what a mount puts right: see [`Finding::is_note`].
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.more == 0 && self.findings.iter().all(Finding::is_note)
    }

    /// Whether there is not even a note.
    #[must_use]
    pub fn is_spotless(&self) -> bool {
        self.findings.is_empty()
    }
}
