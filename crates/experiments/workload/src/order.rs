//! Puts slightly disordered records in order and counts time from the first of them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use manylogs_block::{Nanos, Time};

use crate::error::TraceError;
use crate::open::Format;
use crate::request::{BoxedSource, SourceCounts, TraceRequest, TraceSource};

/// How far out of order a format's records may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disorder {
    /// Records held back at most.
    records: usize,
    /// A record is held back until one this much younger has been seen.
    window: Nanos,
}

impl Disorder {
    /// Several CPUs or threads logged at arrival: the order errs by milliseconds.
    pub(crate) const SMALL: Self = Self { records: 1 << 12, window: Nanos::from_secs(1) };
    /// Logged at completion, but timed at arrival: the order errs by the longest request.
    pub(crate) const COMPLETION: Self = Self { records: 1 << 16, window: Nanos::from_secs(30) };
}

/// A bounded reorder buffer; also moves the time of the first request to zero.
pub(crate) struct Ordered {
    source: BoxedSource,
    disorder: Disorder,
    /// Held back, sorted by time; equal times in the order of the file.
    held: VecDeque<TraceRequest>,
    newest: Time,
    first: Option<Time>,
    last: Time,
    late: u64,
    pending_error: Option<TraceError>,
    exhausted: bool,
    file: PathBuf,
    format: Format,
}

impl Ordered {
    pub(crate) fn new(
        source: BoxedSource,
        disorder: Disorder,
        file: &Path,
        format: Format,
    ) -> Self {
        Self {
            source,
            disorder,
            held: VecDeque::new(),
            newest: Time(0),
            first: None,
            last: Time(0),
            late: 0,
            pending_error: None,
            exhausted: false,
            file: file.to_owned(),
            format,
        }
    }

    /// Whether no record still to come can precede the oldest one held.
    fn is_ripe(&self) -> bool {
        let Some(oldest) = self.held.front() else { return false };
        self.held.len() > self.disorder.records
            || self.newest.since(oldest.at) > self.disorder.window
    }

    fn hold(&mut self, mut request: TraceRequest) {
        if request.at < self.last {
            request.at = self.last;
            self.late += 1;
        }
        if request.at >= self.newest {
            self.newest = request.at;
            self.held.push_back(request);
            return;
        }
        let place = self.held.partition_point(|held| held.at <= request.at);
        self.held.insert(place, request);
    }

    fn release(&mut self, mut request: TraceRequest) -> TraceRequest {
        let first = *self.first.get_or_insert(request.at);
        self.last = request.at;
        request.at = Time(request.at.0 - first.0);
        request
    }

    /// The error of the source, or the error that it was empty.
    fn finish(&mut self) -> Option<TraceError> {
        if let Some(error) = self.pending_error.take() {
            self.first.get_or_insert(Time(0));
            return Some(error);
        }
        if self.first.is_some() {
            return None;
        }
        self.first = Some(Time(0));
        let skipped = self.source.counts().skipped;
        Some(TraceError::Empty { file: Box::new(self.file.clone()), skipped, format: self.format })
    }
}

impl TraceSource for Ordered {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        while !self.exhausted && !self.is_ripe() {
            match self.source.next_request() {
                Some(Ok(request)) => self.hold(request),
                Some(Err(error)) => {
                    self.pending_error = Some(error);
                    self.exhausted = true;
                }
                None => self.exhausted = true,
            }
        }
        match self.held.pop_front() {
            Some(request) => Some(Ok(self.release(request))),
            None => self.finish().map(Err),
        }
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts { late: self.late, ..SourceCounts::default() }.plus(self.source.counts())
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
