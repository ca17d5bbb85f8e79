//! Replays a log that dm-log-writes made below a volume, and checks the volume at each flush. What
//! a power cut there would have left must be a good volume with a good ext4 file system, and with
//! every file whose mark came before.
//!
//! `replay_writes LOG IMAGE MANYLOGS [STATES]`: IMAGE is the disk as it was before the log began,
//! and is changed. MANYLOGS is the program whose `check` is run. At most STATES states are checked,
//! spread over the log. A mark `fs` says that there is a file system from then on, and a mark
//! `file:NAME:SHA256` that the file NAME is durable.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;

use manylogs::Volume;
use manylogs_block::{BlockDevice, Extent, Request, SECTOR_BYTES, Sectors, to_usize};
use manylogs_storage::{FileDevice, OpenMode, Reactor};

type Any<T> = Result<T, Box<dyn Error>>;

/// dm-log-writes's on-disk log: the kernel's Documentation/admin-guide/device-mapper/log-writes.rst
/// and `struct log_write_super`, `log_write_entry`; numbers are little-endian.
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Bytes of an entry before the text of a mark.
const ENTRY_BYTES: usize = 32;
/// Sectors read from a volume at a time.
const PIECE: u64 = 2048;
/// Number of files that are compared in each state: the last ones, which are most likely lost.
const FILES: usize = 8;

struct Log {
    file: File,
    sector_bytes: u64,
    entries: u64,
    /// Place of the next entry.
    at: u64,
}

struct Entry {
    sector: u64,
    flags: u64,
    mark: String,
    /// Empty for discards.
    data: Vec<u8>,
}

impl Log {
    fn open(path: &Path) -> Any<Self> {
        let file = File::open(path)?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0)?;
        if word(&head, 0) != MAGIC {
            return Err(format!("{}: no log of dm-log-writes", path.display()).into());
        }
        let sector_bytes = word(&head, 20) >> 32;
        Ok(Self { file, sector_bytes, entries: word(&head, 16), at: sector_bytes })
    }

    fn next(&mut self) -> io::Result<Option<Entry>> {
        if self.entries == 0 {
            return Ok(None);
        }
        self.entries -= 1;
        let mut head = vec![0; to_usize(self.sector_bytes)];
        self.file.read_exact_at(&mut head, self.at)?;
        self.at += self.sector_bytes;
        let (sector, count, flags) = (word(&head, 0), word(&head, 8), word(&head, 16));
        let text = head.get(ENTRY_BYTES..ENTRY_BYTES + to_usize(word(&head, 24)));
        let mark = text.filter(|_| flags & MARK != 0).unwrap_or_default();
        let mark = String::from_utf8_lossy(mark).trim_end_matches('\0').to_owned();
        let len = if flags & DISCARD == 0 { count * self.sector_bytes } else { 0 };
        let mut data = vec![0; to_usize(len)];
        self.file.read_exact_at(&mut data, self.at)?;
        self.at += len;
        Ok(Some(Entry { sector, flags, mark, data }))
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn main() -> Any<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (log, image, manylogs, states) = match given.as_slice() {
        [log, image, manylogs] => (log, image, manylogs, 200),
        [log, image, manylogs, states] => (log, image, manylogs, states.parse()?),
        _ => return Err("replay_writes LOG IMAGE MANYLOGS [STATES]".into()),
    };
    let every = flushes(Path::new(log))?.div_ceil(states).max(1);
    let checker = Checker {
        manylogs: manylogs.into(),
        crashed: format!("{image}.crashed").into(),
        plain: format!("{image}.plain").into(),
    };
    let disk = OpenOptions::new().write(true).open(image)?;
    let mut log = Log::open(Path::new(log))?;
    let (mut flush, mut checked, mut compared) = (0, 0, 0);
    let (mut formatted, mut files) = (false, Vec::new());
    while let Some(entry) = log.next()? {
        disk.write_all_at(&entry.data, entry.sector * log.sector_bytes)?;
        if entry.mark == "fs" {
            formatted = true;
        }
        if let Some(rest) = entry.mark.strip_prefix("file:") {
            files.extend(rest.split_once(':').map(|(name, sum)| (name.to_owned(), sum.to_owned())));
        }
        if entry.flags & (FLUSH | FUA | MARK) == 0 {
            continue;
        }
        flush += 1;
        if flush % every == 0 || log.entries == 0 {
            let wrong = |error| format!("after flush {flush} ({}): {error}", entry.mark);
            let last = &files[files.len().saturating_sub(FILES)..];
            checker.check(Path::new(image), formatted, last).map_err(wrong)?;
            (checked, compared) = (checked + 1, compared + last.len());
        }
    }
    println!(
        "{checked} states at {flush} flushes are good, {compared} times a durable file of {}",
        files.len()
    );
    if !formatted || files.is_empty() {
        return Err("the log has no file system, or no file in it".into());
    }
    Ok(())
}

