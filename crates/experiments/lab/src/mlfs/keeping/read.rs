//! How fast content is read back that was appended beside readers: from the logs, where its parts
//! lie where the head was, and from home.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Nanos, Rng, to_usize};
use manylogs_ext4::{DURABLE_XATTR, Error, Ino, SetXattr};

use super::super::disk::{MlfsError, Prepared};
use super::gate::{Amounts, PIECE};
use super::load::{KeepingFiles, PLAIN_BYTES, Writer};
use super::results::KeepingResult;
use super::run::{Host, KeepingCase, Sums};
use crate::stats::round3;

/// Bytes of one request of a reader in order.
const REQUEST: u64 = 1 << 20;
/// Bytes of one request of a reader at random places.
const SHORT_REQUEST: usize = 4096;
/// Readers at random places.
const SCATTERED: u64 = 2;

/// Who reads beside the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// One reader in order.
    Stream,
    /// Readers at random places.
    Scattered,
}

/// Measures both. The result is that of the reader in order, with the speeds of the other.
pub(super) fn measured(
    case: &KeepingCase,
    prepared: &Prepared<KeepingFiles>,
    amounts: Amounts,
) -> Result<KeepingResult, MlfsError> {
    let of = |beside| -> Result<(Host, [f64; 2], Sums), MlfsError> {
        let host = Host::new(prepared, case.disk(), amounts)?;
        let (speeds, sums) = host.speeds(beside)?;
        Ok((host, speeds, sums))
    };
    let (_, [scattered, _], _) = of(Beside::Scattered)?;
    let (host, [from_logs, from_home], sums) = of(Beside::Stream)?;
    Ok(KeepingResult {
        read_ratio: Some(round3(from_logs / from_home)),
        read_mb_per_s: Some(round3(from_logs)),
        read_scattered_mb_per_s: Some(round3(scattered)),
        ..host.result(case, PIECE, sums)?
    })
}

impl Host {
    /// Appends beside readers, and reads that back. MB/s from the logs, and from home; and the
    /// counters before it went there.
    fn speeds(&self, beside: Beside) -> Result<([f64; 2], Sums), MlfsError> {
        let (writer, mut rng) = (self.writer.clone(), Rng::new(self.case.seed));
        let ino = self.world.run(async move {
            let done = Rc::new(Cell::new(false));
            let readers = if beside == Beside::Stream { 1 } else { SCATTERED };
            for _ in 0..readers {
                let (reader, rng, done) = (writer.clone(), rng.split(), Rc::clone(&done));
                writer
                    .clock
                    .spawn(async move { drop(reader.read_beside(beside, rng, &done).await) });
            }
            let written = writer.appended_alone().await;
            done.set(true);
            written
        })?;
        let from_logs = self.read_speed(ino)?;
        let mut sums = Sums::default();
        sums.add(&self.stats()?);
        let (fs, volume) = (self.writer.fs.clone(), self.volume()?);
        self.world.run(async move {
            fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), "0", SetXattr::default()).await
        })?;
        self.world.run(async move { volume.checkpoint().await })?;
        Ok(([from_logs, self.read_speed(ino)?], sums))
    }

    /// MB/s at which one reader gets all of what was appended.
    fn read_speed(&self, ino: Ino) -> Result<f64, MlfsError> {
        let (writer, from) = (self.writer.clone(), self.world.now());
        let len = self.writer.amounts.read_back();
        self.world.run(async move {
            for at in (0..len).step_by(to_usize(REQUEST)) {
                writer.fs.read(ino, at, to_usize(REQUEST.min(len - at))).await?;
            }
            Ok::<_, Error>(())
        })?;
        Ok(len as f64 / 1e6 / self.world.now().since(from).as_secs_f64())
    }
}

impl Writer {
    /// Appends to one file, 36 KiB every 33 ms.
    async fn appended_alone(&self) -> Result<Ino, Error> {
        const EVERY: Nanos = Nanos::from_millis(33);
        let (ino, begin) = (self.make("appended").await?, self.clock.now());
        let mut pieces = Vec::new();
        for at in 0..self.amounts.read_back() / PIECE {
            self.turn(begin, EVERY, at).await;
            pieces.push(self.put(ino, at, PIECE).await?);
        }
        self.written.borrow_mut().push_back((ino, pieces));
        Ok(ino)
    }

    /// Reads again and again until `done` is set.
    async fn read_beside(
        &self,
        beside: Beside,
        mut rng: Rng,
        done: &Cell<bool>,
    ) -> Result<(), Error> {
        let mut at = 0;
        while !done.get() {
            if beside == Beside::Stream {
                self.fs.read(self.files.ring, at, to_usize(REQUEST)).await?;
                at = (at + REQUEST) % self.amounts.ring().next_multiple_of(REQUEST);
            } else {
                let files = &self.files.plain;
                let ino = files[to_usize(rng.below(files.len() as u64))];
                let at = rng.below(PLAIN_BYTES / SHORT_REQUEST as u64) * SHORT_REQUEST as u64;
                self.fs.read(ino, at, SHORT_REQUEST).await?;
            }
        }
        Ok(())
    }
}
