//! Finished runs of a sweep, so that an interrupted sweep can continue.
//!
//! The first line is the sweep, each further line a row; all are JSON. A line is written when its
//! run is finished. One that was cut short is dropped, and its run is done again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::file::Sweep;
use super::row::Row;

/// The journal of a sweep.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

/// The reason why a journal cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The journal belongs to a sweep with other settings.
    #[error(
        "{} holds rows of this sweep with other settings: remove it to begin anew",
        path.display()
    )]
    OtherSweep {
        /// The file.
        path: PathBuf,
    },
}

impl Journal {
    /// Opens the journal at `path` for `sweep`, with the rows that are there.
    ///
    /// # Errors
    /// If it cannot be written, or is of another sweep.
    pub fn open(path: &Path, sweep: &Sweep) -> Result<(Self, Vec<Row>), JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let head = serde_json::to_string(sweep).map_err(|error| io(error.into()))?;
        let before = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io(error)),
        };
        let mut lines = before.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let kept = match lines.next() {
            Some(first) if first.trim_end() != head => {
                return Err(JournalError::OtherSweep { path: path.to_owned() });
            }
            _ => lines.map_while(|line| serde_json::from_str::<Row>(line).ok()),
        };
        let rows: Vec<Row> = kept.collect();
        let mut text = head + "\n";
        for row in &rows {
            text += &line(row).map_err(io)?;
        }
        std::fs::write(path, text).map_err(io)?;
        let file = OpenOptions::new().append(true).open(path).map_err(io)?;
        Ok((Self { path: path.to_owned(), file }, rows))
    }

    /// Appends a finished run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&mut self, row: &Row) -> Result<(), JournalError> {
        let written = line(row).and_then(|line| self.file.write_all(line.as_bytes()));
        written.map_err(|source| JournalError::Io { path: self.path.clone(), source })
    }

    /// Deletes the journal of a finished sweep.
    pub fn remove(self) {
        // A journal that cannot be deleted does no harm: the next sweep reads it again.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn line(row: &Row) -> io::Result<String> {
    Ok(serde_json::to_string(row)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::row::{Ask, Figures};

    fn row(seed: u64) -> Row {
        let ask = Ask { trace: "t".into(), drive: "d".into(), policy: "mlb".into(), seed };
        Row {
            ask,
            parameters: "mlb:log=10M".into(),
            drive_write_cache: false,
            durability: "all".into(),
            rate: 1.0,
            requests: 3,
            durable: Figures::default(),
            reads: Figures { mean: Some(0.1 + 0.2), ..Figures::default() },
            stream_mb_s: None,
            drive_busy_percent: 1.0,
            overloaded: false,
            bursts: false,
            backlog_seconds: 0.0,
            target_busy_percent: None,
            plain_busy_percent: None,
            logged_writes: 0,
            record_bytes: 0,
            log_swaps: 0,
            table_bytes_max: 0,
            checkpoint_seconds: None,
            simulated_seconds: 1.0,
        }
    }

    fn sweep(drive: &str) -> Sweep {
        toml::from_str(&format!("traces = ['t']\ndrives = ['{drive}']\npolicies = ['mlb']"))
            .unwrap()
    }

    #[test]
    fn what_is_kept_comes_back_and_a_cut_line_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, rows) = Journal::open(&path, &sweep("a")).unwrap();
        assert!(rows.is_empty());
        journal.keep(&row(1)).unwrap();
        journal.keep(&row(2)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 20]).unwrap();
        let (mut journal, rows) = Journal::open(&path, &sweep("a")).unwrap();
        assert_eq!(rows, [row(1)]);
        journal.keep(&row(2)).unwrap();
        assert_eq!(Journal::open(&path, &sweep("a")).unwrap().1, [row(1), row(2)]);
        let other = Journal::open(&path, &sweep("b")).unwrap_err();
        assert!(matches!(other, JournalError::OtherSweep { .. }));
    }
}
