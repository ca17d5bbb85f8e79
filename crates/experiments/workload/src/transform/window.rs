//! Windows of a trace: random ones, and cutting one out.

use manylogs_block::{Nanos, Time};

use crate::error::TraceError;
use crate::request::{SourceCounts, TraceRequest, TraceSource};

/// Windows start at whole seconds.
pub(crate) const STEP_NS: u64 = 1_000_000_000;

/// A stretch of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Its start, since the first request of the trace.
    pub start: Time,
    /// Its length.
    pub len: Nanos,
}

impl Window {
    /// The window of `len` that a search found.
    #[must_use]
    pub const fn at_second(start_s: u64, len: Nanos) -> Self {
        Self { start: Time(start_s * STEP_NS), len }
    }

    /// The first instant behind the window.
    #[must_use]
    pub fn end(self) -> Time {
        self.start + self.len
    }
}

/// `count` windows of `len` at random whole seconds of a trace that spans `span`.
///
/// Each start is drawn by itself, so windows may overlap; the same seed gives the same windows.
#[must_use]
pub fn random_windows(span: Nanos, len: Nanos, count: usize, seed: u64) -> Vec<Window> {
    let starts = span.0.saturating_sub(len.0) / STEP_NS + 1;
    let mut state = seed;
    let mut draw = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let windows = (0..count).map(|_| Window { start: Time(draw() % starts * STEP_NS), len });
    windows.collect()
}

/// The part of a source inside a window, with times since the window's start.
#[derive(Debug)]
pub struct Cut<S> {
    source: S,
    window: Window,
    done: bool,
}

impl<S: TraceSource> Cut<S> {
    /// Cuts `window` out of `source`.
    pub const fn new(source: S, window: Window) -> Self {
        Self { source, window, done: false }
    }
}

impl<S: TraceSource> TraceSource for Cut<S> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        while !self.done {
            match self.source.next_request()? {
                Ok(request) if request.at < self.window.start => {}
                Ok(request) if request.at < self.window.end() => {
                    let at = Time(request.at.since(self.window.start).0);
                    return Some(Ok(TraceRequest { at, ..request }));
                }
                Ok(_) => self.done = true,
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
