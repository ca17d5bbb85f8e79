//! etcd 3.4: a write-ahead log in files that are deleted, and a data file that is committed ten
//! times a second.
//!
//! The next file of the log is made beforehand under another name, with blocks and without content,
//! and renamed when the current one is full. The two files that a measurement begins with have no
//! blocks yet.

use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng};

use super::commits::{Commits, Log};
use super::pages::Pages;
use super::{DATA, FileId, Files, Initial, Operation, spawn};

const PAGE_BYTES: u64 = 4096;
/// The next file of the log, before it is used.
const PREPARED: FileId = FileId(1);
/// The first file of the log.
const FIRST: u32 = 2;

/// A member without others, and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Etcd {
    /// Clients: each sends its next value when the last one is durable.
    pub clients: u32,
    /// Bytes that a value adds to the log.
    pub record_bytes: u64,
    /// Length of a file of the log.
    pub segment_bytes: u64,
    /// Files of the log that are kept.
    pub kept: u32,
    /// Length of the data file.
    pub data_bytes: u64,
    /// Time from one commit of the data file to the next.
    pub commit: Nanos,
}

impl Default for Etcd {
    /// Values of 1 KiB from 16 clients; the server's own 64 MB (`SegmentSizeBytes`), 5 files
    /// (`--max-wals`) and 100 ms (`--backend-batch-interval`).
    fn default() -> Self {
        Self {
            clients: 16,
            record_bytes: 1100,
            segment_bytes: 64_000_000,
            kept: 5,
            data_bytes: 64 << 20,
            commit: Nanos::from_millis(100),
        }
    }
}

impl Etcd {
    pub(super) fn initial(&self) -> Vec<Initial> {
        vec![(DATA, self.data_bytes), (PREPARED, 0), (FileId(FIRST), 0)]
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let pages = Rc::new(Pages::new(DATA, PAGE_BYTES, self.data_bytes));
        let wal = Wal {
            program: self,
            pages: Rc::clone(&pages),
            oldest: FIRST,
            current: FIRST,
            end: 0,
            rng: rng.split(),
        };
        let commits = Commits { clients: self.clients, per_second: None, every: Nanos(0) };
        let threads = commits.start(runtime, files, rng, wal);
        spawn(runtime, files, self.commit_data(runtime.clone(), Rc::clone(files), pages));
        threads + 1
    }

    /// Nobody waits for these commits: what they hold is in the log.
    async fn commit_data<F: Files>(
        self,
        runtime: Handle,
        files: Rc<F>,
        pages: Rc<Pages>,
    ) -> Result<(), F::Error> {
        let mut due = runtime.now() + self.commit;
        while files.goes_on() {
            runtime.sleep_until(due).await;
            due = runtime.now() + self.commit;
            pages.write(&runtime, &*files, usize::MAX, Nanos(0)).await?;
            files.done(Operation::Other, Nanos(0));
        }
        Ok(())
    }
}

struct Wal {
    program: Etcd,
    pages: Rc<Pages>,
    oldest: u32,
    current: u32,
    /// Length of the current file's content.
    end: u64,
    rng: Rng,
}

impl<F: Files> Log<F> for Wal {
    async fn append(&mut self, files: &F, requests: u64) -> Result<(), F::Error> {
        for _ in 0..requests {
            self.pages.touch(&mut self.rng);
        }
        if self.end >= self.program.segment_bytes {
            self.cut(files).await?;
        }
        let (file, bytes) = (FileId(self.current), requests * self.program.record_bytes);
        files.write(file, self.end, bytes).await?;
        self.end += bytes;
        files.sync(file).await
    }
}

impl Wal {
    /// Goes on in the prepared file, prepares another one, and deletes the oldest.
    async fn cut<F: Files>(&mut self, files: &F) -> Result<(), F::Error> {
        self.current += 1;
        self.end = 0;
        files.rename(PREPARED, FileId(self.current)).await?;
        files.create(PREPARED).await?;
        files.reserve(PREPARED, self.program.segment_bytes).await?;
        if self.current - self.oldest >= self.program.kept {
            files.delete(FileId(self.oldest)).await?;
            self.oldest += 1;
        }
        Ok(())
    }
}
