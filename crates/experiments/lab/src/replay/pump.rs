//! Feeds a trace to a device, at the recorded times or as fast as the device answers.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Sectors, Sleep, Time,
};
use manylogs_workload::{TraceError, TraceOp};
use thiserror::Error;

use super::answers::Answers;
use super::asks::{Ask, Asks};
use super::durability::Durability;
use super::recorder::Recorder;
use super::requests::TooMany;
use super::served::Watch;
use super::workload::Workload;

/// The progress counter, which another thread reads, is updated once in this many requests.
const PROGRESS_EVERY: u64 = 1 << 10;

/// Default size up to which writes count as small: the paper's threshold.
pub const SMALL_WRITE: Sectors = Sectors(512);

/// When requests are handed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// At the times of the trace. Latency counts from the arrival.
    ///
    /// At most `outstanding_max` requests are inside the device at a time, so that memory stays
    /// bounded when the trace outruns the drive. Later requests wait in the trace, and their
    /// latency includes that wait.
    Open {
        /// Largest number of requests inside the device.
        outstanding_max: u32,
        /// Whether the replay ends when that number is reached.
        stop_at_overload: bool,
    },
    /// A fixed number of requests in flight. The times of the trace are ignored.
    Closed {
        /// Number of requests in flight.
        depth: u32,
    },
}

impl Loop {
    /// At the times of the trace, to the end.
    pub const OPEN: Self = Self::Open { outstanding_max: 1024, stop_at_overload: false };
}

/// Progress of a replay for other threads, and a way to stop it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests replayed so far, over all seeds.
    pub done: AtomicU64,
    /// Set to end the replay early.
    pub stop: AtomicBool,
}

/// The reason why a replay stopped with an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PumpError {
    /// The trace cannot be read any further.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The device refused or failed a request.
    #[error("{what} at {extent} failed: {source}")]
    Io {
        /// The operation: read, write, ...
        what: &'static str,
        /// The first sector.
        extent: Extent,
        /// The reason.
        source: IoError,
    },
    /// Requests are kept, and there are too many.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

/// Counters of a finished replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PumpReport {
    /// Requests handed to the device.
    pub requests: u64,
    /// Discards left out because the device does not support them.
    pub discards_skipped: u64,
    /// Arrival of the last request.
    pub last_arrival: Time,
    /// Completion of the last request.
    pub last_completion: Time,
    /// Requests that arrived while the device held `outstanding_max`.
    pub held: u64,
    /// The longest time that such a request waited before it was handed to the device.
    pub held_longest: Nanos,
    /// Whether the user ended the replay early.
    pub interrupted: bool,
    /// Whether the replay ended early because the device was overloaded.
    pub stopped_at_overload: bool,
}

/// Feeds the requests of `workload` to `device`, at `rate` times the recorded rate, until all are
/// answered.
///
/// # Errors
/// If a request fails or the trace cannot be read any further.
pub async fn pump(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    (workload, rate): (&Workload, f64),
    settings: PumpSettings,
    recorder: Rc<RefCell<Recorder>>,
    progress: Arc<Progress>,
) -> Result<PumpReport, PumpError> {
    let recorded = (recorder, Watch::Off);
    pump_watched(runtime, device, (workload, rate), settings, recorded, progress).await
}

/// [`pump`], with `watch` to say where requests are served.
pub(super) async fn pump_watched(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    (workload, rate): (&Workload, f64),
    settings: PumpSettings,
    (recorder, watch): (Rc<RefCell<Recorder>>, Watch),
    progress: Arc<Progress>,
) -> Result<PumpReport, PumpError> {
    let can_discard = device.capabilities().discard;
    let PumpSettings { durability, small_write_max, .. } = settings;
    let feed = Feed {
        answers: Answers::new(runtime, device, recorder, watch),
        asks: Asks::new(workload.start(rate)?, workload.requests(), durability, small_write_max),
        settings,
        progress,
        can_discard,
        sleep: None,
        next: None,
        was_full: false,
        tag: 0,
        report: PumpReport::default(),
    };
    feed.await
}

