//! What is measured, and how much of it.

/// A load, and what is promised of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Files are appended to, and the oldest are deleted; two power cuts come in between.
    Appended,
    /// One file is overwritten from its beginning, again and again, as InnoDB does.
    Ring,
    /// Files are renamed and overwritten, as PostgreSQL does.
    Segments,
    /// Small files are written over a day into every log; then others need the room.
    Spread,
    /// A checkpoint, with files that live in the logs and without.
    Pass,
}

impl Gate {
    /// All, in the order of tables.
    pub const ALL: [Self; 5] =
        [Self::Appended, Self::Ring, Self::Segments, Self::Spread, Self::Pass];

    /// As it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Appended => "appended",
            Self::Ring => "ring",
            Self::Segments => "segments",
            Self::Spread => "spread",
            Self::Pass => "pass",
        }
    }
}

/// How much is written, in bytes, where the logs are 1 GiB; less in the same proportion where they
/// are less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amounts {
    /// The logs.
    pub(super) logs: u64,
}

impl Amounts {
    /// A part of the logs, in whole pieces of `piece` bytes, one at least.
    fn part(self, of_mib: u64, piece: u64) -> u64 {
        (self.logs / 1024 * of_mib / piece).max(1) * piece
    }

    /// Appended in all: 1 GiB.
    pub(super) fn appended(self) -> u64 {
        self.part(1024, PIECE)
    }

    /// A file that is appended to: 100 MiB.
    pub(super) fn file(self) -> u64 {
        self.part(100, PIECE)
    }

    /// Bytes of a ring: 256 MiB.
    pub(super) fn ring(self) -> u64 {
        self.part(256, LONG_PIECE)
    }

    /// Bytes of a segment: 16 MiB.
    pub(super) fn segment(self) -> u64 {
        self.part(16, LONG_PIECE)
    }

    /// Small files: 1,000.
    pub(super) fn small_files(self) -> u64 {
        ((self.logs * 1000) >> 30).max(8)
    }

    /// What lives while a pass runs: 300 MiB.
    pub(super) fn live(self) -> u64 {
        self.part(300, LONG_PIECE)
    }

    /// Small writes of others that a checkpoint brings home: those of a minute.
    pub(super) fn waiting(self) -> u64 {
        self.part(60, 20 * 4096)
    }

    /// What others write when they need room: twice the logs.
    pub(super) const fn flood(self) -> u64 {
        2 * self.logs
    }
}

/// What is appended at once: 36 KiB, as 64 clients of a database leave it.
pub(super) const PIECE: u64 = 36 << 10;
/// What is overwritten at once.
pub(super) const LONG_PIECE: u64 = 128 << 10;
/// How often a ring is overwritten.
pub(super) const ROUNDS: u64 = 40;
/// Files that live at a time of those that are appended to.
pub(super) const FILES_LIVE: u64 = 3;
/// Segments that are used by turns: 80 MiB to 1 GiB in PostgreSQL, here 256 MiB.
pub(super) const SEGMENTS: u64 = 16;
/// Bytes of a small file.
pub(super) const SMALL_FILE: u64 = 64 << 10;
