//! Requests of the replayed application: those of the trace, with the chosen durability.
//!
//! Each property of a request follows from the trace alone. So a request has the same properties
//! under every policy, and policies can be compared request by request.

use manylogs_block::{Nanos, Sectors, Time};
use manylogs_workload::{TraceError, TraceOp, TraceRequest};

use super::durability::Durability;
use super::recorder::LatencyClass;
use super::streams::StreamFinder;
use super::workload::Cursor;
use crate::stats::WINDOWS;

/// A request and the class in which its latency is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) request: TraceRequest,
    pub(super) class: LatencyClass,
    /// Index of the part of the replay in which the request arrives, below [`WINDOWS`].
    pub(super) window: usize,
    /// Whether the request continues a stream.
    pub(super) is_stream: bool,
}

/// Iterates over the requests of a trace with the chosen durability.
#[derive(Debug)]
pub(super) struct Asks {
    cursor: Cursor,
    durability: Durability,
    small_write_max: Sectors,
    streams: StreamFinder,
    /// The trace's next request, while a flush that precedes it is handed out.
    waiting: Option<TraceRequest>,
    /// When the next flush of [`Durability::SyncEvery`] is due.
    sync_at: Option<Time>,
    /// Whether data was written since the last flush.
    is_dirty: bool,
    /// Requests read from the trace so far, and their total number.
    read: u64,
    requests: u64,
    /// Index of the current part of the replay, which ends before request `window_end`.
    window: usize,
    window_end: u64,
}

impl Asks {
    /// Wraps `cursor`, which yields `requests` requests.
    pub(super) fn new(
        cursor: Cursor,
        requests: u64,
        durability: Durability,
        small_write_max: Sectors,
    ) -> Self {
        Self {
            cursor,
            durability,
            small_write_max,
            streams: StreamFinder::default(),
            waiting: None,
            sync_at: None,
            is_dirty: false,
            read: 0,
            requests: requests.max(1),
            window: 0,
            window_end: window_end(0, requests.max(1)),
        }
    }

    /// The next request.
    pub(super) fn next_ask(&mut self) -> Result<Option<Ask>, TraceError> {
        let next = match self.waiting.take() {
            Some(request) => Some(request),
            None => self.read_on()?,
        };
        if let Some(due) = self.sync_at
            && next.is_none_or(|request| request.at > due)
        {
            self.waiting = next;
            return Ok(Some(self.ask(TraceRequest::flush(due, 0))));
        }
        Ok(next.map(|request| self.ask(request)))
    }

    fn read_on(&mut self) -> Result<Option<TraceRequest>, TraceError> {
        loop {
            let next = self.cursor.next_request()?;
            self.read += u64::from(next.is_some());
            match (next, self.durability) {
                (Some(TraceRequest { op: TraceOp::Flush, .. }), Durability::SyncEvery(_)) => {}
                _ => return Ok(next),
            }
        }
    }

    fn ask(&mut self, mut request: TraceRequest) -> Ask {
        let writes = matches!(request.op, TraceOp::Write | TraceOp::WriteZeroes);
        request.fua = match self.durability {
            Durability::All => writes,
            Durability::Recorded => writes && request.fua,
            Durability::SyncEvery(_) => false,
        };
        let class = self.class_of(&request);
        if writes && !request.fua {
            self.is_dirty = true;
            if let Durability::SyncEvery(span) = self.durability {
                self.sync_at = self.sync_at.or(Some(next_multiple(request.at, span)));
            }
        }
        if request.op == TraceOp::Flush {
            self.is_dirty = false;
            self.sync_at = None;
        }
        let is_stream = self.streams.goes_on(&request);
        while self.read > self.window_end && self.window < WINDOWS - 1 {
            self.window += 1;
            self.window_end = window_end(self.window, self.requests);
        }
        Ask { request, class, window: self.window, is_stream }
    }

