//! The description of a measurement.

use manylogs_block::{Nanos, Sectors};
use manylogs_mlfs::JournalMode;
use manylogs_mlfs::adopt::Spacing;

use crate::interfere::StreamKind;
use crate::replay::DriveSettings;

/// Number of files spread over the disk; each gets one write before a sync, as in the paper.
pub const WRITES_PER_SYNC: usize = 20;

/// One measurement: a stream beside small durable writes, in one mode of the journal.
#[derive(Clone, Debug)]
pub struct MlfsCase {
    /// The drive and how it is used.
    pub drive: DriveSettings,
    /// Where logs are, for modes that have them.
    pub spacing: Spacing,
    /// The longest write that goes to a log, for modes that have them; 32 KiB if not given, and
    /// always in the mode adaptive-jbd2.
    pub threshold: Option<Sectors>,
    /// Size of ext4's journal.
    pub journal: Sectors,
    /// The mode of the journal.
    pub mode: JournalMode,
    /// Whether the stream reads or writes its file of 2 GiB (direct I/O, 1 MiB at a time).
    pub stream: StreamKind,
    /// Small writes a second, of 4 KiB; a sync of the file system follows each
    /// [`WRITES_PER_SYNC`]. Zero for the stream alone.
    pub writes_per_second: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Length of the measurement, in simulated time.
    pub span: Nanos,
}

/// Size of an inode, the default of mkfs.
pub const INODE_BYTES: u32 = 256;
/// Bytes per inode, where only large files are made.
const FEW_INODES: u64 = 16 << 20;

/// A disk with a file system, and how both are used.
#[derive(Clone, Debug)]
pub struct DiskCase {
    /// The drive and how it is used.
    pub drive: DriveSettings,
    /// Where logs are, for modes that have them.
    pub spacing: Spacing,
    /// The longest write that goes to a log: see [`MlfsCase::threshold`].
    pub threshold: Option<Sectors>,
    /// Size of ext4's journal.
    pub journal: Sectors,
    /// Bytes per inode of the file system.
    pub bytes_per_inode: u64,
    /// Size of an inode.
    pub inode_bytes: u32,
    /// The mode of the journal.
    pub mode: JournalMode,
    /// Seed of all random choices.
    pub seed: u64,
}

impl DiskCase {
    /// Whether the mode needs an adopted file system.
    #[must_use]
    pub const fn is_adopted(&self) -> bool {
        self.mode.is_near()
    }

    /// Cases with equal keys begin with the same disk.
    pub(super) fn key(&self) -> String {
        let Self { drive, spacing, journal, .. } = self;
        let (name, cache, queue) = (drive.name(), drive.write_cache, drive.queue);
        let link = drive.link;
        let adopted = self.is_adopted();
        let (inodes, inode) = (self.bytes_per_inode, self.inode_bytes);
        let journal = journal.0;
        format!(
            "{name} {cache} {link:?} {queue:?} {spacing:?} {journal} {inodes} {inode} {adopted}"
        )
    }
}

/// Default size of ext4's journal: 1 GiB.
pub const JOURNAL: Sectors = Sectors(1 << 21);

impl MlfsCase {
    /// The disk of the case.
    #[must_use]
    pub fn disk(&self) -> DiskCase {
        let Self { drive, spacing, threshold, journal, mode, seed, .. } = self.clone();
        let (bytes_per_inode, inode_bytes) = (FEW_INODES, INODE_BYTES);
        DiskCase { drive, spacing, threshold, journal, bytes_per_inode, inode_bytes, mode, seed }
    }

    /// The case's stream alone.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { writes_per_second: 0.0, ..self.clone() }
    }
}
