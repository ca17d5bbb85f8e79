//! What can go wrong with a trace: always the file, the place, what was expected and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::open::Format;

/// Where in a file something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Line of a text file, counted from one.
    Line(u64),
    /// Byte offset of a binary file, after decompression.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// A record that is not what its format says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The trace file.
    pub file: PathBuf,
    /// Where in it.
    pub position: Position,
    /// What the format asks for there.
    pub expected: String,
    /// What is there instead, shortened.
    pub found: String,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, position, expected, found } = self;
        write!(f, "{}: {position}: expected {expected}, found {found}", file.display())
    }
}

/// Why a trace cannot be opened or read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused to open or read the file.
    #[error("{}: cannot {action}: {source}", file.display())]
    Io {
        /// The file.
        file: Box<PathBuf>,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A record does not have the form of its format.
    #[error("{0}; --skip-bad passes over malformed records and counts them")]
    Malformed(Box<BadRecord>),
    /// The input ends inside a record or before its end mark.
    #[error("{0}; the trace is cut short: --skip-bad reads what is there")]
    Truncated(Box<BadRecord>),
    /// The trace holds no request at all.
    #[error(
        "{}: no request found ({skipped} malformed records passed over); \
         is it a {format} trace, and is the device or event filter right?",
        file.display()
    )]
    Empty {
        /// The file.
        file: Box<PathBuf>,
        /// Records passed over as malformed.
        skipped: u64,
        /// The format it was read as.
        format: Format,
    },
    /// None of the known formats fits the beginning of the file.
    #[error(
        "{}: unknown trace format, it begins with {beginning}; known formats: {}; \
         name one with --format to force it",
        file.display(), Format::list()
    )]
    UnknownFormat {
        /// The file.
        file: Box<PathBuf>,
        /// Its first bytes, made printable.
        beginning: Box<str>,
    },
    /// The options contradict each other or the input.
    #[error("{0}")]
    Options(Box<str>),
}

/// The malformed part of a record, before the file and the place are known.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) expected: &'static str,
    pub(crate) found: String,
}

/// The fault "`expected` should be here but `found` is".
#[cold]
pub(crate) fn fault(expected: &'static str, found: &[u8]) -> Fault {
    Fault { expected, found: printable(found) }
}

/// The first bytes of `bytes` in a form that can stand in a message.
#[cold]
pub(crate) fn printable(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let dots = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
    format!("\"{}{dots}\"", shown.escape_ascii())
}
