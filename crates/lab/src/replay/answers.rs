//! Answers to requests in flight, recorded as they come.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use manylogs_block::{Completion, Extent, Handle, IoResult, Time};
use manylogs_workload::TraceOp;

use super::pump::PumpError;
use super::recorder::{Class, Recorder};

/// What the feed of a replay and the tasks that wait for its answers have in common.
pub(super) struct Answers {
    pub(super) runtime: Handle,
    /// The trace's time zero.
    pub(super) origin: Time,
    pub(super) recorder: Rc<RefCell<Recorder>>,
    pub(super) in_flight: Cell<u32>,
    idle: RefCell<Vec<Rc<Waiter>>>,
    /// The feed, when it waits for a completion.
    pub(super) waiting: RefCell<Option<Waker>>,
    pub(super) failure: RefCell<Option<PumpError>>,
    pub(super) last_completion: Cell<Time>,
}

/// A task that waits for one answer after the other. Waiters are reused, so that a request costs
/// neither an allocation nor a task of its own.
#[derive(Default)]
struct Waiter {
    job: RefCell<Option<Job>>,
    waker: RefCell<Option<Waker>>,
}

/// A request in flight.
pub(super) struct Job {
    pub(super) completion: Completion,
    pub(super) arrived: Time,
    pub(super) class: Class,
    pub(super) op: TraceOp,
    pub(super) extent: Extent,
}

impl Answers {
    pub(super) fn new(runtime: Handle, recorder: Rc<RefCell<Recorder>>) -> Rc<Self> {
        let origin = runtime.now();
        Rc::new(Self {
            runtime,
            origin,
            recorder,
            in_flight: Cell::new(0),
            idle: RefCell::default(),
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
    pub(super) fn watch(self: &Rc<Self>, mut job: Job) {
        self.in_flight.set(self.in_flight.get() + 1);
        let idle = self.idle.borrow_mut().pop();
        let Some(waiter) = idle else {
            let waiter = Rc::new(Waiter { job: RefCell::new(Some(job)), ..Waiter::default() });
            self.runtime.spawn(WaiterTask { answers: Rc::clone(self), waiter });
            return;
        };
        // The answer must wake the waiter's task, so it is asked for with that task's waker.
        let polled = {
            let waker = waiter.waker.borrow();
            let Some(waker) = waker.as_ref() else { unreachable!("idle after its first poll") };
            Pin::new(&mut job.completion).poll(&mut Context::from_waker(waker))
        };
        match polled {
            Poll::Ready(result) => {
                self.finish(&job, result);
                self.idle.borrow_mut().push(waiter);
            }
            Poll::Pending => *waiter.job.borrow_mut() = Some(job),
        }
    }
}

struct WaiterTask {
    answers: Rc<Answers>,
    waiter: Rc<Waiter>,
}

impl Future for WaiterTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waiter = &self.waiter;
        waiter.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        let mut slot = waiter.job.borrow_mut();
        let Some(job) = slot.as_mut() else { return Poll::Pending };
        let Poll::Ready(result) = Pin::new(&mut job.completion).poll(cx) else {
            return Poll::Pending;
        };
        let done = slot.take();
        drop(slot);
        if let Some(job) = done {
            self.answers.finish(&job, result);
        }
        self.answers.idle.borrow_mut().push(Rc::clone(waiter));
        Poll::Pending
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
