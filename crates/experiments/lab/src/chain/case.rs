//! What is measured.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Nanos, Sectors};
use manylogs_gecko::Cleaning;

use crate::replay::DriveSettings;

/// When writes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each write is durable when it is answered.
    Each,
    /// Writes are answered at once, and a flush follows each second.
    FlushEachSecond,
}

/// Which blocks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All alike.
    Uniform,
    /// Nine writes in ten go to a tenth of the blocks.
    Hot,
}

/// What the chain holds before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Nothing.
    Nothing,
    /// The first drive is full, and the tail is on the second.
    FirstDrive,
    /// All drives but the last are full, and the tail is on the last.
    Body,
    /// As [`Fill::FirstDrive`], but so many blocks in a hundred of the first drive were trimmed,
    /// and the measured writes went on until the first segment was cleaned.
    Trimmed(u32),
    /// The measured writes went on until the raw capacity was written so many times.
    Raw(u32),
}

/// What the drives make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A chain of them.
    Chain,
    /// A log over RAID-0 of them: the array is cut into as many parts as there are drives, and the
    /// same code takes the parts for the links of a chain. So tail, cleaning and readers share all
    /// drives.
    Log,
    /// RAID-0 of them, written in place.
    InPlace,
    /// A log over RAID-0 of them that is cleaned block by block: 4 KiB are read at a time and 128
    /// KiB written, four requests in flight for each drive. The application writes what becomes
    /// free.
    Blockwise,
}

/// A chain and its load.
#[derive(Clone, Debug)]
pub struct ChainCase {
    /// Each of the drives.
    pub drive: DriveSettings,
    /// What the drives make.
    pub layout: Layout,
    /// Number of drives, or of pairs.
    pub links: usize,
    /// Whether each is a pair of drives that hold the same.
    pub mirrored: bool,
    /// Length of a segment.
    pub segment: Sectors,
    /// Share of the raw capacity that is exported; as much as can be when not given.
    pub export: Option<f64>,
    /// How room is made.
    pub cleaning: Cleaning,
    /// When writes become durable.
    pub durability: Durability,
    /// Which blocks are written.
    pub pattern: Pattern,
    /// Writes in flight.
    pub in_flight: u32,
    /// Streams that each write a part of the blocks sequentially, 1 MiB at a time, four in flight.
    pub streams: u32,
    /// Random reads of 4 KiB in flight, of what the full drives hold; of all in the steady state.
    pub readers: u32,
    /// Random reads of 4 KiB a second, of what was written since the measurement began: the tail's
    /// drive has it. Each begins when it is due, whether the one before has ended or not.
    pub tail_reads_s: u32,
    /// Memory of the tail cache.
    pub cache: Sectors,
    /// Whether links keep summaries of each other's segments. A log over RAID-0 keeps none: its
    /// links are parts of the same drives.
    pub summaries: bool,
    /// What was written before.
    pub fill: Fill,
    /// Whether the first drive leaves the chain meanwhile. It is measured until it has left.
    pub leaves: bool,
    /// Simulated time that is measured.
    pub span: Nanos,
    /// Decides everything random.
    pub seed: u64,
}

/// A name that nothing has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPattern(String);

impl Layout {
    /// Every layout, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Chain, Self::Log, Self::InPlace, Self::Blockwise];

    /// Name in the files of figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Log => "log",
            Self::InPlace => "in-place",
            Self::Blockwise => "log-by-block",
        }
    }

    /// The layout of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name)
    }
}

impl Pattern {
    /// Both, in the order of their declaration.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Hot];

    /// Name in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Hot => "90/10",
        }
    }
}

impl FromStr for Pattern {
    type Err = UnknownPattern;

    fn from_str(name: &str) -> Result<Self, UnknownPattern> {
        let found = Self::ALL.into_iter().find(|pattern| pattern.name() == name);
        found.ok_or_else(|| UnknownPattern(name.to_owned()))
    }
}

impl fmt::Display for UnknownPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no pattern is called {:?} (there are: uniform, 90/10)", self.0)
    }
}

impl std::error::Error for UnknownPattern {}
