//! The busiest windows of a trace.

use std::collections::VecDeque;

use manylogs_block::{Nanos, Time};

use super::window::STEP_NS;
use crate::error::TraceError;
use crate::request::{TraceOp, TraceRequest, TraceSource};

/// The measure by which a window is the busiest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// The number of requests.
    Count,
    /// Their bytes.
    Bytes,
}

/// A busy window with its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct BusiestWindow {
    /// Start in seconds since the first request: windows start at whole seconds.
    pub start_s: u64,
    /// Requests of the operation looked for, per second of the window.
    pub per_second: f64,
    /// Their bytes per second of the window.
    pub bytes_per_second: f64,
    /// Share of reads among the window's reads and writes, in per cent.
    pub read_percent: f64,
}

/// Sums over the requests of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    count: u64,
    bytes: u64,
    reads: u64,
    writes: u64,
}

impl Second {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.writes += other.writes;
    }

    fn subtract(&mut self, other: &Self) {
        self.count -= other.count;
        self.bytes -= other.bytes;
        self.reads -= other.reads;
        self.writes -= other.writes;
    }
}

/// Finds the busiest window as requests go by, sliding in steps of a second.
///
/// Keeps one sum for each second of the window: 3600 for an hour, however long the trace.
#[derive(Debug)]
pub(crate) struct SlidingMaximum {
    len_s: u64,
    op: TraceOp,
    by: By,
    /// The seconds of the current window that hold requests, oldest first.
    seconds: VecDeque<Second>,
    sum: Second,
    best: Option<Second>,
    last: Time,
}

impl SlidingMaximum {
    pub(crate) fn new(len: Nanos, op: TraceOp, by: By) -> Self {
        let len_s = (len.0 / STEP_NS).max(1);
        let (seconds, sum) = (VecDeque::new(), Second::default());
        Self { len_s, op, by, seconds, sum, best: None, last: Time(0) }
    }

    pub(crate) fn add(&mut self, request: &TraceRequest) {
        self.last = request.at;
        let number = request.at.0 / STEP_NS;
        if self.seconds.back().is_none_or(|second| second.number < number) {
            self.consider();
            self.advance_to(number);
            self.seconds.push_back(Second { number, ..Second::default() });
        }
        let hit = u64::from(request.op == self.op);
        let this = Second {
            number,
            count: hit,
            bytes: request.extent.len.bytes() * hit,
            reads: u64::from(request.op == TraceOp::Read),
            writes: u64::from(request.op == TraceOp::Write),
        };
        self.sum.add(&this);
        if let Some(second) = self.seconds.back_mut() {
            second.add(&this);
        }
    }

    /// Drops the seconds before the window that ends with second `number`.
    fn advance_to(&mut self, number: u64) {
        while let Some(oldest) = self.seconds.front()
            && oldest.number + self.len_s <= number
        {
            let oldest = *oldest;
            self.sum.subtract(&oldest);
            self.seconds.pop_front();
        }
    }

    /// Keeps the window that ends with the newest second if it is the busiest so far.
    fn consider(&mut self) {
        let Some(newest) = self.seconds.back() else { return };
        let value = |second: &Second| match self.by {
            By::Count => second.count,
            By::Bytes => second.bytes,
        };
        let start = (newest.number + 1).saturating_sub(self.len_s);
        // A window that still grows from the trace's start takes in what follows, even if that
        // makes it no busier: a trace shorter than the window is one window.
        let better = self.best.as_ref().is_none_or(|best| {
            value(&self.sum) > value(best)
                || start == best.number && value(&self.sum) == value(best)
        });
        if better {
            self.best = Some(Second { number: start, ..self.sum });
        }
    }

    pub(crate) fn finish(mut self) -> BusiestWindow {
        self.consider();
        let Some(best) = self.best else { return BusiestWindow::default() };
        // A trace shorter than the window is a window of its own length.
        let len_s = (self.len_s as f64).min(self.last.as_secs_f64()).max(1e-9);
        BusiestWindow {
            start_s: best.number,
            per_second: best.count as f64 / len_s,
            bytes_per_second: best.bytes as f64 / len_s,
            read_percent: crate::stat::percent(best.reads, best.reads + best.writes),
        }
    }
}

/// The busiest windows of one length.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct BusiestWindows {
    /// The window's length in seconds; the trace's if that is shorter.
    pub window_s: f64,
    /// Most reads by count.
    pub reads: BusiestWindow,
    /// Most reads by bytes.
    pub read_bytes: BusiestWindow,
    /// Most writes by count.
    pub writes: BusiestWindow,
    /// Most writes by bytes.
    pub write_bytes: BusiestWindow,
}

/// Finds the busiest windows of one length.
#[derive(Debug)]
pub(crate) struct Maxima {
    len: Nanos,
    reads: SlidingMaximum,
    read_bytes: SlidingMaximum,
    writes: SlidingMaximum,
    write_bytes: SlidingMaximum,
}

impl Maxima {
    pub(crate) fn new(len: Nanos) -> Self {
        Self {
            len,
            reads: SlidingMaximum::new(len, TraceOp::Read, By::Count),
            read_bytes: SlidingMaximum::new(len, TraceOp::Read, By::Bytes),
            writes: SlidingMaximum::new(len, TraceOp::Write, By::Count),
            write_bytes: SlidingMaximum::new(len, TraceOp::Write, By::Bytes),
        }
    }

    pub(crate) fn add(&mut self, request: &TraceRequest) {
        self.reads.add(request);
        self.read_bytes.add(request);
        self.writes.add(request);
        self.write_bytes.add(request);
    }

    pub(crate) fn finish(self) -> BusiestWindows {
        let span = self.reads.last.since(Time(0));
        BusiestWindows {
            window_s: self.len.min(span).as_secs_f64(),
            reads: self.reads.finish(),
            read_bytes: self.read_bytes.finish(),
            writes: self.writes.finish(),
            write_bytes: self.write_bytes.finish(),
        }
    }
}

/// The busiest windows of `len` for reads and writes, by count and by bytes, in one pass.
///
/// Windows slide in steps of a second; of equally busy ones the first is returned.
///
/// # Errors
///
/// The first error of the source.
pub fn busiest_windows(
    source: &mut impl TraceSource,
    len: Nanos,
) -> Result<BusiestWindows, TraceError> {
    let mut maxima = Maxima::new(len);
    while let Some(request) = source.next_request() {
        maxima.add(&request?);
    }
    Ok(maxima.finish())
}
