//! The description of a measurement.

use manylogs_ext4::ReadAhead;

use super::super::case::DiskCase;

/// Bytes per inode of the file system, the default of mkfs.
pub const BYTES_PER_INODE: u64 = 1 << 14;

/// One tree in one mode of the journal.
#[derive(Clone, Debug)]
pub struct TreesCase {
    /// The disk, and the mode of its journal.
    pub disk: DiskCase,
    /// What metadata is read ahead.
    pub ahead: ReadAhead,
    /// How many directories the tree has.
    pub directories: u32,
    /// How many files of 4 KiB are made in them, when the directories are all there.
    pub files: u32,
    /// The directories of a level are made in an order drawn from the seed; else one after the
    /// other.
    pub shuffled: bool,
    /// Whether metadata is arranged when the directories are made, where it stays in the journal.
    pub arranged: bool,
    /// Each phase ends with a power cut, when all is durable, and not with an unmount.
    pub cut: bool,
}

/// What is done to the tree, in this order. Each phase begins with cold caches, and on a drive that
/// has nothing to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// The directories are made, level by level.
    MakeDirs,
    /// Metadata is arranged in the order of a walk.
    Arrange,
    /// All are listed, with the attributes of what is in them.
    ListDirs,
    /// All are listed, and nothing but their names is asked for.
    FindFiles,
    /// Some are looked up from the root, drawn at random, as many as a twentieth of all.
    Stat,
    /// Files of 4 KiB are made.
    CreateFiles,
    /// All directories are listed, and all files read.
    TarFiles,
    /// All files are removed.
    RemoveFiles,
    /// All directories are removed.
    RemoveDirs,
}

impl PhaseKind {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::MakeDirs,
        Self::Arrange,
        Self::ListDirs,
        Self::FindFiles,
        Self::Stat,
        Self::CreateFiles,
        Self::TarFiles,
        Self::RemoveFiles,
        Self::RemoveDirs,
    ];

    /// Its name in the paper, where it is of the paper.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MakeDirs => "MakeDirs",
            Self::Arrange => "arrange",
            Self::ListDirs => "ListDirs",
            Self::FindFiles => "FindFiles",
            Self::Stat => "random stats",
            Self::CreateFiles => "CreateFiles",
            Self::TarFiles => "TarFiles",
            Self::RemoveFiles => "RemoveFiles",
            Self::RemoveDirs => "RemoveDirs",
        }
    }

    /// Whether it is measured of trees with files, and of trees that are arranged.
    pub(crate) const fn is_due(self, has_files: bool, is_arranged: bool) -> bool {
        match self {
            Self::CreateFiles | Self::TarFiles | Self::RemoveFiles => has_files,
            Self::Arrange => is_arranged,
            _ => true,
        }
    }
}
