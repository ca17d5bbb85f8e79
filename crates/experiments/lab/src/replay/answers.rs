//! Requests in flight and the recording of their answers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use manylogs_block::{BlockDevice, Completion, Extent, Handle, IoResult, Request, Time, Watchers};
use manylogs_workload::TraceOp;

use super::asks::Ask;
use super::pump::PumpError;
use super::recorder::{Answered, LatencyClass, Recorder};
use super::served::{Served, Watch};
use super::syncs::{SyncId, Syncs};

/// Number of idle tasks kept for the next burst: as many as a drive's queue takes.
const WATCHERS_KEPT: usize = 32;

/// State shared by the feed of a replay and the tasks that wait for answers.
pub(super) struct Answers {
    pub(super) runtime: Handle,
    pub(super) device: Rc<dyn BlockDevice>,
    /// The trace's time zero.
    pub(super) origin: Time,
    pub(super) recorder: Rc<RefCell<Recorder>>,
    pub(super) in_flight: Cell<u32>,
    syncs: RefCell<Syncs>,
    /// Says where requests are served, if that is asked for.
    watch: Watch,
    /// Number of requests handed to the device.
    submitted: Cell<u64>,
    watchers: Watchers<(Rc<Answers>, Job)>,
    /// Waker of the feed while it waits for a completion.
    pub(super) waiting: RefCell<Option<Waker>>,
    pub(super) failure: RefCell<Option<PumpError>>,
    pub(super) last_completion: Cell<Time>,
}

/// A request in flight.
struct Job {
    class: LatencyClass,
    op: TraceOp,
    extent: Extent,
    window: usize,
    /// Arrival time, from which the latency counts.
    arrived: Time,
    counts_from: Time,
    is_stream: bool,
    /// The sync that covers the request.
    sync: Option<SyncId>,
    /// Its number, in the order of submission.
    request: u64,
    served: Served,
}

impl Answers {
    pub(super) fn new(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        recorder: Rc<RefCell<Recorder>>,
        watch: Watch,
    ) -> Rc<Self> {
        let origin = runtime.now();
        let finish = |(answers, job): (Rc<Self>, Job), result| answers.finish(&job, result);
        let watchers = Watchers::new(runtime.clone(), WATCHERS_KEPT, finish);
        Rc::new(Self {
            runtime,
            device,
            origin,
            recorder,
            in_flight: Cell::new(0),
            syncs: RefCell::default(),
            watch,
            submitted: Cell::default(),
            watchers,
            waiting: RefCell::default(),
            failure: RefCell::default(),
            last_completion: Cell::default(),
        })
    }

    /// Hands `request`, made from `ask`, to the device. A flush that covers writes goes to the
    /// device once these are answered.
    pub(super) fn submit(self: &Rc<Self>, request: Request, ask: &Ask, arrived: Time) {
        if ask.class == LatencyClass::Sync {
            self.syncs.borrow_mut().flush(arrived, ask.window);
            self.release();
            return;
        }
        let covered = LatencyClass::CACHED.contains(&ask.class);
        let sync = covered.then(|| self.syncs.borrow_mut().write(arrived));
        if ask.is_stream {
            let now = self.runtime.now();
            self.recorder.borrow_mut().streams.begin(now, ask.window);
        }
        let (completion, served) = self.watch.over(request, |request| self.device.submit(request));
        let (op, extent) = (ask.request.op, ask.request.extent);
        let Ask { class, window, is_stream, .. } = *ask;
        let counts_from = arrived;
        let request = self.next_number();
        let job = Job {
            class,
            op,
            extent,
            window,
            arrived,
            counts_from,
            is_stream,
            sync,
            request,
            served,
        };
        self.watch(completion, job);
    }

    fn finish(self: &Rc<Self>, job: &Job, result: IoResult) {
        let now = self.runtime.now();
        let kept = {
            let mut recorder = self.recorder.borrow_mut();
            let kept = recorder.record(&Answered {
                class: job.class,
                arrived: Time(job.arrived.since(self.origin).0),
                latency: now.since(job.counts_from),
                window: job.window,
                request: job.request,
                extent: job.extent,
                served: job.served,
            });
            if job.is_stream {
                recorder.streams.end(now, job.window, job.extent.len.bytes());
            }
            kept
        };
        self.last_completion.set(now);
        self.in_flight.set(self.in_flight.get() - 1);
        if let Err(too_many) = kept {
            self.failure.borrow_mut().get_or_insert(too_many.into());
        }
        if let Err(source) = result {
            let error = PumpError::Io { what: name(job.op), extent: job.extent, source };
            self.failure.borrow_mut().get_or_insert(error);
        }
        if let Some(id) = job.sync {
            self.syncs.borrow_mut().answered(id, now);
            self.release();
        }
        if let Some(feed) = self.waiting.borrow_mut().take() {
            feed.wake();
        }
    }

    fn next_number(&self) -> u64 {
        self.submitted.replace(self.submitted.get() + 1)
    }

    /// Hands over the flushes whose writes are answered.
    fn release(self: &Rc<Self>) {
        loop {
            let ready = self.syncs.borrow_mut().take_ready();
            let Some(flush) = ready else { return };
            let completion = self.device.submit(Request::Flush);
            let job = Job {
                class: LatencyClass::Sync,
                op: TraceOp::Flush,
                extent: Extent::default(),
                window: flush.window,
                arrived: flush.arrived,
                counts_from: flush.counts_from,
                is_stream: false,
                sync: None,
                request: self.next_number(),
                served: Served::Nowhere,
            };
            self.watch(completion, job);
        }
    }

    /// Arranges that the answer to `job` is recorded when it arrives.
    fn watch(self: &Rc<Self>, completion: Completion, job: Job) {
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
