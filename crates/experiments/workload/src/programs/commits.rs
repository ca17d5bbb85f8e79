//! Group commit: clients that wait until what they sent is durable, and one thread that writes the
//! log for all of them.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, Signal, Time};

use super::pace::Pace;
use super::{Files, Operation, spawn};

/// How a database gathers what its clients send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commits {
    /// Clients: each sends its next request when the last one is durable.
    pub(super) clients: u32,
    /// Requests a second that they send together, if the database keeps up; without a bound if
    /// `None`.
    pub(super) per_second: Option<f64>,
    /// Time from one flush to the next; zero: one begins whenever a request waits.
    pub(super) every: Nanos,
}

/// The log of a database.
pub(super) trait Log<F: Files>: 'static {
    /// Writes what so many requests add to the log, and makes it durable.
    fn append(&mut self, files: &F, requests: u64) -> impl Future<Output = Result<(), F::Error>>;
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
    /// Clients that have not ended.
    clients: Cell<u32>,
    changed: Signal,
    /// A request came, or a client ended.
    arrived: Signal,
}

impl Commits {
    /// Starts the clients and the thread that writes `log`; returns the number of threads.
    pub(super) fn start<F: Files>(
        self,
        runtime: &Handle,
        files: &Rc<F>,
        rng: &mut Rng,
        log: impl Log<F>,
    ) -> usize {
        let waiting = Rc::new(Waiting::default());
        waiting.clients.set(self.clients);
        // Databases do not flush at the same instants.
        let first = runtime.now() + Nanos(rng.below(self.every.0.max(1)));
        let pace = self.per_second.map(|rate| Rc::new(Pace::new(rate, runtime.now())));
        let flusher = Flusher {
            every: self.every,
            runtime: runtime.clone(),
            files: Rc::clone(files),
            waiting: Rc::clone(&waiting),
            log,
        };
        spawn(runtime, files, flusher.run(first));
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
    pace: Option<Rc<Pace>>,
) -> Result<(), F::Error> {
    while files.goes_on() {
        if let Some(pace) = &pace {
            pace.turn(&runtime).await;
        }
        let began = runtime.now();
        waiting.requests.set(waiting.requests.get() + 1);
        waiting.arrived.notify();
        // A flush under way does not include this request.
        let mine = waiting.begun.get() + 1;
        while waiting.flushed.get() < mine && files.goes_on() {
            waiting.changed.wait().await;
        }
        files.done(Operation::Request, runtime.now().since(began));
        files.done(Operation::Other, Nanos(0));
    }
    waiting.clients.set(waiting.clients.get() - 1);
    waiting.arrived.notify();
    Ok(())
}

/// The thread that writes the log.
struct Flusher<F, L> {
    every: Nanos,
    runtime: Handle,
    files: Rc<F>,
    waiting: Rc<Waiting>,
    log: L,
}

impl<F: Files, L: Log<F>> Flusher<F, L> {
    /// Appends the new requests to the log and syncs it, again and again.
    async fn run(mut self, first: Time) -> Result<(), F::Error> {
        let result = self.flush_for_ever(first).await;
        // Wakes waiting clients, because the program ends.
        self.waiting.flushed.set(u64::MAX);
        self.waiting.changed.notify();
        result
    }

    async fn flush_for_ever(&mut self, first: Time) -> Result<(), F::Error> {
        let mut due = first;
        while self.files.goes_on() {
            self.runtime.sleep_until(due).await;
            self.wait_for_a_request().await;
            if self.waiting.requests.get() > 0 {
                self.files.admitted().await;
            }
            due = self.runtime.now() + self.every;
            let requests = self.waiting.requests.take();
            self.waiting.begun.set(self.waiting.begun.get() + 1);
            if requests > 0 {
                let began = self.runtime.now();
                self.log.append(&self.files, requests).await?;
                self.files.done(Operation::Flush, self.runtime.now().since(began));
            }
            self.waiting.flushed.set(self.waiting.begun.get());
            self.waiting.changed.notify();
        }
        Ok(())
    }

    /// Of a database without a period. Returns when all clients have ended, too.
    async fn wait_for_a_request(&self) {
        let Waiting { requests, clients, arrived, .. } = &*self.waiting;
        while self.every == Nanos(0) && requests.get() == 0 && clients.get() > 0 {
            arrived.wait().await;
        }
    }
}
