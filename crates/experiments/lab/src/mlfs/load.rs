//! The stream, and the small writer beside it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Handle, Nanos, Rng, Time};
use manylogs_ext4::{Ext4, Ino};

use super::case::{MlfsCase, WRITES_PER_SYNC};
use super::disk::{BIG_BYTES, Files, SMALL_BYTES, STREAM_BYTES};
use crate::interfere::StreamKind;
use crate::stats::Latencies;

/// Bytes after which a writing stream syncs (the Manylogs paper, section V-A.1).
const RUN_BYTES: u64 = 128 << 20;
const SMALL_WRITE_BYTES: u64 = 4096;

/// Counters of both, and the times at which counting begins and ends.
#[derive(Debug)]
pub(super) struct Done {
    /// Requests answered before this time do not count.
    pub(super) from: Time,
    /// Both end at this time.
    pub(super) until: Time,
    /// Bytes moved by the stream.
    pub(super) stream_bytes: Cell<u64>,
    /// Latencies of syncs of the file system.
    pub(super) latencies: RefCell<Latencies>,
    /// Syncs that began and ended in time.
    pub(super) syncs: Cell<u64>,
    pub(super) running: Cell<usize>,
    pub(super) failed: RefCell<Option<manylogs_ext4::Error>>,
}

impl Done {
    pub(super) fn between(from: Time, until: Time) -> Rc<Self> {
        Rc::new(Self {
            from,
            until,
            stream_bytes: Cell::default(),
            latencies: RefCell::default(),
            syncs: Cell::default(),
            running: Cell::default(),
            failed: RefCell::default(),
        })
    }

    fn spawn(
        self: &Rc<Self>,
        runtime: &Handle,
        work: impl Future<Output = Result<(), manylogs_ext4::Error>> + 'static,
    ) {
        self.running.set(self.running.get() + 1);
        let done = Rc::clone(self);
        runtime.spawn(async move {
            if let Err(error) = work.await {
                done.failed.borrow_mut().get_or_insert(error);
            }
            done.running.set(done.running.get() - 1);
        });
    }
}

/// Starts the stream and the small writer.
pub(super) fn start(runtime: &Handle, fs: &Ext4, files: &Files, case: &MlfsCase, done: &Rc<Done>) {
    start_stream(runtime, fs, files.big, case.stream, 1, done);
    if case.writes_per_second > 0.0 {
        let writer = Writer {
            runtime: runtime.clone(),
            fs: fs.clone(),
            files: files.small.clone(),
            interval: Nanos::from_secs_f64(WRITES_PER_SYNC as f64 / case.writes_per_second),
        };
        let (mut rng, counted) = (Rng::new(case.seed), Rc::clone(done));
        done.spawn(runtime, async move { writer.run(&mut rng, &counted).await });
    }
}

/// Starts a stream that has `depth` requests under way.
pub(super) fn start_stream(
    runtime: &Handle,
    fs: &Ext4,
    file: Ino,
    kind: StreamKind,
    depth: u32,
    done: &Rc<Done>,
) {
    let next = Rc::new(Cell::new(0));
    for _ in 0..depth {
        let (runtime, fs) = (runtime.clone(), fs.clone());
        let stream = Stream { runtime: runtime.clone(), fs, file, next: Rc::clone(&next) };
        let counted = Rc::clone(done);
        done.spawn(&runtime, async move { stream.run(kind, &counted).await });
    }
}

struct Stream {
    runtime: Handle,
    fs: Ext4,
    file: Ino,
    /// Where the next request begins.
    next: Rc<Cell<u64>>,
}

impl Stream {
    async fn run(&self, kind: StreamKind, done: &Done) -> Result<(), manylogs_ext4::Error> {
        // Not zeroes, which a volume may record without writing them.
        let content = Bytes::from(vec![7; STREAM_BYTES]);
        while self.runtime.now() < done.until {
            let offset = self.next.get();
            self.next.set((offset + STREAM_BYTES as u64) % BIG_BYTES);
            match kind {
                StreamKind::Write => {
                    self.fs.write_through(self.file, offset, content.clone()).await?;
                    if (offset + STREAM_BYTES as u64).is_multiple_of(RUN_BYTES) {
                        self.fs.sync_content(self.file).await?;
                    }
                }
                StreamKind::Read | StreamKind::Random | StreamKind::None => {
                    self.fs.read(self.file, offset, STREAM_BYTES).await?;
                }
            }
            if (done.from..done.until).contains(&self.runtime.now()) {
                done.stream_bytes.set(done.stream_bytes.get() + STREAM_BYTES as u64);
            }
        }
        Ok(())
    }
}

struct Writer {
    runtime: Handle,
    fs: Ext4,
    files: Vec<Ino>,
    /// Time from one sync to the next.
    interval: Nanos,
}

impl Writer {
    /// Writes and syncs once each interval. A round that takes longer delays the next: missed
    /// rounds are not made up for.
    async fn run(&self, rng: &mut Rng, done: &Done) -> Result<(), manylogs_ext4::Error> {
        let mut due = self.runtime.now();
        let content = Bytes::from(vec![9; manylogs_block::to_usize(SMALL_WRITE_BYTES)]);
        while self.runtime.now() < done.until {
            for file in &self.files {
                let block = rng.below(SMALL_BYTES / SMALL_WRITE_BYTES);
                self.fs.write(*file, block * SMALL_WRITE_BYTES, content.clone()).await?;
            }
            let began = self.runtime.now();
            self.fs.sync_all().await?;
            let ended = self.runtime.now();
            if began >= done.from {
                done.latencies.borrow_mut().record(ended.since(began));
                done.syncs.set(done.syncs.get() + u64::from(ended < done.until));
            }
            due = (due + self.interval).max(Time(ended.0.saturating_sub(self.interval.0)));
            self.runtime.sleep_until(due).await;
        }
        Ok(())
    }
}
