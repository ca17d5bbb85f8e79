//! The commands of a host to a drive, and the drive's reports.

use manylogs_block::{Extent, Nanos, Time};

use crate::mechanics::Access;

/// Operations of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Read the extent.
    Read,
    /// Write the extent.
    Write {
        /// Forced unit access: acknowledged only once the data is on the medium.
        fua: bool,
    },
    /// Bring all writes that were acknowledged before to the medium; the extent is ignored.
    Flush,
}

/// A command to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Chosen by the host; every report of the drive about the command carries it.
    pub tag: u64,
    /// Operation.
    pub kind: CommandKind,
    /// Extent.
    pub extent: Extent,
}

/// The end of a command, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command's tag.
    pub tag: u64,
    /// Time at which the host gets the answer.
    pub at: Time,
    /// Whether the data is on the medium; false for a write that is only in the volatile cache
    /// (an [`Event::OnMedium`] with its tag follows).
    pub durable: bool,
    /// Whether the buffer answered, without waiting for the medium.
    pub buffered: bool,
    /// Time from the arrival of the command until the mechanism began it.
    pub waited: Nanos,
    /// Times of the mechanism. Zero if the buffer answered.
    pub access: Access,
}

impl Completion {
    /// An answer at `at` to a command that needed no work.
    #[must_use]
    pub fn of(tag: u64, at: Time) -> Self {
        let access = Access { end: at, ..Access::default() };
        Self { tag, at, durable: true, buffered: true, waited: Nanos(0), access }
    }
}

/// Something that a drive reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command has completed.
    Completed(Completion),
    /// A cached write, acknowledged before, is now on the medium (or newer writes have replaced all
    /// of it there).
    OnMedium {
        /// The tag of the write.
        tag: u64,
        /// Time at which the last sector was written.
        at: Time,
    },
}

/// Counters of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads completed or under way.
    pub reads: u64,
    /// Writes completed or under way.
    pub writes: u64,
    /// Flushes received.
    pub flushes: u64,
    /// Reads that the buffer answered at once.
    pub read_hits: u64,
    /// Reads that the read-ahead under way served.
    pub streamed_reads: u64,
    /// Writes acknowledged from the cache.
    pub cached_writes: u64,
    /// Accesses that brought cached writes to the medium.
    pub destages: u64,
    /// Retries that cost a revolution.
    pub extra_revolutions: u64,
    /// Accesses for which the arm moved or the head changed.
    pub seeks: u64,
    /// Time spent waiting for the first sector of an access, retries included.
    pub rotation: Nanos,
    /// Writes read back in idle time.
    pub verified: u64,
    /// The most commands that were queued at one time.
    pub queued_max: u64,
    /// Time the mechanism spent on commands and destaging (read-ahead not counted).
    pub busy: Nanos,
}

impl Counters {
    /// The counters of two drives added up; of the longest queues the longer one.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            flushes: self.flushes + other.flushes,
            read_hits: self.read_hits + other.read_hits,
            streamed_reads: self.streamed_reads + other.streamed_reads,
            cached_writes: self.cached_writes + other.cached_writes,
            destages: self.destages + other.destages,
            extra_revolutions: self.extra_revolutions + other.extra_revolutions,
            seeks: self.seeks + other.seeks,
            rotation: self.rotation + other.rotation,
            verified: self.verified + other.verified,
            queued_max: self.queued_max.max(other.queued_max),
            busy: self.busy + other.busy,
        }
    }
}
