//! Rows of finished runs, with which an interrupted command can continue.
//!
//! The file's first line names its format and the program; each further line is a row with its key.
//! All lines are JSON. A line is written when its run is finished. A truncated line is dropped, as
//! are rows of another program; their runs are done again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
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
    /// Number of the file's rows that came from another program.
    dropped: usize,
    /// Number of the file's lines that are no rows.
    damaged: usize,
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
    /// An empty collection without a file.
    #[must_use]
    pub const fn in_memory() -> Self {
        Self { rows: BTreeMap::new(), file: None, dropped: 0, damaged: 0 }
    }

    /// The row of `key`.
    #[must_use]
    pub fn get(&self, key: RunKey) -> Option<&R> {
        self.rows.get(&key)
    }

    /// Number of the file's lines that are not this program's: from another program, or in an older
    /// form of the file.
    #[must_use]
    pub const fn dropped(&self) -> usize {
        self.dropped
    }

    /// Number of damaged lines: each loses its own row only.
    #[must_use]
    pub const fn damaged(&self) -> usize {
        self.damaged
    }

    /// Deletes the file.
    pub fn remove(self) {
        if let Some((path, _)) = self.file {
            // A file that cannot be deleted does no harm: its rows are valid.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl<R: Serialize + DeserializeOwned> Kept<R> {
    /// Opens the file at `path`, and reads the rows of this program. Rows of other programs are
    /// removed from the file.
    ///
    /// The file is locked until this is dropped, so that no other process writes it meanwhile.
    ///
    /// # Errors
    /// If it cannot be read or written, or another process has it open (`ErrorKind::ResourceBusy`).
    pub fn open(path: &Path) -> Result<Self, KeptError> {
        let failed = |source| KeptError { path: path.to_owned(), source };
        let mut older = locked(path).map_err(failed)?;
        let mut before = Vec::new();
        older.read_to_end(&mut before).map_err(failed)?;
        let before = String::from_utf8_lossy(&before);
        let mut lines = before.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let head = lines.next().map(serde_json::from_str::<Head>);
        let is_ours = |head: &Head| head.manylogs_rows == FORMAT && head.program == program();
        let (mut rows, mut dropped, mut damaged) = (BTreeMap::new(), 0, 0);
        match head {
            None => {}
            Some(Ok(head)) if is_ours(&head) => {
                for line in lines {
                    match serde_json::from_str::<Line<R>>(line) {
                        Ok(line) => _ = rows.insert(line.key, line.row),
                        Err(_) => damaged += 1,
                    }
                }
            }
            Some(_) => dropped = lines.count(),
        }
        let head = Head { manylogs_rows: FORMAT, program: program().to_owned() };
        let mut text = line(&head).map_err(failed)?;
        for (key, row) in &rows {
            text += &line(&Line { key: *key, row }).map_err(failed)?;
        }
        // Written to a new file and renamed: a crash leaves the older file or the newer one, never
        // a part.
        let partial = path.with_extension("partial");
        let mut file = File::create(&partial).map_err(failed)?;
        lock(&file).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        std::fs::rename(&partial, path).map_err(failed)?;
        Ok(Self { rows, file: Some((path.to_owned(), file)), dropped, damaged })
    }

    /// Stores the row of a finished run.
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

/// The file at `path`, created if missing, and locked.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        lock(&file)?;
        // The previous holder of the lock may have replaced the file.
        match path.metadata() {
            Ok(there) if there.ino() == file.metadata()?.ino() => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process is at work on these results: wait until it ends, or have yours \
             written elsewhere",
        )),
        Err(error) => Err(error.into()),
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
        drop(kept);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut kept = Kept::<f64>::open(&path).unwrap();
        assert_eq!((kept.get(key(1)), kept.get(key(2))), (Some(&(0.1 + 0.2)), None));
        kept.keep(key(2), 2.0).unwrap();
        drop(kept);
        let kept = Kept::<f64>::open(&path).unwrap();
        assert_eq!((kept.get(key(2)), kept.dropped()), (Some(&2.0), 0));
        kept.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_bad_line_costs_its_own_row_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut kept = Kept::<f64>::open(&path).unwrap();
        (1..=3).for_each(|seed| kept.keep(key(seed), seed as f64).unwrap());
        drop(kept);
        let text = std::fs::read(&path).unwrap();
        let mut lines: Vec<Vec<u8>> =
            text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines[2] = vec![0xff, 0, 1];
        std::fs::write(&path, lines.join(&b'\n')).unwrap();
        let kept = Kept::<f64>::open(&path).unwrap();
        assert_eq!(
            (kept.get(key(1)), kept.get(key(2)), kept.get(key(3))),
            (Some(&1.0), None, Some(&3.0))
        );
        assert_eq!((kept.damaged(), kept.dropped()), (1, 0));
    }

    #[test]
    fn a_second_one_is_refused_while_the_first_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut first = Kept::<f64>::open(&path).unwrap();
        let refused = Kept::<f64>::open(&path).unwrap_err();
        assert_eq!(refused.source.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains("wait until it ends"), "{refused}");
        first.keep(key(1), 1.0).unwrap();
        drop(first);
        assert_eq!(Kept::<f64>::open(&path).unwrap().get(key(1)), Some(&1.0));
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
            drop(kept);
            let again = Kept::<f64>::open(&path).unwrap();
            assert_eq!(again.dropped(), 0, "they are gone");
        }
    }
}
