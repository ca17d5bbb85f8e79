//! Measured requests: the traces that DIXtrac records and DiskSim is validated with.
//!
//! Each line is a request, `R|W  Hit|Miss  lbn  sectors  service_us  think_us`. One request is
//! outstanding: the next is issued `think_us` after the completion of this one.

use std::path::{Path, PathBuf};

use manylogs_block::{Extent, Nanos};

/// One measured request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whether the request wrote.
    pub write: bool,
    /// Sectors it accessed.
    pub extent: Extent,
    /// Time from issue to completion.
    pub service: Nanos,
    /// Time from its completion to the issue of the next.
    pub think: Nanos,
}

/// Why a trace was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be read.
    #[error("cannot read the measured trace {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not a request.
    #[error("measured trace, line {line}: expected {expected}, found {found:?}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The expected value.
        expected: &'static str,
        /// The value found.
        found: String,
    },
    /// There is no request in the file.
    #[error("the measured trace holds no request")]
    Empty,
}

/// Reads the measured requests in the file `path`.
///
/// # Errors
/// When the file cannot be read or a line is no request.
pub fn read_trace(path: &Path) -> Result<Vec<Record>, TraceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TraceError::Read { path: path.to_owned(), source })?;
    parse_trace(&text)
}

/// Reads measured requests from `text`; empty lines are skipped.
///
/// # Errors
/// When a line is no request, or there is none.
pub fn parse_trace(text: &str) -> Result<Vec<Record>, TraceError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let records = lines
        .map(|(index, line)| {
            record(line).map_err(|(expected, found)| TraceError::Line {
                line: index + 1,
                expected,
                found,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if records.is_empty() { Err(TraceError::Empty) } else { Ok(records) }
}

fn record(line: &str) -> Result<Record, (&'static str, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let six = "six fields: R|W Hit|Miss lbn sectors service_us think_us";
    let [kind, _, start, len, service, think] = fields[..] else {
        return Err((six, line.to_owned()));
    };
    let write = match kind {
        "R" => false,
        "W" => true,
        _ => return Err(("R or W", kind.to_owned())),
    };
    let start = start.parse().map_err(|_| ("a sector address", start.to_owned()))?;
    let sectors: u64 = len.parse().map_err(|_| ("a number of sectors", len.to_owned()))?;
    if sectors == 0 {
        return Err(("at least one sector", len.to_owned()));
    }
    Ok(Record {
        write,
        extent: Extent::new(start, sectors),
        service: microseconds(service)?,
        think: microseconds(think)?,
    })
}

fn microseconds(text: &str) -> Result<Nanos, (&'static str, String)> {
    let value = text.parse::<f64>().ok().filter(|us| us.is_finite() && *us >= 0.0);
    let us = value.ok_or(("microseconds, zero or more", text.to_owned()))?;
    Ok(Nanos::from_secs_f64(us / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request() {
        let records = parse_trace("R Hit   31853640   8   4067.00000      9.00000\n\n").unwrap();
        let expected = Record {
            write: false,
            extent: Extent::new(31_853_640, 8),
            service: Nanos(4_067_000),
            think: Nanos(9_000),
        };
        assert_eq!(records, [expected]);
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let message = |text: &str| parse_trace(text).unwrap_err().to_string();
        assert_eq!(
            message("R Hit 1 8 5.0 9.0\nX Hit 1 8 5.0 9.0"),
            "measured trace, line 2: expected R or W, found \"X\""
        );
        assert!(message("R Hit 1 0 5.0 9.0").contains("at least one sector"));
        assert!(message("R Hit 1 8 -5.0 9.0").contains("microseconds, zero or more"));
        assert!(message("R Hit 1 8").contains("six fields"));
        assert_eq!(message("\n"), "the measured trace holds no request");
    }
}
