//! A trace prepared for replay: it is measured once and read again for each policy.

use std::sync::Arc;

use manylogs_block::Time;
use manylogs_workload::{
    BoxedSource, RequestCache, TraceError, TraceOp, TraceRequest, TraceSource,
};

use crate::results::TraceSummary;

/// Opens the trace from its start.
pub type OpenTrace = Arc<dyn Fn() -> Result<BoxedSource, TraceError> + Send + Sync>;

/// A trace that can be replayed any number of times, also on several threads at once.
#[derive(Clone)]
pub struct Workload {
    requests: Requests,
    summary: TraceSummary,
    repeat: u64,
}

#[derive(Clone)]
enum Requests {
    Cached(Arc<RequestCache>),
    Streamed(OpenTrace),
}

/// Requests in order of arrival at a given rate.
pub struct Cursor {
    requests: Reader,
    open: Option<OpenTrace>,
    /// Number of passes after this one.
    passes_left: u64,
    /// Offset that is added to arrival times in this pass.
    offset: Time,
    pass_span: Time,
    /// Arrival times are multiplied by this over 2^32.
    stretch_q32: u128,
}

enum Reader {
    Cached { requests: Arc<RequestCache>, next: usize },
    Streamed(BoxedSource),
}

impl Workload {
    /// Reads the trace once from end to end.
    ///
    /// # Errors
    /// Those of the trace's reader.
    pub fn measure(open: OpenTrace) -> Result<Self, TraceError> {
        let mut source = open()?;
        let mut summary = TraceSummary::default();
        let mut cache = RequestCache::default();
        while let Some(request) = source.next_request() {
            let request = request?;
            summary.count(&request);
            cache.push(&request);
        }
        summary.dropped = source.counts();
        let requests = match cache.is_complete() {
            true => Requests::Cached(Arc::new(cache)),
            false => Requests::Streamed(open),
        };
        Ok(Self { requests, summary, repeat: 1 })
    }

    /// A trace of which only the summary is known: it cannot be replayed.
    #[must_use]
    pub fn of_summary(summary: TraceSummary) -> Self {
        let nothing = || Err(TraceError::Options("only the summary of this trace is here".into()));
        Self { requests: Requests::Streamed(Arc::new(nothing)), summary, repeat: 1 }
    }

    /// The same trace repeated `times` times, one pass after the other.
    #[must_use]
    pub fn repeated(mut self, times: u64) -> Self {
        self.repeat = times.max(1);
        self
    }

    /// Counters of one pass.
    #[must_use]
    pub const fn summary(&self) -> &TraceSummary {
        &self.summary
    }

    /// Number of passes of a replay.
    #[must_use]
    pub const fn passes(&self) -> u64 {
        self.repeat
    }

    /// Requests of all passes.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.summary.requests * self.repeat
    }

    /// Begins a replay at `rate` times the recorded rate of arrivals.
    ///
    /// # Errors
    /// Those of the trace's reader.
    pub fn start(&self, rate: f64) -> Result<Cursor, TraceError> {
        let (requests, open) = match &self.requests {
            Requests::Cached(all) => (Reader::Cached { requests: Arc::clone(all), next: 0 }, None),
            Requests::Streamed(open) => (Reader::Streamed(open()?), Some(Arc::clone(open))),
        };
        Ok(Cursor {
            requests,
            open,
            passes_left: self.repeat - 1,
            offset: Time(0),
            pass_span: self.pass_span(),
            stretch_q32: stretch_q32(rate),
        })
    }

    /// Time from the start of one pass to the start of the next, which begins one mean gap after
    /// the last request.
    fn pass_span(&self) -> Time {
        let gaps = self.summary.requests.saturating_sub(1).max(1);
        Time(self.summary.span_ns + (self.summary.span_ns / gaps).max(1))
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workload({} requests x {})", self.summary.requests, self.repeat)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
fn stretch_q32(rate: f64) -> u128 {
    (4_294_967_296.0 / rate.max(1e-9)).round() as u128
}

impl TraceSummary {
    fn count(&mut self, request: &TraceRequest) {
        let bytes = request.extent.len.bytes();
        self.requests += 1;
        match request.op {
            TraceOp::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
            }
            TraceOp::Write | TraceOp::WriteZeroes => {
                self.writes += 1;
                self.fua_writes += u64::from(request.fua);
                self.written_bytes += bytes;
            }
            TraceOp::Flush => self.flushes += 1,
            TraceOp::Discard => self.discards += 1,
        }
        self.span_ns = self.span_ns.max(request.at.0);
        self.end_sector = self.end_sector.max(request.extent.end().0);
    }
}

impl Cursor {
    /// The next request, with its arrival at the replay's rate.
    ///
    /// # Errors
    /// Those of the trace's reader.
    pub fn next_request(&mut self) -> Result<Option<TraceRequest>, TraceError> {
        loop {
            if let Some(mut request) = self.requests.next_request()? {
                let at = (u128::from(request.at.0 + self.offset.0) * self.stretch_q32) >> 32;
                request.at = Time(u64::try_from(at).unwrap_or(u64::MAX));
                return Ok(Some(request));
            }
            if self.passes_left == 0 {
                return Ok(None);
            }
            self.passes_left -= 1;
            self.offset = Time(self.offset.0 + self.pass_span.0);
            self.requests.rewind(self.open.as_ref())?;
        }
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({} passes left)", self.passes_left)
    }
}

impl Reader {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, TraceError> {
        match self {
            Self::Cached { requests, next } => {
                let request = requests.get(*next);
                *next += 1;
                Ok(request)
            }
            Self::Streamed(source) => source.next_request().transpose(),
        }
    }

    fn rewind(&mut self, open: Option<&OpenTrace>) -> Result<(), TraceError> {
        match (self, open) {
            (Self::Cached { next, .. }, _) => *next = 0,
            (Self::Streamed(source), Some(open)) => *source = open()?,
            (Self::Streamed(_), None) => unreachable!("a streamed trace can be opened again"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    fn workload(requests: u64) -> Workload {
        let open = move || Ok(Box::new(Synthetic::reader_and_writers(1, requests)) as BoxedSource);
        Workload::measure(Arc::new(open)).unwrap()
    }

    fn all(workload: &Workload, rate: f64) -> Vec<TraceRequest> {
        let mut cursor = workload.start(rate).unwrap();
        std::iter::from_fn(|| cursor.next_request().unwrap()).collect()
    }

    #[test]
    fn a_cached_trace_is_the_trace() {
        let workload = workload(500);
        let mut source = Synthetic::reader_and_writers(1, 500);
        let original: Vec<_> = std::iter::from_fn(|| source.next_request()).flatten().collect();
        assert_eq!(all(&workload, 1.0), original);
        assert_eq!(workload.summary().requests, 500);
    }

    #[test]
    fn repetitions_follow_one_another_in_time() {
        let workload = workload(100).repeated(3);
        let requests = all(&workload, 1.0);
        assert_eq!((requests.len(), workload.requests()), (300, 300));
        assert!(requests.is_sorted_by_key(|request| request.at));
        assert_eq!(requests[0].extent, requests[100].extent);
    }

    #[test]
    fn twice_the_rate_takes_half_the_time() {
        let workload = workload(100);
        let (slow, fast) = (all(&workload, 1.0), all(&workload, 2.0));
        for (slow, fast) in slow.iter().zip(&fast) {
            assert!((slow.at.0 / 2).abs_diff(fast.at.0) <= 1);
        }
    }
}
