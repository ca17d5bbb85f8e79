//! Rows of finished runs, so that what was interrupted can go on.
//!
//! The file's first line says what it is, and of which program; each further line is a row with its
//! key. All are JSON. A line is written when its run is finished. One that was cut short is
//! dropped, and its run is done again; so are the rows of another program.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::key::{RunKey, program};

/// Version of the file.
const FORMAT: u32 = 2;

/// Rows by key, in memory and in a file.
#[derive(Debug)]
pub struct Kept<R> {
    rows: BTreeMap<RunKey, R>,
    file: Option<(PathBuf, File)>,
    /// Rows that the file had, and that are of another program.
    dropped: usize,
}

/// Why rows cannot be kept.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct KeptError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

#[derive(Serialize, Deserialize)]
struct Head {
    manylogs_rows: u32,
    program: String,
}

#[derive(Serialize, Deserialize)]
struct Line<R> {
    key: RunKey,
    row: R,
}

impl<R> Kept<R> {
    /// Nothing, and no file.
    #[must_use]
    pub const fn in_memory() -> Self {
        Self { rows: BTreeMap::new(), file: None, dropped: 0 }
    }

    /// The row of `key`.
    #[must_use]
    pub fn get(&self, key: RunKey) -> Option<&R> {
        self.rows.get(&key)
    }

    /// Number of lines that the file had and that are not this program's: of another program, or
    /// of an older form of the file.
    #[must_use]
    pub const fn dropped(&self) -> usize {
        self.dropped
    }

    /// Deletes the file.
    pub fn remove(self) {
        if let Some((path, _)) = self.file {
            // One that cannot be deleted does no harm: its rows are right.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl<R: Serialize + DeserializeOwned> Kept<R> {
    /// Opens the file at `path`, with the rows of this program that are there. The rows of others
    /// are taken out of the file.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, KeptError> {
        let failed = |source| KeptError { path: path.to_owned(), source };
        let before = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut lines = before.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let head = lines.next().map(serde_json::from_str::<Head>);
        let is_ours = |head: &Head| head.manylogs_rows == FORMAT && head.program == program();
        let (mut rows, mut dropped) = (BTreeMap::new(), 0);
        match head {
            None => {}
            Some(Ok(head)) if is_ours(&head) => {
                let read = lines.map_while(|line| serde_json::from_str::<Line<R>>(line).ok());
                rows.extend(read.map(|line| (line.key, line.row)));
            }
            Some(_) => dropped = lines.count(),
        }
        let head = Head { manylogs_rows: FORMAT, program: program().to_owned() };
        let mut text = line(&head).map_err(failed)?;
        for (key, row) in &rows {
            text += &line(&Line { key: *key, row }).map_err(failed)?;
        }
        // A crash between the two leaves the older file or the newer one, and no half of one.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, text).map_err(failed)?;
        std::fs::rename(&partial, path).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        Ok(Self { rows, file: Some((path.to_owned(), file)), dropped })
    }

    /// Keeps the row of a finished run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&mut self, key: RunKey, row: R) -> Result<(), KeptError> {
        if let Some((path, file)) = &mut self.file {
            let written =
                line(&Line { key, row: &row }).and_then(|line| file.write_all(line.as_bytes()));
            written.map_err(|source| KeptError { path: path.clone(), source })?;
        }
        self.rows.insert(key, row);
        Ok(())
    }
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::key::KeyBuilder;
    use super::*;

    fn key(seed: u64) -> RunKey {
        KeyBuilder::new("test").with("seed", seed).key()
    }

    #[test]
    fn what_is_kept_comes_back_and_a_cut_line_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut kept = Kept::<f64>::open(&path).unwrap();
        kept.keep(key(1), 0.1 + 0.2).unwrap();
        kept.keep(key(2), 2.0).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut kept = Kept::<f64>::open(&path).unwrap();
        assert_eq!((kept.get(key(1)), kept.get(key(2))), (Some(&(0.1 + 0.2)), None));
        kept.keep(key(2), 2.0).unwrap();
        let kept = Kept::<f64>::open(&path).unwrap();
        assert_eq!((kept.get(key(2)), kept.dropped()), (Some(&2.0), 0));
        kept.remove();
        assert!(!path.exists());
    }

    #[test]
    fn rows_of_another_program_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Kept::<f64>::open(&path).unwrap().keep(key(1), 1.0).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for other in [text.replace(program(), "0.0.1-abc"), text.replacen("manylogs_rows", "x", 1)]
        {
            std::fs::write(&path, other).unwrap();
            let kept = Kept::<f64>::open(&path).unwrap();
            assert_eq!((kept.get(key(1)), kept.dropped()), (None, 1));
            let again = Kept::<f64>::open(&path).unwrap();
            assert_eq!(again.dropped(), 0, "they are gone");
        }
    }
}
