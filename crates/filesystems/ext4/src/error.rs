//! Errors, and the error numbers that programs see.

use manylogs_block::IoError;
use thiserror::Error;

use crate::{BlockNo, GroupNo, Ino};

/// Why an operation failed. A failed operation has no effect, except if [`Error::Corrupt`] is found
/// while the file is deleted that has just lost its last name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The journal could not be written, or [`crate::Ext4::stop_changes`] was called: no changes
    /// are taken until the next mount.
    #[error("nothing is changed any more until the next mount: {0}")]
    Aborted(IoError),
    /// Metadata says something impossible.
    #[error("corrupted: {0}")]
    Corrupt(#[from] Corruption),
    /// The journal is damaged, and what it held is lost.
    #[error(transparent)]
    JournalLost(Box<JournalLoss>),
    /// The image cannot be mounted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No such name or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotADirectory,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name of more than 255 bytes, or a symbolic link that fills more than a block.
    #[error("the name is too long")]
    NameTooLong,
    /// No block or inode is free that is not promised already.
    #[error("no space left")]
    NoSpace,
    /// The file would be larger than its map can tell.
    #[error("the file would be too large")]
    TooLarge,
    /// The inode has as many links as its field can hold.
    #[error("too many links")]
    TooManyLinks,
    /// The inode may not be changed, or only grow (`chattr +i`, `+a`).
    #[error("the inode is immutable or append-only")]
    NotPermitted,
    /// The inode has no such extended attribute.
    #[error("no such extended attribute")]
    NoXattr,
    /// The request is not allowed for this kind of inode.
    #[error("access denied")]
    AccessDenied,
    /// There is no such place in the file.
    #[error("beyond the end")]
    BeyondEnd,
    /// The file system was mounted read-only.
    #[error("the file system is mounted read-only")]
    ReadOnly,
    /// The request makes no sense: a name with a slash, a rename of a directory into itself.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// Something that ext4 can do and this crate cannot.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

/// Where metadata is corrupted, and how.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{place}: {what}")]
pub struct Corruption {
    /// The structure that says something impossible.
    pub place: Location,
    /// What it says.
    pub what: &'static str,
}

/// A structure of the file system.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// The superblock.
    #[error("superblock")]
    Superblock,
    /// A group or its bitmaps.
    #[error("{0}")]
    Group(GroupNo),
    /// An inode or what it points to.
    #[error("{0}")]
    Inode(Ino),
    /// A block of an inode: of its tree, or of a directory.
    #[error("{0}, {1}")]
    Block(Ino, BlockNo),
    /// A block of the journal, counted from the journal's beginning.
    #[error("journal block {0}")]
    Journal(u32),
}

/// What a damaged journal held and nothing else holds.
#[derive(Clone, Debug, Default, Error, PartialEq, Eq)]
#[error(
    "the journal is damaged: {}: manylogs fs check --repair replays what is whole and gives up \
     the rest", self.lost()
)]
pub struct JournalLoss {
    /// Blocks of the journal that are not whole, counted from its beginning, of which nothing says
    /// what they held: each, and perhaps blocks behind it, is of one transaction.
    pub unknown: Vec<u32>,
    /// Blocks of the file system whose newest content is lost.
    pub homes: Vec<BlockNo>,
    /// Whole transactions behind the first damaged one: a kernel's replay would lose them silently.
    pub later: u32,
    /// Whether what lies behind the damage is older than what lies before it: somebody's replay
    /// ended there earlier, and it is not replayed any more.
    pub is_older: bool,
}

/// Numbers that a message names.
const NAMED_MOST: usize = 8;

impl JournalLoss {
    /// Whether nothing is lost.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.homes.is_empty()
    }

    /// What is lost, in words.
    #[must_use]
    pub fn lost(&self) -> String {
        let mut parts = Vec::new();
        if !self.homes.is_empty() {
            let homes = named(self.homes.iter().map(|home| home.0));
            parts.push(format!("the newest content of {homes} is lost"));
        }
        if !self.unknown.is_empty() {
            let unknown = named(self.unknown.iter().copied().map(u64::from));
            parts.push(format!("what transactions held at {unknown} of the journal is lost"));
        }
        if self.is_older {
            parts.push("what lies behind is older, and an earlier replay left it".to_owned());
        }
        if self.later > 0 {
            parts.push(format!("whole transactions behind it: {}", self.later));
        }
        parts.join("; ")
    }
}