/// Settings of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PumpSettings {
    /// When requests are handed to the device.
    pub mode: Loop,
    /// Which writes must be durable.
    pub durability: Durability,
    /// Writes up to this size count as small.
    pub small_write_max: Sectors,
}

impl PumpSettings {
    /// At the times of the trace, with writes up to [`SMALL_WRITE`] counted as small.
    #[must_use]
    pub const fn new(durability: Durability) -> Self {
        Self { mode: Loop::OPEN, durability, small_write_max: SMALL_WRITE }
    }
}

struct Feed {
    answers: Rc<Answers>,
    asks: Asks,
    settings: PumpSettings,
    progress: Arc<Progress>,
    can_discard: bool,
    sleep: Option<Sleep>,
    /// A request that was read from the trace and not yet handed to the device.
    next: Option<Ask>,
    was_full: bool,
    /// Each written sector gets its own tag.
    tag: u64,
    report: PumpReport,
}

/// Next step of the feed.
enum Step {
    Submit(Ask),
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
                Step::Submit(ask) => this.submit(&ask),
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
                    let rest = this.report.requests % PROGRESS_EVERY;
                    this.progress.done.fetch_add(rest, Ordering::Relaxed);
                    return Poll::Ready(Ok(this.report));
                }
            }
        }
    }
}

impl Feed {
    fn step(&mut self) -> Result<Step, PumpError> {
        self.report.interrupted |= self.progress.stop.load(Ordering::Relaxed);
        let ends = self.report.stopped_at_overload || self.report.interrupted;
        if self.next.is_none() && !ends {
            self.next = self.asks.next_ask()?;
            if let Some(ask) = &mut self.next {
                ask.request.at = self.answers.origin + Nanos(ask.request.at.0);
            }
        }
        let in_flight = self.answers.in_flight.get();
        let Some(ask) = self.next else {
            return Ok(if in_flight == 0 { Step::End } else { Step::AwaitCompletion });
        };
        match self.settings.mode {
            Loop::Closed { depth } if in_flight >= depth => return Ok(Step::AwaitCompletion),
            Loop::Closed { .. } => {}
            Loop::Open { outstanding_max, stop_at_overload } => {
                if self.answers.runtime.now() < ask.request.at {
                    return Ok(Step::Sleep(ask.request.at));
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
        Ok(Step::Submit(ask))
    }

    fn submit(&mut self, ask: &Ask) {
        let now = self.answers.runtime.now();
        self.report.requests += 1;
        if self.report.requests.is_multiple_of(PROGRESS_EVERY) {
            self.progress.done.fetch_add(PROGRESS_EVERY, Ordering::Relaxed);
        }
        let arrived = match self.settings.mode {
            Loop::Open { .. } => ask.request.at,
            Loop::Closed { .. } => now,
        };
        self.report.last_arrival = arrived;
        if self.was_full && now > arrived {
            self.report.held += 1;
            self.report.held_longest = self.report.held_longest.max(now.since(arrived));
        } else {
            self.was_full = false;
        }
        if ask.request.op == TraceOp::Discard && !self.can_discard {
            self.report.discards_skipped += 1;
            return;
        }
        let translated = self.translate(ask);
        self.answers.submit(translated, ask, arrived);
    }

    fn translate(&mut self, ask: &Ask) -> Request {
        let (extent, fua) = (ask.request.extent, ask.request.fua);
        match ask.request.op {
            TraceOp::Read => Request::Read { extent },
            TraceOp::Write => {
                let payload = Payload::tags(self.tag, extent.len);
                self.tag += extent.len.0;
                Request::Write { extent, payload, fua, hint: Hint::None }
            }
            TraceOp::WriteZeroes => Request::write_zeroes(extent, fua),
            // No trace format records whether a discard had to be durable.
            TraceOp::Discard => Request::Discard { extent, fua: false },
            TraceOp::Flush => Request::Flush,
        }
    }
}
