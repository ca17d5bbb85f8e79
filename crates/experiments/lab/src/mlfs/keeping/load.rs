//! The writers: of a durable-only log, and of ordinary files beside it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Handle, Nanos, Rng, Time, to_usize};
use manylogs_ext4::{DURABLE_XATTR, Error, Ext4, FileKind, Ino, New, SetXattr, Taken};

use super::super::case;
use super::super::disk::MlfsError;
use super::gate::{Amounts, FILES_LIVE, LONG_PIECE, PIECE, ROUNDS, SEGMENTS, SMALL_FILE};

/// The beginning of every sector written to a log; other sectors do not begin so.
pub(super) const MARK: [u8; 8] = *b"O_DUR\0\xa5\x5a";
const SECTOR: usize = 512;
/// The first of two users, and his segments.
const FIRST_USER: u32 = 1000;
const OTHERS_SEGMENTS: u64 = 4;
/// Time in which a pass ends that has begun.
const PASS_ENDS: Nanos = Nanos::from_secs(30);
/// Number of ordinary files, and bytes of each.
const PLAIN_FILES: u64 = 120;
pub(super) const PLAIN_BYTES: u64 = 1 << 20;
/// Small writes (4 KiB each) to ordinary files between syncs.
const WRITES_PER_SYNC: u64 = case::WRITES_PER_SYNC as u64;
/// The interval of these syncs at 1 MiB/s.
const SYNC_EVERY: Nanos = Nanos(WRITES_PER_SYNC * 4096 * 1_000_000_000 / (1 << 20));
/// Bytes of the read that moves the head before each small file.
const READ_BYTES: usize = 4096;
/// The time over which small files are written.
const DAY: Nanos = Nanos::from_secs(24 * 3600);

/// Files that exist before a measurement.
#[derive(Clone, Debug)]
pub(super) struct KeepingFiles {
    /// The directory of logs, whose new files inherit the durable-only property.
    pub(super) logs: Ino,
    /// Ordinary files in directories of their own, spread over the disk.
    pub(super) plain: Vec<Ino>,
    /// The file of the ring, which does not have the property yet.
    pub(super) ring: Ino,
}

/// Makes these files.
pub(super) async fn fill(fs: Ext4, amounts: Amounts) -> Result<KeepingFiles, MlfsError> {
    let new = || New::plain(FileKind::Directory, 0o755);
    let mut plain = Vec::new();
    for number in 0..PLAIN_FILES {
        let dir = fs.create(Ino::ROOT, number.to_string().as_bytes(), new()).await?.ino;
        plain.push(super::super::disk::file(&fs, dir, PLAIN_BYTES).await?);
    }
    let logs = fs.create(Ino::ROOT, b"pg_wal", new()).await?.ino;
    let whole = amounts.ring().next_multiple_of(1 << 20);
    let ring = super::super::disk::file(&fs, logs, whole).await?;
    fs.set_xattr(logs, DURABLE_XATTR.as_bytes(), "1", SetXattr::default()).await?;
    fs.sync_all().await?;
    Ok(KeepingFiles { logs, plain, ring })
}

/// The log's files, with the numbers of the pieces in each.
type Written = VecDeque<(Ino, Vec<u64>)>;

/// The writer of a log, on one mount.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) fs: Ext4,
    pub(super) clock: Handle,
    pub(super) files: KeepingFiles,
    pub(super) amounts: Amounts,
    /// The existing files of the log, oldest first. The list survives power cuts.
    pub(super) written: Rc<RefCell<Written>>,
    /// Number of the next piece.
    pub(super) next: Rc<Cell<u64>>,
    /// Bytes of answered writes.
    pub(super) bytes: Rc<Cell<u64>>,
}

/// The content of a piece.
fn piece(number: u64, len: u64) -> Bytes {
    let mut bytes = vec![0; to_usize(len)];
    for (at, sector) in (0_u64..).zip(bytes.chunks_mut(SECTOR)) {
        sector[..8].copy_from_slice(&MARK);
        sector[8..16].copy_from_slice(&number.to_le_bytes());
        sector[16..24].copy_from_slice(&at.to_le_bytes());
        sector[24..].fill(number.to_le_bytes()[0] | 1);
    }
    bytes.into()
}

