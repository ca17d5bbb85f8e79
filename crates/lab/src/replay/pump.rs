//! Feeds a trace to a device, by arrival times or as fast as the device completes.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Sleep, Time,
};
use manylogs_workload::{TraceError, TraceOp, TraceRequest};
use thiserror::Error;

use super::answers::{Answers, Job};
use super::recorder::{Class, Recorder};
use super::workload::Cursor;

/// The progress counter is shared with another thread: it is written once in so many requests.
const PROGRESS_EVERY: u64 = 1 << 10;

/// How requests are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// At the times of the trace; latency counts from the arrival.
    ///
    /// The device is handed at most `outstanding_max` at a time, so that a trace which outruns
    /// the drive needs no memory in proportion: later requests wait in the trace, and their
    /// latency counts all the same.
    Open {
        /// Requests inside the device.
        outstanding_max: u32,
        /// Whether to end the replay when that many are outstanding.
        stop_at_overload: bool,
    },
    /// A fixed number in flight, whatever the times of the trace.
    Closed {
        /// How many.
        depth: u32,
    },
}

/// Which writes must be durable when acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// All, with the drive's write cache off, as the paper measured.
    EveryWrite,
    /// As the trace says, with the drive's write cache on.
    AsRecorded,
}

/// What other threads see of a replay, and how they stop it.
#[derive(Debug, Default)]
pub struct Control {
    /// Requests replayed so far.
    pub done: AtomicU64,
    /// Set to end the replay early.
    pub stop: AtomicBool,
}

/// Why a replay could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PumpError {
    /// The trace cannot be read on.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The device refused or failed a request.
    #[error("{what} at {extent} failed: {source}")]
    Io {
        /// Read, write, ...
        what: &'static str,
        /// Where.
        extent: Extent,
        /// Why.
        source: IoError,
    },
}

/// How a replay ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PumpReport {
    /// Requests let in.
    pub requests: u64,
    /// Discards left out because the device knows none.
    pub discards_skipped: u64,
    /// Arrival of the last request.
    pub last_arrival: Time,
    /// Completion of the last request.
    pub last_completion: Time,
    /// Requests that arrived while the device held `outstanding_max`.
    pub held: u64,
    /// The longest such a request waited to be let in.
    pub held_longest: Nanos,
    /// Whether the replay ended early because the device was overloaded.
    pub stopped_at_overload: bool,
}

/// Feeds the requests of `cursor` to `device` until all are answered.
///
/// # Errors
/// The first request that failed, or a trace that cannot be read on.
pub async fn pump(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    cursor: Cursor,
    settings: PumpSettings,
    recorder: Rc<RefCell<Recorder>>,
    control: Arc<Control>,
) -> Result<PumpReport, PumpError> {
    let can_discard = device.capabilities().discard;
    let feed = Feed {
        answers: Answers::new(runtime, recorder),
        device,
        cursor,
        settings,
        control,
        can_discard,
        sleep: None,
        next: None,
        was_full: false,
        tag: 0,
        report: PumpReport::default(),
    };
    feed.await
}

/// How to feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PumpSettings {
    /// How requests are let in.
    pub mode: Loop,
    /// Which writes are durable.
    pub durability: Durability,
}

struct Feed {
    answers: Rc<Answers>,
    device: Rc<dyn BlockDevice>,
    cursor: Cursor,
    settings: PumpSettings,
    control: Arc<Control>,
    can_discard: bool,
    sleep: Option<Sleep>,
    /// Read from the trace and not let in yet.
    next: Option<TraceRequest>,
    was_full: bool,
    /// Each sector ever written gets a tag of its own.
    tag: u64,
    report: PumpReport,
}

/// What the feed does next.
enum Step {
    Submit(TraceRequest),
    Sleep(Time),
    AwaitCompletion,
    End,
}

