//! What can go wrong with a table in non-volatile RAM.

use thiserror::Error;

/// What is wrong with the non-volatile RAM that holds a volume's table.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvramError {
    /// The volume keeps its table in non-volatile RAM, and none was given.
    #[error(
        "the volume keeps its table in non-volatile RAM: say where it is (--table nvram:PATH); \
         without it what was only logged is lost (--give-up-table)"
    )]
    Missing,
    /// One was given, and the volume keeps its table in its logs.
    #[error("the volume keeps its table in its logs: open it without --table")]
    Unused,
    /// It holds no table.
    #[error("the non-volatile RAM holds no table: it is blank, or something else")]
    Blank,
    /// It holds the table of another volume.
    #[error("the non-volatile RAM holds the table of another volume")]
    Foreign,
    /// It was written by another version of the program.
    #[error("the table has format version {found}, this program knows version {known} only")]
    Version {
        /// In the memory.
        found: u32,
        /// What is understood.
        known: u32,
    },
    /// It holds the table of another opening of the volume: memory or disk is an old copy.
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
    /// What it holds is not whole.
    #[error("the table in non-volatile RAM is damaged: {0}")]
    Damaged(&'static str),
    /// Asked for the records of a log.
    #[error("the records of the logs are described in non-volatile RAM, not in the logs")]
    Apart,
    /// It is too small.
    #[error("non-volatile RAM of {have} bytes is too small for the table: it needs {need}")]
    TooSmall {
        /// Its size.
        have: usize,
        /// Least size that would do.
        need: usize,
    },
}
