//! Merges sources by time, holding one request of each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manylogs_block::Time;

use crate::error::TraceError;
use crate::request::{BoxedSource, SourceCounts, TraceRequest, TraceSource};

/// Several sources as one, by time; at equal times the earlier source comes first.
pub struct Merge {
    sources: Vec<BoxedSource>,
    next: Vec<Option<TraceRequest>>,
    heap: BinaryHeap<Reverse<(Time, usize)>>,
    error: Option<TraceError>,
}

impl std::fmt::Debug for Merge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl Merge {
    /// Merges `sources`, whose times count from the same instant.
    ///
    /// # Errors
    ///
    /// If the first request of a source cannot be read.
    pub fn new(sources: Vec<BoxedSource>) -> Result<Self, TraceError> {
        let next = vec![None; sources.len()];
        let mut merge = Self { sources, next, heap: BinaryHeap::new(), error: None };
        for index in 0..merge.sources.len() {
            merge.refill(index);
        }
        merge.error.take().map_or(Ok(merge), Err)
    }

    fn refill(&mut self, index: usize) {
        match self.sources[index].next_request() {
            Some(Ok(request)) => {
                self.next[index] = Some(request);
                self.heap.push(Reverse((request.at, index)));
            }
            Some(Err(error)) => self.error = Some(error),
            None => {}
        }
    }
}

impl TraceSource for Merge {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if let Some(error) = self.error.take() {
            self.heap.clear();
            return Some(Err(error));
        }
        let Reverse((_, index)) = self.heap.pop()?;
        let request = self.next[index].take()?;
        self.refill(index);
        Some(Ok(request))
    }

    fn counts(&self) -> SourceCounts {
        let counts = self.sources.iter().map(|source| source.counts());
        counts.fold(SourceCounts::default(), SourceCounts::plus)
    }

    fn progress(&self) -> Option<f64> {
        let known: Vec<f64> = self.sources.iter().filter_map(|s| s.progress()).collect();
        if known.is_empty() {
            return None;
        }
        Some(known.iter().sum::<f64>() / known.len() as f64)
    }
}
