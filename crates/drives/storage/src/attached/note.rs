//! The note of the old setting of a drive's write cache.

use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use manylogs_block::on_off;

/// Extension of the names of notes.
const EXTENSION: &str = "cache";
/// Longest note that is read, and longest name of a note.
const NOTE_MAX: usize = 8192;
const NAME_MAX: usize = 120;
/// Ends a note. Bytes behind it belong to a longer note that was there before.
const END: &[u8] = b"\nend\n";

/// The content of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Identity of the disk.
    pub(super) identity: String,
    /// Whether the cache was on before.
    pub(super) former: bool,
    /// Whether the cache is to be on now.
    pub(super) set: bool,
    /// The process that changed the setting.
    pub(super) pid: u32,
    /// The device that the process serves.
    pub(super) device: PathBuf,
}

/// The path of a disk's note in `directory`.
pub(super) fn note_path(directory: &Path, identity: &str) -> PathBuf {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = identity.chars().map(kept).collect();
    let words: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(NAME_MAX);
    directory.join(format!("disk-{name}.{EXTENSION}"))
}

impl Note {
    /// Reads the note in `file`; `None` if it holds none.
    pub(super) fn read(file: &File) -> Option<Self> {
        let mut bytes = vec![0; NOTE_MAX];
        let len = file.read_at(&mut bytes, 0).ok()?;
        let end = bytes[..len].windows(END.len()).position(|part| part == END)?;
        let mut lines = bytes[..end].splitn(5, |byte| *byte == b'\n');
        let mut line = || lines.next();
        let text = |line: Option<&[u8]>| String::from_utf8(line?.to_vec()).ok();
        let switch = |line: Option<&[u8]>| match line? {
            b"on" => Some(true),
            b"off" => Some(false),
            _ => None,
        };
        Some(Self {
            former: switch(line())?,
            set: switch(line())?,
            pid: text(line())?.parse().ok()?,
            identity: text(line())?,
            device: std::ffi::OsString::from_vec(line()?.to_vec()).into(),
        })
    }

    /// Writes the note into `file` with one call: a process killed meanwhile leaves the old or the
    /// new note.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        let Self { identity, former, set, pid, device } = self;
        let head = format!("{}\n{}\n{pid}\n{identity}\n", on_off(*former), on_off(*set));
        let mut text = head.into_bytes();
        text.extend_from_slice(device.as_os_str().as_bytes());
        text.extend_from_slice(END);
        file.write_all_at(&text, 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn note(device: &str) -> Note {
        let identity = "t10.ATA     DISK   1".to_owned();
        Note { identity, former: true, set: false, pid: 7, device: device.into() }
    }

    #[test]
    fn a_note_reads_back_also_over_a_longer_one() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Note::read(&file), None);
        for device in ["/dev/disk/by-id/something-long", "/dev/sdb"] {
            note(device).write(&file).unwrap();
            assert_eq!(Note::read(&file), Some(note(device)));
        }
        for bad in ["on\nmaybe\n7\nx\n/dev/sdb\nend\n", "on\noff\n7\nx\n/dev/sdb", "\nend\n"] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bad.as_bytes(), 0).unwrap();
            assert_eq!(Note::read(&file), None, "{bad:?}");
        }
    }

    #[test]
    fn names_are_those_of_files() {
        let path = note_path(Path::new("/run/m"), "t10.ATA     A/../B   1");
        assert_eq!(path, Path::new("/run/m/disk-t10.ATA-A-..-B-1.cache"));
        assert!(note_path(Path::new(""), &"x".repeat(999)).as_os_str().len() < 200);
    }
}
