//! PostgreSQL 15 below pgbench: a write-ahead log in segments, which are renamed and overwritten.
//!
//! A commit writes the log's pages up to its end, the last one again and again until it is full,
//! and syncs the segment (`wal_sync_method = fdatasync`). The first change of a data page after a
//! checkpoint adds the whole page to the log (`full_page_writes`). A checkpoint writes the changed
//! pages home over nine tenths of its period, syncs them, and gives the segments before it the
//! names that come next. Where no such segment is left a new one is filled with zeroes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, Signal};

use super::commits::{Commits, Log};
use super::pages::Pages;
use super::{DATA, FileId, Files, Initial, spawn};

/// A page of the log and of the data.
const PAGE_BYTES: u64 = 8192;

/// A server and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Postgres {
    /// Clients: each begins its next transaction when the last one is durable.
    pub clients: u32,
    /// Bytes that a transaction adds to the log, besides whole pages.
    pub record_bytes: u64,
    /// Length of a segment of the log.
    pub segment_bytes: u64,
    /// Segments at the beginning.
    pub segments: u32,
    /// Length of the data.
    pub data_bytes: u64,
    /// Time from one checkpoint to the next.
    pub checkpoint: Nanos,
}

impl Default for Postgres {
    /// `pgbench -c 4 -s 10`: 160 MB of data, some 600 bytes of log a transaction. A new server has
    /// 80 MiB of log (`min_wal_size`). A checkpoint each 30 s is as often as it can be told to
    /// (`checkpoint_timeout`), so that a measurement of a minute has two.
    fn default() -> Self {
        Self {
            clients: 4,
            record_bytes: 600,
            segment_bytes: 16 << 20,
            segments: 5,
            data_bytes: 160 << 20,
            checkpoint: Nanos::from_secs(30),
        }
    }
}

impl Postgres {
    pub(super) fn initial(&self) -> Vec<Initial> {
        let segments = (1..=self.segments).map(|number| (FileId(number), self.segment_bytes));
        std::iter::once((DATA, self.data_bytes)).chain(segments).collect()
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let pages = Rc::new(Pages::new(DATA, PAGE_BYTES, self.data_bytes));
        let segments = Rc::new(RefCell::new(Segments {
            current: 1,
            next: self.segments + 1,
            ..Segments::default()
        }));
        let wal = Wal {
            program: self,
            pages: Rc::clone(&pages),
            segments: Rc::clone(&segments),
            end: 0,
            rng: rng.split(),
        };
        let commits = Commits { clients: self.clients, per_second: None, every: Nanos(0) };
        let threads = commits.start(runtime, files, rng, wal);
        let checkpoints = self.checkpoints(runtime.clone(), Rc::clone(files), pages, segments);
        spawn(runtime, files, checkpoints);
        threads + 1
    }

    async fn checkpoints<F: Files>(
        self,
        runtime: Handle,
        files: Rc<F>,
        pages: Rc<Pages>,
        segments: Rc<RefCell<Segments>>,
    ) -> Result<(), F::Error> {
        let spread = Nanos(self.checkpoint.0 / 10 * 9);
        let mut due = runtime.now() + Nanos(self.checkpoint.0 / 10);
        while files.goes_on() {
            runtime.sleep_until(due).await;
            due = runtime.now() + self.checkpoint;
            let before = std::mem::take(&mut segments.borrow_mut().finished);
            pages.write(&runtime, &*files, usize::MAX, spread).await?;
            for old in before {
                let new = segments.borrow_mut().name_next();
                files.rename(old, new).await?;
                segments.borrow_mut().is_there(new);
            }
        }
        Ok(())
    }
}

/// The files of the log.
#[derive(Debug, Default)]
struct Segments {
    current: u32,
    /// The first number that no file has, or is about to have.
    next: u32,
    /// Files that are being made or renamed.
    pending: BTreeSet<FileId>,
    /// Files that are full, since the last checkpoint began.
    finished: Vec<FileId>,
    changed: Signal,
}

impl Segments {
    fn name_next(&mut self) -> FileId {
        let new = FileId(self.next);
        self.pending.insert(new);
        self.next += 1;
        new
    }

    fn is_there(&mut self, file: FileId) {
        self.pending.remove(&file);
        self.changed.notify();
    }
}

struct Wal {
    program: Postgres,
    pages: Rc<Pages>,
    segments: Rc<RefCell<Segments>>,
    /// Where the log ends in the current segment.
    end: u64,
    rng: Rng,
}

impl<F: Files> Log<F> for Wal {
    async fn append(&mut self, files: &F, requests: u64) -> Result<(), F::Error> {
        let mut left = 0;
        for _ in 0..requests {
            let image = if self.pages.touch(&mut self.rng) { PAGE_BYTES } else { 0 };
            left += self.program.record_bytes + image;
        }
        while left > 0 {
            if self.end == self.program.segment_bytes {
                self.switch(files).await?;
            }
            let new = left.min(self.program.segment_bytes - self.end);
            let from = self.end / PAGE_BYTES * PAGE_BYTES;
            self.end += new;
            left -= new;
            let segment = FileId(self.segments.borrow().current);
            let bytes = self.end.next_multiple_of(PAGE_BYTES) - from;
            files.write(segment, from, bytes).await?;
            files.sync(segment).await?;
        }
        Ok(())
    }
}

impl Wal {
    /// Goes on in the next segment.
    async fn switch<F: Files>(&mut self, files: &F) -> Result<(), F::Error> {
        let missing = {
            let mut segments = self.segments.borrow_mut();
            let full = FileId(segments.current);
            segments.finished.push(full);
            segments.current += 1;
            (segments.current == segments.next).then(|| segments.name_next())
        };
        self.end = 0;
        if let Some(new) = missing {
            files.create(new).await?;
            files.write_zeroes(new, self.program.segment_bytes).await?;
            files.sync(new).await?;
            self.segments.borrow_mut().is_there(new);
        }
        self.wait_for_the_current().await;
        Ok(())
    }

    /// A checkpoint may still be about to rename it.
    async fn wait_for_the_current(&self) {
        loop {
            let changed = {
                let segments = self.segments.borrow();
                if !segments.pending.contains(&FileId(segments.current)) {
                    return;
                }
                segments.changed.wait()
            };
            changed.await;
        }
    }
}
