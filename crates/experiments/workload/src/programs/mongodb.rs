//! MongoDB 2.6 with clients that wait until their write is durable (the Manylogs paper, section
//! V-A.4): every few milliseconds a thread appends the new requests to a journal file and syncs it.
//!
//! The data files, which are flushed once a minute, are left out.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, Signal, Time};

use super::pace::Pace;
use super::{FileId, Files, Initial, Operation, spawn};

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

/// State shared by clients and the flushing thread.
#[derive(Debug, Default)]
struct Waiting {
    /// Requests that came since the last flush began.
    requests: Cell<u64>,
    /// Flushes that ended.
    flushed: Cell<u64>,
    /// Flushes that began.
    begun: Cell<u64>,
    changed: Signal,
}

impl MongoDb {
    #[expect(clippy::unused_self, reason = "as other programs")]
    pub(super) fn initial(&self) -> Vec<Initial> {
        vec![(JOURNAL, JOURNAL_BYTES)]
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let waiting = Rc::new(Waiting::default());
        // Databases do not flush at the same instants.
        let first = runtime.now() + Nanos(rng.below(self.flush.0));
        let pace = Rc::new(Pace::new(self.per_second, runtime.now()));
        spawn(
            runtime,
            files,
            flush(self, runtime.clone(), Rc::clone(files), Rc::clone(&waiting), first),
        );
        for _ in 0..self.clients {
            let (runtime, files) = (runtime.clone(), Rc::clone(files));
            let client =
                send(runtime.clone(), Rc::clone(&files), Rc::clone(&waiting), pace.clone());
            spawn(&runtime, &files, client);
        }
        1 + manylogs_block::to_usize(self.clients.into())
    }
}

/// A client sends one request after another.
async fn send<F: Files>(
    runtime: Handle,
    files: Rc<F>,
    waiting: Rc<Waiting>,
    pace: Rc<Pace>,
) -> Result<(), F::Error> {
    while files.goes_on() {
        pace.turn(&runtime).await;
        let began = runtime.now();
        waiting.requests.set(waiting.requests.get() + 1);
        // A flush under way does not include this request.
        let mine = waiting.begun.get() + 1;
        while waiting.flushed.get() < mine && files.goes_on() {
            waiting.changed.wait().await;
        }
        files.done(Operation::Request, runtime.now().since(began));
        files.done(Operation::Other, Nanos(0));
    }
    Ok(())
}

/// Appends the new requests to the journal and syncs it, again and again.
async fn flush<F: Files>(
    program: MongoDb,
    runtime: Handle,
    files: Rc<F>,
    waiting: Rc<Waiting>,
    first: Time,
) -> Result<(), F::Error> {
    let result = flush_for_ever(program, &runtime, &*files, &waiting, first).await;
    // Wakes waiting clients, because the program ends.
    waiting.flushed.set(u64::MAX);
    waiting.changed.notify();
    result
}

async fn flush_for_ever<F: Files>(
    program: MongoDb,
    runtime: &Handle,
    files: &F,
    waiting: &Waiting,
    first: Time,
) -> Result<(), F::Error> {
    let (mut due, mut offset) = (first, 0);
    while files.goes_on() {
        runtime.sleep_until(due).await;
        due = runtime.now() + program.flush;
        let requests = waiting.requests.take();
        waiting.begun.set(waiting.begun.get() + 1);
        if requests > 0 {
            let bytes = (requests * program.request_bytes).next_multiple_of(BLOCK_BYTES);
            if offset + bytes > JOURNAL_BYTES {
                offset = 0;
            }
            let began = runtime.now();
            files.write(JOURNAL, offset, bytes).await?;
            files.sync(JOURNAL).await?;
            files.done(Operation::Flush, runtime.now().since(began));
            offset += bytes;
        }
        waiting.flushed.set(waiting.begun.get());
        waiting.changed.notify();
    }
    Ok(())
}
