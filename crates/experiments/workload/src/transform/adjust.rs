//! Small changes: the rate, the device number, the end.

use manylogs_block::{Nanos, Time};

use crate::error::TraceError;
use crate::request::{SourceCounts, TraceRequest, TraceSource};

/// A source whose requests arrive `factor` times as fast.
#[derive(Debug)]
pub struct Rerate<S> {
    source: S,
    factor: f64,
}

impl<S: TraceSource> Rerate<S> {
    /// Divides every time by `factor`: 2 doubles the rate, 0.5 halves it.
    ///
    /// # Errors
    ///
    /// If `factor` is not a positive number.
    pub fn new(source: S, factor: f64) -> Result<Self, TraceError> {
        if !(factor.is_finite() && factor > 0.0) {
            let message = format!("re-rating by {factor}: the factor must be above 0");
            return Err(TraceError::Options(message.into()));
        }
        Ok(Self { source, factor })
    }
}

impl<S: TraceSource> TraceSource for Rerate<S> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let scaled = |at: Time| Time((at.0 as f64 / self.factor).round() as u64);
        let next = self.source.next_request()?;
        Some(next.map(|request| TraceRequest { at: scaled(request.at), ..request }))
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}

/// A source all of whose requests carry one device number.
#[derive(Debug)]
pub struct WithDevice<S> {
    source: S,
    device: u32,
}

impl<S: TraceSource> WithDevice<S> {
    /// Replaces the device number of every request by `device`.
    pub const fn new(source: S, device: u32) -> Self {
        Self { source, device }
    }
}

impl<S: TraceSource> TraceSource for WithDevice<S> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        let next = self.source.next_request()?;
        Some(next.map(|request| TraceRequest { device: self.device, ..request }))
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}

/// The beginning of a source.
#[derive(Debug)]
pub struct Limit<S> {
    source: S,
    requests: u64,
    span: Nanos,
    taken: u64,
}

impl<S: TraceSource> Limit<S> {
    /// At most `requests` requests, all of which arrive before `span` has passed.
    pub const fn new(source: S, requests: u64, span: Nanos) -> Self {
        Self { source, requests, span, taken: 0 }
    }
}

impl<S: TraceSource> TraceSource for Limit<S> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if self.taken >= self.requests {
            return None;
        }
        let next = self.source.next_request()?;
        if matches!(&next, Ok(request) if request.at.0 >= self.span.0) {
            self.taken = self.requests;
            return None;
        }
        self.taken += 1;
        Some(next)
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        let share = self.taken as f64 / self.requests.max(1) as f64;
        Some(self.source.progress().map_or(share, |progress| progress.max(share)))
    }
}
