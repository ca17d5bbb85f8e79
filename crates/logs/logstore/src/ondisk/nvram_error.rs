//! Errors of a table in non-volatile RAM.

use thiserror::Error;

/// Errors of the non-volatile RAM that holds a volume's table.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvramError {
    /// The volume keeps its table in non-volatile RAM, and none was given.
    #[error(
        "the volume keeps its table in non-volatile RAM: say where it is (--table nvram:PATH); \
         without it what was only logged is lost (--give-up-table)"
    )]
    Missing,
    /// Memory was given, but the volume keeps its table in its logs.
    #[error("the volume keeps its table in its logs: open it without --table")]
    Unused,
    /// The memory holds no table.
    #[error("the non-volatile RAM holds no table: it is blank, or something else")]
    Blank,
    /// The memory holds the table of another volume.
    #[error("the non-volatile RAM holds the table of another volume")]
    Foreign,
    /// The memory was written by another version of the program.
    #[error("the table has format version {found}, this program knows version {known} only")]
    Version {
        /// In the memory.
        found: u32,
        /// Version that this program understands.
        known: u32,
    },
    /// The memory holds the table of another opening of the volume: it or the disk is an old copy.
    #[error(
        "the table is of opening {table}, the volume was opened {volume} times: one of them is an \
         old copy"
    )]
    Stale {
        /// Number of the opening in the memory.
        table: u32,
        /// Number of the opening on the disk.
        volume: u32,
    },
    /// The table in the memory is damaged.
    #[error("the table in non-volatile RAM is damaged: {0}")]
    Damaged(&'static str),
    /// A caller asked for the records of a log.
    #[error("the records of the logs are described in non-volatile RAM, not in the logs")]
    Apart,
    /// The memory is too small.
    #[error("non-volatile RAM of {have} bytes is too small for the table: it needs {need}")]
    TooSmall {
        /// Size of the memory.
        have: usize,
        /// Least size that is enough.
        need: usize,
    },
}
