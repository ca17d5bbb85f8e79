//! Errors of traces: each names the file, the place, what was expected, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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

/// A record that does not have the form of its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The trace file.
    pub file: PathBuf,
    /// Where in it.
    pub position: Position,
    /// What the format requires there.
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

/// A file that the operating system does not let us read.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", file.display())]
pub struct IoFailure {
    /// The file.
    pub file: PathBuf,
    /// The operation that failed.
    pub action: &'static str,
    /// The system's reason.
    pub source: io::Error,
}

/// A file that looks like none of the known formats.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: unknown trace format, it begins with {beginning}; known formats: {}; \
     name one with --format to force it",
    file.display(), Format::list()
)]
pub struct UnknownFormat {
    /// The file.
    pub file: PathBuf,
    /// Its first bytes, made printable.
    pub beginning: String,
}

/// Why a trace cannot be opened or read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused to open or read the file.
    #[error(transparent)]
    Io(Box<IoFailure>),
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
    #[error(transparent)]
    UnknownFormat(Box<UnknownFormat>),
    /// The options contradict each other or the input.
    #[error("{0}")]
    Options(Box<str>),
}

impl TraceError {
    /// The kind of the operating system's error; `None` if there is no such error.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io(failed) => Some(failed.source.kind()),
            _ => None,
        }
    }

    /// The error that `action` failed on `file`.
    #[cold]
    pub(crate) fn io(file: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io(Box::new(IoFailure { file: file.to_owned(), action, source }))
    }
}

// Requests and errors travel through every source in one Result. An error that fits beside the
// operation keeps that Result as small as a request, and as cheap to move.
const _: () = assert!(size_of::<TraceError>() <= 24);
const _: () = assert!(
    size_of::<Option<Result<crate::TraceRequest, TraceError>>>()
        == size_of::<crate::TraceRequest>()
);

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