impl Writer {
    /// Waits for turn `number` of something that happens at intervals of `every`, from `begin` on.
    pub(super) async fn turn(&self, begin: Time, every: Nanos, number: u64) {
        let at = Time(begin.0 + every.0 * number);
        if self.clock.now() < at {
            self.clock.sleep_until(at).await;
        }
    }

    pub(super) async fn make(&self, name: &str) -> Result<Ino, Error> {
        self.make_of(name, 0).await
    }

    async fn make_of(&self, name: &str, uid: u32) -> Result<Ino, Error> {
        let new = New { uid, ..New::plain(FileKind::File, 0o600) };
        Ok(self.fs.create(self.files.logs, name.as_bytes(), new).await?.ino)
    }

    /// Writes the next piece at position `at` (in pieces) of a file, and syncs it. Returns its
    /// number.
    pub(super) async fn put(&self, ino: Ino, at: u64, len: u64) -> Result<u64, Error> {
        let number = self.next.get();
        self.next.set(number + 1);
        self.fs.write(ino, at * len, piece(number, len)).await?;
        self.fs.sync_content(ino).await?;
        self.bytes.set(self.bytes.get() + len);
        Ok(number)
    }

    /// Appends one of `share` equal parts of the total. Deletes the oldest file when there are more
    /// than three.
    pub(super) async fn append(&self, share: u64) -> Result<(), Error> {
        const EVERY: Nanos = Nanos::from_millis(31);
        let (begin, pieces) = (self.clock.now(), self.amounts.appended() / PIECE / share);
        let of_file = self.amounts.file() / PIECE;
        for number in 0..pieces {
            self.turn(begin, EVERY, number).await;
            let last = self.written.borrow().back().map(|(ino, pieces)| (*ino, pieces.len()));
            let (ino, at) = match last {
                Some((ino, len)) if (len as u64) < of_file => (ino, len as u64),
                _ => {
                    let ino = self.make(&self.next.get().to_string()).await?;
                    self.written.borrow_mut().push_back((ino, Vec::new()));
                    (ino, 0)
                }
            };
            let put = self.put(ino, at, PIECE).await?;
            if let Some((_, pieces)) = self.written.borrow_mut().back_mut() {
                pieces.push(put);
            }
            self.delete_oldest().await?;
        }
        Ok(())
    }

    async fn delete_oldest(&self) -> Result<(), Error> {
        if self.written.borrow().len() as u64 <= FILES_LIVE {
            return Ok(());
        }
        let oldest = self.written.borrow_mut().pop_front();
        let name = oldest.and_then(|(_, pieces)| pieces.first().copied());
        let name = name.unwrap_or_default().to_string();
        self.fs.unlink(self.files.logs, name.as_bytes()).await
    }

