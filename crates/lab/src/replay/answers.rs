//! Answers to requests in flight, recorded as they come.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use manylogs_block::{Completion, Extent, Handle, IoResult, Time, Watchers};
use manylogs_workload::TraceOp;

use super::pump::PumpError;
use super::recorder::{Class, Recorder};

/// What the feed of a replay and those who wait for its answers have in common.
pub(super) struct Answers {
    pub(super) runtime: Handle,
    /// The trace's time zero.
    pub(super) origin: Time,
    pub(super) recorder: Rc<RefCell<Recorder>>,
    pub(super) in_flight: Cell<u32>,
    watchers: Watchers<(Rc<Answers>, Job)>,
    /// The feed, when it waits for a completion.
    pub(super) waiting: RefCell<Option<Waker>>,
    pub(super) failure: RefCell<Option<PumpError>>,
    pub(super) last_completion: Cell<Time>,
}

/// A request in flight.
pub(super) struct Job {
    pub(super) arrived: Time,
    pub(super) class: Class,
    pub(super) op: TraceOp,
    pub(super) extent: Extent,
}

impl Answers {
    pub(super) fn new(runtime: Handle, recorder: Rc<RefCell<Recorder>>) -> Rc<Self> {
        let origin = runtime.now();
        let finish = |(answers, job): (Rc<Self>, Job), result| answers.finish(&job, result);
        let watchers = Watchers::new(runtime.clone(), finish);
        Rc::new(Self {
            runtime,
            origin,
            recorder,
            in_flight: Cell::new(0),
            watchers,
            waiting: RefCell::default(),
            failure: RefCell::default(),
            last_completion: Cell::default(),
        })
    }

    fn finish(&self, job: &Job, result: IoResult) {
        let now = self.runtime.now();
        let latency = now.since(job.arrived);
        self.recorder.borrow_mut().record(
            job.class,
            Time(job.arrived.since(self.origin).0),
            latency,
        );
        self.last_completion.set(now);
        self.in_flight.set(self.in_flight.get() - 1);
        if let Err(source) = result {
            let error = PumpError::Io { what: name(job.op), extent: job.extent, source };
            self.failure.borrow_mut().get_or_insert(error);
        }
        if let Some(feed) = self.waiting.borrow_mut().take() {
            feed.wake();
        }
    }

    /// Sees to it that the answer to `job` is recorded when it comes.
    pub(super) fn watch(self: &Rc<Self>, completion: Completion, job: Job) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.watchers.watch(completion, (Rc::clone(self), job));
    }
}

const fn name(op: TraceOp) -> &'static str {
    match op {
        TraceOp::Read => "read",
        TraceOp::Write => "write",
        TraceOp::Discard => "discard",
        TraceOp::WriteZeroes => "write-zeroes",
        TraceOp::Flush => "flush",
    }
}
