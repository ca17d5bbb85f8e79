//! Writing results: to the terminal, and to files that are known to be writable beforehand.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Prints `text` to standard output; a reader that ends early (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A number of things: one volume, two volumes.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A file to be written when the work is done. It was found to be writable before the work began.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
}

impl Output {
    /// Checks that `path` can be written; fails when it cannot.
    pub(crate) fn reserve(path: &Path) -> Result<Self, Failure> {
        match probe(path) {
            Ok(()) => Ok(Self { path: path.to_owned() }),
            Err(error) => {
                let message = format!(
                    "cannot write {}: {error}; choose another output (nothing has been run yet)",
                    path.display()
                );
                Err(Failure::of_given(&error, message))
            }
        }
    }

    /// Writes the content to a new file, and then renames it, so that a failure leaves an older
    /// result intact.
    pub(crate) fn write(&self, content: &[u8]) -> Result<(), Failure> {
        let written = if is_special(&self.path) {
            fs::write(&self.path, content)
        } else {
            let partial = partial(&self.path);
            File::create(&partial)
                .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
                .and_then(|()| fs::rename(&partial, &self.path))
        };
        written.map_err(|error| self.cannot_write(&error))
    }

    /// A new file beside the output, to be written piece by piece.
    pub(crate) fn create(&self) -> Result<(PathBuf, File), Failure> {
        let partial = partial(&self.path);
        let file = File::create(&partial).map_err(|error| self.cannot_write(&error))?;
        Ok((partial, file))
    }

    /// Gives the finished file the output's name.
    pub(crate) fn adopt(&self, partial: &Path) -> Result<(), Failure> {
        fs::rename(partial, &self.path).map_err(|error| self.cannot_write(&error))
    }

    /// Failure for `error` while writing.
    pub(crate) fn cannot_write(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot write {}: {error}", self.path.display()))
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn probe(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if path.exists() {
        // A read-only file is refused: it should stay as it is.
        OpenOptions::new().append(true).open(path)?;
    }
    if is_special(path) {
        return Ok(());
    }
    let partial = partial(path);
    File::create(&partial)?;
    fs::remove_file(&partial)
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    path.with_file_name(name)
}

/// Devices and pipes (`/dev/stdout`) are written in place.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}
