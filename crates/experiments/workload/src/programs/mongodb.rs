//! MongoDB 2.6 with clients that wait until their write is durable (the Manylogs paper, section
//! V-A.4): every few milliseconds a thread appends the new requests to a journal file and syncs it.
//!
//! The data files, which are flushed once a minute, are left out.

use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng};

use super::commits::{Commits, Log};
use super::{FileId, Files, Initial};

/// The journal is written in whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// Length of a journal file, which is preallocated by writing it.
const JOURNAL_BYTES: u64 = 1 << 30;
const JOURNAL: FileId = FileId(0);

/// A database and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MongoDb {
    /// Clients: each sends its next request when the last one is durable.
    pub clients: u32,
    /// Requests a second that they send together, if the database keeps up.
    pub per_second: f64,
    /// Bytes that a request adds to the journal.
    pub request_bytes: u64,
    /// Time from one flush of the journal to the next.
    pub flush: Nanos,
}

impl Default for MongoDb {
    /// YCSB's 16 threads and 1000 requests a second, and the database's own flush period.
    fn default() -> Self {
        Self { clients: 16, per_second: 1000.0, request_bytes: 1100, flush: Nanos::from_millis(33) }
    }
}

impl MongoDb {
    #[expect(clippy::unused_self, reason = "as other programs")]
    pub(super) fn initial(&self) -> Vec<Initial> {
        vec![(JOURNAL, JOURNAL_BYTES)]
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let commits =
            Commits { clients: self.clients, per_second: Some(self.per_second), every: self.flush };
        commits.start(runtime, files, rng, Journal { program: self, offset: 0 })
    }
}

struct Journal {
    program: MongoDb,
    offset: u64,
}

impl<F: Files> Log<F> for Journal {
    async fn append(&mut self, files: &F, requests: u64) -> Result<(), F::Error> {
        let bytes = (requests * self.program.request_bytes).next_multiple_of(BLOCK_BYTES);
        if self.offset + bytes > JOURNAL_BYTES {
            self.offset = 0;
        }
        files.write(JOURNAL, self.offset, bytes).await?;
        files.sync(JOURNAL).await?;
        self.offset += bytes;
        Ok(())
    }
}