impl Future for Feed {
    type Output = Result<PumpReport, PumpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Some(error) = this.answers.failure.borrow_mut().take() {
                return Poll::Ready(Err(error));
            }
            match this.step()? {
                Step::Submit(request) => this.submit(&request),
                Step::Sleep(until) => {
                    let sleep = this.answers.runtime.sleep_until(until);
                    if Pin::new(this.sleep.insert(sleep)).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Step::AwaitCompletion => {
                    *this.answers.waiting.borrow_mut() = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Step::End => {
                    this.report.last_completion = this.answers.last_completion.get();
                    this.control.done.store(this.report.requests, Ordering::Relaxed);
                    return Poll::Ready(Ok(this.report));
                }
            }
        }
    }
}

impl Feed {
    fn step(&mut self) -> Result<Step, PumpError> {
        if self.next.is_none() && !self.report.stopped_at_overload && !self.stopped() {
            self.next = self.cursor.next_request()?;
            if let Some(request) = &mut self.next {
                request.at = self.answers.origin + Nanos(request.at.0);
            }
        }
        let in_flight = self.answers.in_flight.get();
        let Some(request) = self.next else {
            return Ok(if in_flight == 0 { Step::End } else { Step::AwaitCompletion });
        };
        match self.settings.mode {
            Loop::Closed { depth } if in_flight >= depth => return Ok(Step::AwaitCompletion),
            Loop::Closed { .. } => {}
            Loop::Open { outstanding_max, stop_at_overload } => {
                if self.answers.runtime.now() < request.at {
                    return Ok(Step::Sleep(request.at));
                }
                if in_flight >= outstanding_max {
                    self.was_full = true;
                    if stop_at_overload {
                        self.report.stopped_at_overload = true;
                        self.next = None;
                    }
                    return Ok(Step::AwaitCompletion);
                }
            }
        }
        self.next = None;
        Ok(Step::Submit(request))
    }

    fn stopped(&self) -> bool {
        self.control.stop.load(Ordering::Relaxed)
    }

    fn submit(&mut self, request: &TraceRequest) {
        let now = self.answers.runtime.now();
        self.report.requests += 1;
        if self.report.requests.is_multiple_of(PROGRESS_EVERY) {
            self.control.done.store(self.report.requests, Ordering::Relaxed);
        }
        let arrived = match self.settings.mode {
            Loop::Open { .. } => request.at,
            Loop::Closed { .. } => now,
        };
        self.report.last_arrival = arrived;
        if self.was_full && now > arrived {
            self.report.held += 1;
            self.report.held_longest = self.report.held_longest.max(now.since(arrived));
        } else {
            self.was_full = false;
        }
        if request.op == TraceOp::Discard && !self.can_discard {
            self.report.discards_skipped += 1;
            return;
        }
        let class = self.class_of(request);
        let translated = self.translate(request);
        let completion = self.device.submit(translated);
        let (op, extent) = (request.op, request.extent);
        self.answers.watch(completion, Job { arrived, class, op, extent });
    }

    fn class_of(&self, request: &TraceRequest) -> Class {
        match request.op {
            TraceOp::Read => Class::Read,
            TraceOp::Write | TraceOp::WriteZeroes => {
                self.answers.recorder.borrow().class_of_write(request.extent.len)
            }
            TraceOp::Flush | TraceOp::Discard => Class::Other,
        }
    }

    fn translate(&mut self, request: &TraceRequest) -> Request {
        let extent = request.extent;
        let fua = match self.settings.durability {
            Durability::EveryWrite => true,
            Durability::AsRecorded => request.fua,
        };
        match request.op {
            TraceOp::Read => Request::Read { extent },
            TraceOp::Write => {
                let payload = Payload::tags(self.tag, extent.len);
                self.tag += extent.len.0;
                Request::Write { extent, payload, fua, hint: Hint::None }
            }
            TraceOp::WriteZeroes => Request::write_zeroes(extent, fua),
            // No format records whether anybody waited for a discard to be durable.
            TraceOp::Discard => Request::Discard { extent, fua: false },
            TraceOp::Flush => Request::Flush,
        }
    }
}
