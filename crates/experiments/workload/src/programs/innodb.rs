//! InnoDB (MariaDB 10.11) below sysbench's `oltp_read_write`: a redo log in one file, which is a
//! ring, and pages that a cleaner writes home.
//!
//! A commit writes the log's blocks of 512 bytes up to its end and syncs it
//! (`innodb_flush_log_at_trx_commit = 1`). The doublewrite buffer is left out.

use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, to_usize};

use super::commits::{Commits, Log};
use super::pages::Pages;
use super::{DATA, FileId, Files, Initial, spawn};

const BLOCK_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 16 << 10;
const REDO: FileId = FileId(1);
/// Time from one round of the page cleaner to the next.
const ROUND: Nanos = Nanos::from_secs(1);

/// A server and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Innodb {
    /// Clients: each begins its next transaction when the last one is durable.
    pub clients: u32,
    /// Bytes that a transaction adds to the redo log.
    pub redo_bytes: u64,
    /// Pages that a transaction changes.
    pub pages: u32,
    /// Length of the ring.
    pub ring_bytes: u64,
    /// Length of the data.
    pub data_bytes: u64,
    /// Pages a second that the cleaner writes.
    pub cleaned: u64,
}

impl Default for Innodb {
    /// Four threads on four tables of 50,000 rows, some 50 MB. A transaction changes three rows and
    /// an index, in some 3 KiB of redo. The ring has 256 MiB, and the cleaner the database's
    /// `innodb_io_capacity`.
    fn default() -> Self {
        Self {
            clients: 4,
            redo_bytes: 3 << 10,
            pages: 4,
            ring_bytes: 256 << 20,
            data_bytes: 48 << 20,
            cleaned: 200,
        }
    }
}

impl Innodb {
    pub(super) fn initial(&self) -> Vec<Initial> {
        vec![(DATA, self.data_bytes), (REDO, self.ring_bytes)]
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let pages = Rc::new(Pages::new(DATA, PAGE_BYTES, self.data_bytes));
        let redo = Redo { program: self, pages: Rc::clone(&pages), end: 0, rng: rng.split() };
        let commits = Commits { clients: self.clients, per_second: None, every: Nanos(0) };
        let threads = commits.start(runtime, files, rng, redo);
        spawn(runtime, files, self.clean(runtime.clone(), Rc::clone(files), pages));
        threads + 1
    }

    async fn clean<F: Files>(
        self,
        runtime: Handle,
        files: Rc<F>,
        pages: Rc<Pages>,
    ) -> Result<(), F::Error> {
        let mut due = runtime.now() + ROUND;
        while files.goes_on() {
            runtime.sleep_until(due).await;
            due = runtime.now() + ROUND;
            pages.write(&runtime, &*files, to_usize(self.cleaned), Nanos(0)).await?;
        }
        Ok(())
    }
}

struct Redo {
    program: Innodb,
    pages: Rc<Pages>,
    /// Where the log ends in the ring.
    end: u64,
    rng: Rng,
}

impl<F: Files> Log<F> for Redo {
    async fn append(&mut self, files: &F, requests: u64) -> Result<(), F::Error> {
        for _ in 0..requests * u64::from(self.program.pages) {
            self.pages.touch(&mut self.rng);
        }
        let mut left = requests * self.program.redo_bytes;
        while left > 0 {
            let new = left.min(self.program.ring_bytes - self.end);
            let from = self.end / BLOCK_BYTES * BLOCK_BYTES;
            let until = self.end + new;
            files.write(REDO, from, until.next_multiple_of(BLOCK_BYTES) - from).await?;
            self.end = until % self.program.ring_bytes;
            left -= new;
        }
        files.sync(REDO).await
    }
}