    /// Overwrites one file again and again.
    pub(super) async fn ring(&self) -> Result<(), Error> {
        const EVERY: Nanos = Nanos::from_millis(16);
        let ino = self.files.ring;
        self.fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), "1", SetXattr::default()).await?;
        let (begin, len) = (self.clock.now(), self.amounts.ring() / LONG_PIECE);
        let mut pieces = vec![0; to_usize(len)];
        for number in 0..len * ROUNDS {
            self.turn(begin, EVERY, number).await;
            let at = number % len;
            pieces[to_usize(at)] = self.put(ino, at, LONG_PIECE).await?;
        }
        self.written.borrow_mut().push_back((ino, pieces));
        Ok(())
    }

    /// Fills segments with zeroes, and overwrites them in turn, each under a new name.
    pub(super) async fn segments(&self) -> Result<(), Error> {
        const EVERY: Nanos = Nanos::from_millis(16);
        let of_segment = self.amounts.segment() / LONG_PIECE;
        for number in 0..SEGMENTS {
            let ino = self.make(&number.to_string()).await?;
            let zeroes = Bytes::from(vec![0; to_usize(self.amounts.segment())]);
            self.fs.write(ino, 0, zeroes).await?;
            self.fs.sync(ino).await?;
            self.written.borrow_mut().push_back((ino, Vec::new()));
        }
        let begin = self.clock.now();
        // Writes four times the bytes of the logs.
        let turns = 4 * self.amounts.logs / self.amounts.segment();
        for turn in 0..turns {
            let (old, new) = (turn.to_string(), (turn + SEGMENTS).to_string());
            let dir = self.files.logs;
            let (from, to) = ((dir, old.as_bytes()), (dir, new.as_bytes()));
            self.fs.rename(from, to, Taken::Replaced).await?;
            let Some((ino, _)) = self.written.borrow_mut().pop_front() else { break };
            let mut pieces = Vec::new();
            for at in 0..of_segment {
                self.turn(begin, EVERY, turn * of_segment + at).await;
                pieces.push(self.put(ino, at, LONG_PIECE).await?);
            }
            self.written.borrow_mut().push_back((ino, pieces));
        }
        Ok(())
    }

    /// Writes small files over a day, each after a read that has moved the head to a random place.
    pub(super) async fn spread(&self, rng: &mut Rng) -> Result<(), Error> {
        let (begin, files) = (self.clock.now(), self.amounts.small_files());
        for number in 0..files {
            self.turn(begin, Nanos(DAY.0 / files), number).await;
            let ino = self.files.plain[to_usize(rng.below(self.files.plain.len() as u64))];
            let at = rng.below(PLAIN_BYTES / 4096) * 4096;
            self.fs.read(ino, at, READ_BYTES).await?;
            let ino = self.make(&number.to_string()).await?;
            let put = self.put(ino, 0, SMALL_FILE).await?;
            self.written.borrow_mut().push_back((ino, vec![put]));
        }
        Ok(())
    }

    /// Writes segments of one user, which stay, and then far more of another. The pieces of the
    /// first have the numbers up to the answer.
    pub(super) async fn of_two_users(&self) -> Result<u64, Error> {
        const EVERY: Nanos = Nanos::from_millis(16);
        let (begin, mut turns) = (self.clock.now(), 0);
        let mut last = 0;
        let of_first = OTHERS_SEGMENTS * self.amounts.segment();
        for (uid, bytes) in [(FIRST_USER, of_first), (FIRST_USER + 1, self.amounts.flagged())] {
            let of_segment = self.amounts.segment() / LONG_PIECE;
            for number in 0..bytes / LONG_PIECE / of_segment {
                let ino = self.make_of(&format!("{uid} {number}"), uid).await?;
                let mut pieces = Vec::new();
                for at in 0..of_segment {
                    self.turn(begin, EVERY, turns).await;
                    turns += 1;
                    pieces.push(self.put(ino, at, LONG_PIECE).await?);
                }
                self.written.borrow_mut().push_back((ino, pieces));
            }
            last = if uid == FIRST_USER { self.next.get() - 1 } else { last };
        }
        // A pass that has begun may end.
        self.clock.sleep(PASS_ENDS).await;
        Ok(last)
    }

    /// Writes the live file.
    pub(super) async fn live(&self) -> Result<(), Error> {
        let ino = self.make("live").await?;
        let mut pieces = Vec::new();
        for at in 0..self.amounts.live() / LONG_PIECE {
            pieces.push(self.put(ino, at, LONG_PIECE).await?);
        }
        self.written.borrow_mut().push_back((ino, pieces));
        Ok(())
    }

    /// Removes the live file.
    pub(super) async fn remove_live(&self) -> Result<(), Error> {
        self.written.borrow_mut().clear();
        self.fs.unlink(self.files.logs, b"live").await?;
        self.fs.sync_all().await
    }

    /// Whether all existing files have the content that was written.
    pub(super) async fn is_intact(&self, piece_bytes: u64) -> Result<bool, Error> {
        let written = self.written.borrow().clone();
        for (ino, pieces) in written {
            for (at, number) in (0..).zip(pieces) {
                let found = self.fs.read(ino, at * piece_bytes, to_usize(piece_bytes)).await?;
                if found != piece(number, piece_bytes) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Makes small durable writes to ordinary files, until `done` is set or `most` bytes are
    /// written.
    pub(super) async fn others(
        &self,
        rng: &mut Rng,
        done: &Cell<bool>,
        most: u64,
        paced: bool,
    ) -> Result<(), Error> {
        let begin = self.clock.now();
        for round in 0..most / (WRITES_PER_SYNC * 4096) {
            if done.get() {
                break;
            }
            if paced {
                self.turn(begin, SYNC_EVERY, round).await;
            }
            let ino = self.files.plain[to_usize(rng.below(self.files.plain.len() as u64))];
            for _ in 0..WRITES_PER_SYNC {
                let at = rng.below(PLAIN_BYTES / 4096) * 4096;
                self.fs.write(ino, at, vec![7; 4096]).await?;
            }
            self.fs.sync_content(ino).await?;
        }
        Ok(())
    }
}
