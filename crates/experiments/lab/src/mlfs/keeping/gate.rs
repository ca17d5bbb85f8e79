//! The gates, and the amounts of data that they write.

/// A load with promises that must hold for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Files are appended to, and the oldest are deleted; with two power cuts in between.
    Appended,
    /// One file is overwritten from its beginning, again and again, as InnoDB does.
    Ring,
    /// Files are renamed and overwritten, as PostgreSQL does.
    Segments,
    /// Over a day small files are written into every log; then other files need the room.
    Spread,
    /// One user writes far more than the budget, beside another's log.
    Owners,
    /// What was appended beside readers is read back, from the logs and from home.
    Read,
    /// A checkpoint pass, with live durable-only files in the logs and without.
    Pass,
}

impl Gate {
    /// All gates, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Appended,
        Self::Ring,
        Self::Segments,
        Self::Spread,
        Self::Owners,
        Self::Read,
        Self::Pass,
    ];

    /// Name of the gate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Appended => "appended",
            Self::Ring => "ring",
            Self::Segments => "segments",
            Self::Spread => "spread",
            Self::Owners => "owners",
            Self::Read => "read",
            Self::Pass => "pass",
        }
    }
}

/// Amounts of data, in bytes. The comments state them for logs of 1 GiB; they shrink in proportion
/// to the logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amounts {
    /// Bytes of all logs.
    pub(super) logs: u64,
}

impl Amounts {
    /// `of_mib` MiB for logs of 1 GiB, scaled to these logs and rounded down to whole pieces of
    /// `piece` bytes, at least one.
    fn part(self, of_mib: u64, piece: u64) -> u64 {
        (self.logs / 1024 * of_mib / piece).max(1) * piece
    }

    /// Total appended bytes: 1 GiB.
    pub(super) fn appended(self) -> u64 {
        self.part(1024, PIECE)
    }

    /// Length of an appended file: 100 MiB.
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

    /// Bytes that are read back: 64 MiB.
    pub(super) fn read_back(self) -> u64 {
        self.part(64, PIECE)
    }

    /// Bytes that one user writes to live files: 4 GiB.
    pub(super) const fn flagged(self) -> u64 {
        4 * self.logs / LONG_PIECE * LONG_PIECE
    }

    /// Number of small files: 1,000.
    pub(super) fn small_files(self) -> u64 {
        ((self.logs * 1000) >> 30).max(8)
    }

    /// Live durable-only bytes while a pass runs: 300 MiB.
    pub(super) fn live(self) -> u64 {
        self.part(300, LONG_PIECE)
    }

    /// Small writes to other files that a checkpoint brings home: those of a minute.
    pub(super) fn waiting(self) -> u64 {
        self.part(60, 20 * 4096)
    }

    /// Bytes written to other files when they need room: twice the logs.
    pub(super) const fn flood(self) -> u64 {
        2 * self.logs
    }
}

/// Bytes of one append: 36 KiB, as by 64 clients of a database.
pub(super) const PIECE: u64 = 36 << 10;
/// Bytes of one overwrite.
pub(super) const LONG_PIECE: u64 = 128 << 10;
/// How often a ring is overwritten.
pub(super) const ROUNDS: u64 = 40;
/// Number of appended files that exist at a time.
pub(super) const FILES_LIVE: u64 = 3;
/// Number of segments used in turn. Together they have 256 MiB here, 80 MiB to 1 GiB in PostgreSQL.
pub(super) const SEGMENTS: u64 = 16;
/// Bytes of a small file.
pub(super) const SMALL_FILE: u64 = 64 << 10;