    fn class_of(&self, request: &TraceRequest) -> LatencyClass {
        let small = request.extent.len <= self.small_write_max;
        match request.op {
            TraceOp::Read => LatencyClass::Read,
            TraceOp::Write | TraceOp::WriteZeroes => match (request.fua, small) {
                (true, true) => LatencyClass::DurableSmall,
                (true, false) => LatencyClass::DurableLarge,
                (false, true) => LatencyClass::CachedSmall,
                (false, false) => LatencyClass::CachedLarge,
            },
            TraceOp::Flush if self.is_dirty => LatencyClass::Sync,
            TraceOp::Flush | TraceOp::Discard => LatencyClass::Other,
        }
    }
}

/// Number of requests up to the end of part `window`.
const fn window_end(window: usize, requests: u64) -> u64 {
    ((window as u64 + 1) * requests).div_ceil(WINDOWS as u64)
}

fn next_multiple(at: Time, span: Nanos) -> Time {
    Time((at.0 / span.0 + 1).saturating_mul(span.0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use manylogs_block::Extent;
    use manylogs_workload::{BoxedSource, SourceCounts, TraceSource};

    use super::*;
    use crate::replay::Workload;

    struct Listed(std::vec::IntoIter<TraceRequest>);

    impl TraceSource for Listed {
        fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
            self.0.next().map(Ok)
        }

        fn counts(&self) -> SourceCounts {
            SourceCounts::default()
        }
    }

    fn request(ms: u64, op: TraceOp, fua: bool) -> TraceRequest {
        let extent = if op == TraceOp::Flush { Extent::default() } else { Extent::new(8, 8) };
        TraceRequest { at: Time(ms * 1_000_000), op, extent, fua, device: 0 }
    }

    fn asked(requests: Vec<TraceRequest>, durability: Durability) -> Vec<(u64, LatencyClass)> {
        let count = requests.len() as u64;
        let open = move || Ok(Box::new(Listed(requests.clone().into_iter())) as BoxedSource);
        let cursor = Workload::measure(Arc::new(open)).unwrap().start(1.0).unwrap();
        let mut asks = Asks::new(cursor, count, durability, Sectors(512));
        std::iter::from_fn(|| asks.next_ask().unwrap())
            .map(|ask| (ask.request.at.0 / 1_000_000, ask.class))
            .collect()
    }

    #[test]
    fn flushes_count_only_where_something_was_written() {
        use TraceOp::{Flush, Read, Write};
        let trace = vec![
            request(0, Flush, false),
            request(1, Write, false),
            request(2, Flush, false),
            request(3, Write, true),
            request(4, Flush, false),
            request(5, Read, false),
        ];
        let found = asked(trace.clone(), Durability::Recorded);
        let expected = [
            (0, LatencyClass::Other),
            (1, LatencyClass::CachedSmall),
            (2, LatencyClass::Sync),
            (3, LatencyClass::DurableSmall),
            (4, LatencyClass::Other),
            (5, LatencyClass::Read),
        ];
        assert_eq!(found, expected);
        let all = asked(trace, Durability::All);
        assert!(
            all.iter()
                .all(|(_, class)| *class != LatencyClass::Sync
                    && *class != LatencyClass::CachedSmall)
        );
    }

    #[test]
    fn a_flush_follows_every_interval_in_which_something_was_written() {
        use TraceOp::{Flush, Read, Write};
        let trace = vec![
            request(1, Write, true),
            request(3, Flush, false),
            request(9, Write, false),
            request(12, Read, false),
            request(35, Write, false),
        ];
        let found = asked(trace, Durability::SyncEvery(Nanos::from_millis(10)));
        let expected = [
            (1, LatencyClass::CachedSmall),
            (9, LatencyClass::CachedSmall),
            (10, LatencyClass::Sync),
            (12, LatencyClass::Read),
            (35, LatencyClass::CachedSmall),
            (40, LatencyClass::Sync),
        ];
        assert_eq!(found, expected);
    }
}
