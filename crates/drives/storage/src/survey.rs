//! Surveys the content of a device before it is formatted.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;

use crate::signatures::{Position, SIGNATURES, Signature};

/// Length of the start that is searched for bytes other than zero.
const HEAD_BYTES: u64 = 1 << 20;
/// Length of the end that is searched likewise.
const TAIL_BYTES: u64 = 64 << 10;
const ALL_IN_MEMORY: &str = "a megabyte fits in memory";

/// Content of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Only zeroes in all places that formats and file systems write.
    Empty,
    /// Data of no known format.
    Unknown,
    /// The formats whose signatures were found, the one that says most first.
    Known(Vec<&'static str>),
}

impl Contents {
    /// Whether formatting the device loses no data that can be found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing"),
            Self::Unknown => f.write_str("unknown data"),
            Self::Known(names) => f.write_str(&names.join(", ")),
        }
    }
}

/// Finds out what the device or file at `path` holds.
///
/// # Errors
/// If it cannot be opened or read.
pub fn survey(path: &Path) -> io::Result<Contents> {
    survey_file(&File::open(path)?)
}

/// As [`survey`], for a file that is open already.
///
/// # Errors
/// If it cannot be read.
pub fn survey_file(file: &File) -> io::Result<Contents> {
    let sample = Sample { file, size: rustix::fs::seek(file, SeekFrom::End(0))? };
    let mut names = Vec::new();
    for signature in &SIGNATURES {
        let alone = names.is_empty();
        if (alone || !signature.weak)
            && sample.shows(signature)?
            && !names.contains(&signature.name)
        {
            names.push(signature.name);
        }
    }
    if !names.is_empty() {
        return Ok(Contents::Known(names));
    }
    Ok(if sample.is_zero()? { Contents::Empty } else { Contents::Unknown })
}

/// A device under examination.
struct Sample<'a> {
    file: &'a File,
    size: u64,
}

impl Sample<'_> {
    fn shows(&self, signature: &Signature) -> io::Result<bool> {
        for at in places(signature.place, self.size) {
            if self.read(at, signature.magic.len())? == signature.magic {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_zero(&self) -> io::Result<bool> {
        let tail = self.size.saturating_sub(TAIL_BYTES);
        for (at, len) in [(0, HEAD_BYTES.min(self.size)), (tail, self.size - tail)] {
            let len = usize::try_from(len).map_err(|_| io::Error::other(ALL_IN_MEMORY))?;
            if self.read(at, len)?.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        read_at(self.file, at, len)
    }
}

/// Reads up to `len` bytes from byte `at` on; fewer at the end of the file or device.
///
/// # Errors
/// If it cannot be read.
pub fn read_at(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut used = 0;
    while used < len {
        match file.read_at(&mut bytes[used..], at + used as u64) {
            Ok(0) => break,
            Ok(more) => used += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(used);
    Ok(bytes)
}

/// The byte addresses of `place` on a device of `size` bytes.
fn places(place: Position, size: u64) -> Vec<u64> {
    match place {
        Position::Start(at) => vec![at],
        Position::Each { from, until, step } => (from..until).step_by(step).collect(),
        Position::End { before, align } => {
            size.checked_sub(before).map(|at| at - at % align).into_iter().collect()
        }
        Position::Last(align) => (size - size % align).checked_sub(align).into_iter().collect(),
    }
}