fn named(numbers: impl ExactSizeIterator<Item = u64>) -> String {
    let more = numbers.len().saturating_sub(NAMED_MOST);
    let word = if numbers.len() == 1 { "block" } else { "blocks" };
    let first: Vec<String> = numbers.take(NAMED_MOST).map(|number| number.to_string()).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{more}", first.join(", "))
}

/// Why an image cannot be mounted, and what helps.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no superblock of ext4.
    #[error("no ext4 here: the magic number is {0:#06x}")]
    NotExt4(u16),
    /// Another block size.
    #[error("blocks have {0} bytes: make the file system with mkfs.ext4 -b 4096")]
    BlockSize(u64),
    /// A feature that this crate does not know how to keep intact.
    #[error("feature {name} is not supported: {advice}")]
    Feature {
        /// Its name in `tune2fs -O`.
        name: &'static str,
        /// What the user can do.
        advice: &'static str,
    },
    /// The journal is on another device.
    #[error(
        "its journal is on another device: give it one of its own: tune2fs -O ^has_journal, and \
         then tune2fs -J size=1024"
    )]
    ExternalJournal,
    /// The journal is too short.
    #[error(
        "its journal has {blocks} blocks, and at least {least} are needed: tune2fs -O \
         ^has_journal, and then tune2fs -J size=64, or more"
    )]
    ShortJournal {
        /// Its blocks.
        blocks: u32,
        /// The fewest.
        least: u32,
    },
    /// The journal has more blocks than it should get.
    #[error(
        "its journal has {blocks} blocks, {} MiB, and {} MiB were asked for: a journal is never \
         shortened; a new one is made with tune2fs -O ^has_journal, and then tune2fs -J size=MIB",
        blocks / 256, asked / 256
    )]
    JournalIsLong {
        /// Its blocks.
        blocks: u32,
        /// What was asked for.
        asked: u32,
    },
    /// The journal's blocks are mapped as ext3 does it.
    #[error(
        "its journal is of ext3: make a new one, with tune2fs -O ^has_journal, and then tune2fs \
         -O extent -J size=MIB"
    )]
    JournalWithoutExtents,
    /// The newest durable versions may be in logs that only MLFS knows.
    #[error(
        "it belongs to MLFS, and only its logs may know what is durable: manylogs fs release gives \
         it back to ext4"
    )]
    Adopted,
    /// Feature bits that are not known.
    #[error("unknown {set} features {bits:#x}: use newer software")]
    UnknownFeatures {
        /// The set of features that has them.
        set: &'static str,
        /// The bits.
        bits: u32,
    },
    /// Something must be repaired before a mount.
    #[error("{0}: run e2fsck -p first")]
    NeedsCheck(&'static str),
    /// Errors were found in a file system that e2fsck refuses.
    #[error(
        "errors were found earlier: give it back with manylogs fs release, run e2fsck -f, and \
         adopt it again"
    )]
    NeedsRelease,
    /// It was adopted, and its own journal was used since.
    #[error(
        "it was used as ext4 after it was adopted, and its own journal must be replayed: \
         manylogs fs release does that and leaves it to ext4; then run e2fsck -f, and adopt it \
         again"
    )]
    NeedsReplay,
    /// The device is shorter than the file system.
    #[error("the file system has {blocks} blocks, the device only {device}")]
    DeviceTooSmall {
        /// Blocks of the file system.
        blocks: u64,
        /// Blocks of the device.
        device: u64,
    },
}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Corruption {
    pub(crate) const fn of(place: Location, what: &'static str) -> Self {
        Self { place, what }
    }

    pub(crate) const fn inode(ino: Ino, what: &'static str) -> Self {
        Self::of(Location::Inode(ino), what)
    }

    pub(crate) const fn group(group: GroupNo, what: &'static str) -> Self {
        Self::of(Location::Group(group), what)
    }
}

impl Error {
    /// Whether something on the disk is damaged and must be repaired before a mount.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::JournalLost(_))
    }

    /// The error number that Linux gives for it.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Io(_) => 5,
            Self::Aborted(_) | Self::ReadOnly => 30,
            Self::Corrupt(_) | Self::JournalLost(_) => 117,
            Self::Refused(_) | Self::Invalid(_) => 22,
            Self::NotPermitted => 1,
            Self::BeyondEnd => 6,
            Self::NoXattr => 61,
            Self::AccessDenied => 13,
            Self::NotFound => 2,
            Self::Exists => 17,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::NotEmpty => 39,
            Self::NameTooLong => 36,
            Self::NoSpace => 28,
            Self::TooLarge => 27,
            Self::TooManyLinks => 31,
            Self::Unsupported(_) => 95,
        }
    }
}
