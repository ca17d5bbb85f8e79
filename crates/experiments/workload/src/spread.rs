//! Spreads arrivals that a trace knows only to the second.

use std::collections::VecDeque;

use manylogs_block::Time;

use crate::error::TraceError;
use crate::request::{BoxedSource, SourceCounts, TraceRequest, TraceSource};

const SECOND_NS: u64 = 1_000_000_000;
/// Records of one second held at a time (12 MiB).
const BATCH_RECORDS: usize = 1 << 18;

/// Spreads the n consecutive records of a second evenly: the k-th arrives k/n into it.
///
/// Memory is bounded: if a second holds more than 262,144 records, the first 262,144 share its
/// first half, the next 262,144 the first half of the rest, and so on.
pub(crate) struct SpreadSeconds {
    source: BoxedSource,
    batch: VecDeque<TraceRequest>,
    /// The first record of the next second, or of the next batch of this one.
    next: Option<TraceRequest>,
    /// The batch's share of the second, in nanoseconds from its start.
    share: (u64, u64),
    size: u64,
    taken: u64,
    second: Option<Time>,
    error: Option<TraceError>,
}

impl SpreadSeconds {
    pub(crate) fn new(source: BoxedSource) -> Self {
        Self {
            source,
            batch: VecDeque::new(),
            next: None,
            share: (0, 0),
            size: 0,
            taken: 0,
            second: None,
            error: None,
        }
    }

    fn pull(&mut self) -> Option<TraceRequest> {
        match self.source.next_request()? {
            Ok(request) => Some(request),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    fn collect_batch(&mut self) {
        let Some(first) = self.next.take().or_else(|| self.pull()) else { return };
        let continued = self.second == Some(first.at);
        self.batch.clear();
        self.batch.push_back(first);
        while let Some(request) = self.pull() {
            if request.at != first.at || self.batch.len() == BATCH_RECORDS {
                self.next = Some(request);
                break;
            }
            self.batch.push_back(request);
        }
        let start = if continued { self.share.1 } else { 0 };
        let overflows = self.next.is_some_and(|next| next.at == first.at);
        let rest = SECOND_NS - start;
        self.share = (start, start + if overflows { rest / 2 } else { rest });
        self.size = self.batch.len() as u64;
        self.taken = 0;
        self.second = Some(first.at);
    }
}

impl TraceSource for SpreadSeconds {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if self.batch.is_empty() && self.error.is_none() {
            self.collect_batch();
        }
        let Some(mut request) = self.batch.pop_front() else {
            return self.error.take().map(Err);
        };
        // At most 2^18 records and 2^30 ns: the product fits.
        let into = self.share.0 + self.taken * (self.share.1 - self.share.0) / self.size;
        request.at = Time(request.at.0.saturating_add(into));
        self.taken += 1;
        Some(Ok(request))
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