/// Number of entries in a log that are flushes, FUA writes or marks.
fn flushes(path: &Path) -> Any<u64> {
    let (mut log, mut count) = (Log::open(path)?, 0);
    while let Some(entry) = log.next()? {
        count += u64::from(entry.flags & (FLUSH | FUA | MARK) != 0);
    }
    Ok(count)
}

struct Checker {
    manylogs: PathBuf,
    /// A copy of the disk, because an opening may change it.
    crashed: PathBuf,
    /// The content that the volume exports.
    plain: PathBuf,
}

impl Checker {
    fn check(&self, image: &Path, formatted: bool, files: &[(String, String)]) -> Any<()> {
        run(Command::new("cp").arg("--sparse=always").arg(image).arg(&self.crashed))?;
        run(Command::new(&self.manylogs).arg("check").arg(&self.crashed))?;
        export(&self.crashed, &self.plain)?;
        if !formatted {
            return Ok(());
        }
        let mut journal = Command::new("e2fsck");
        let replayed = journal.args(["-y", "-E", "journal_only"]).arg(&self.plain).output()?;
        // Code 1: e2fsck changed something, which is expected of a replay.
        if !matches!(replayed.status.code(), Some(0 | 1)) {
            return Err(said(&replayed).into());
        }
        run(Command::new("e2fsck").arg("-fn").arg(&self.plain))?;
        for (name, sum) in files {
            let dump = self.plain.with_extension("file");
            let order = format!("dump /{name} {}", dump.display());
            run(Command::new("debugfs").args(["-R", &order]).arg(&self.plain))?;
            let found = run(Command::new("sha256sum").arg(&dump))?;
            if !found.starts_with(sum.as_str()) {
                return Err(format!("the durable file {name} is {found}, not {sum}").into());
            }
        }
        Ok(())
    }
}

fn said(output: &Output) -> String {
    let (said, errors) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(said), String::from_utf8_lossy(errors))
}

fn run(command: &mut Command) -> Any<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(said(&output))
    } else {
        Err(format!("{command:?} ended with {}: {}", output.status, said(&output)).into())
    }
}

/// Opens the volume, which recovers it, and copies what it exports into a file.
fn export(crashed: &Path, plain: &Path) -> Any<()> {
    let reactor = Reactor::new()?;
    let options = manylogs_storage::OpenOptions::new(OpenMode::Exclusive);
    let device = Rc::new(FileDevice::open(&reactor, crashed, &options)?);
    let (runtime, out) = (reactor.handle(), File::create(plain)?);
    reactor.block_on(async move {
        let (volume, _) = Volume::open(runtime, device, &manylogs::OpenOptions::default()).await?;
        let capacity = volume.capabilities().capacity;
        out.set_len(capacity.bytes())?;
        for start in (0..capacity.0).step_by(to_usize(PIECE)) {
            let len = Sectors(PIECE.min(capacity.0 - start));
            let extent = Extent { len, ..Extent::new(start, 1) };
            let content = volume.submit(Request::Read { extent }).await?;
            if !content.is_zero() {
                let bytes = content.to_bytes().ok_or("content that is no bytes")?;
                out.write_all_at(&bytes, start * SECTOR_BYTES)?;
            }
        }
        Ok(())
    })
}
