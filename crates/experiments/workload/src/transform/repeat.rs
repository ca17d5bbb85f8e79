//! A trace several times over.

use manylogs_block::{Nanos, Time};

use crate::cache::RequestCache;
use crate::error::TraceError;
use crate::request::{BoxedSource, SourceCounts, TraceRequest, TraceSource};

/// Where requests of the current pass come from.
enum Pass {
    /// From the source, which is being cached meanwhile if it is small enough.
    Reading(BoxedSource),
    /// From the cache, at this index.
    Cached(usize),
    Done,
}

/// A trace repeated: each pass begins one mean gap after the last request of the one before.
///
/// Small traces (up to 2 million requests) are decoded once and kept in memory; larger ones
/// are opened again for each pass.
pub struct Repeat<F> {
    reopen: F,
    passes_left: u64,
    pass: Pass,
    /// None, if there is one pass only.
    cache: Option<RequestCache>,
    /// Requests of the current pass so far, and the last one's time within it.
    in_pass: (u64, Time),
    shift: Nanos,
    counts: SourceCounts,
    passes: u64,
}

impl<F> std::fmt::Debug for Repeat<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passes_left, passes, shift, .. } = self;
        f.debug_struct("Repeat")
            .field("passes", passes)
            .field("passes_left", passes_left)
            .field("shift", shift)
            .finish_non_exhaustive()
    }
}

impl<F> Repeat<F>
where
    F: FnMut() -> Result<BoxedSource, TraceError>,
{
    /// Repeats `times` times the trace that `reopen` opens.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn new(mut reopen: F, times: u64) -> Result<Self, TraceError> {
        let pass = if times == 0 { Pass::Done } else { Pass::Reading(reopen()?) };
        Ok(Self {
            reopen,
            passes_left: times.saturating_sub(1),
            pass,
            cache: (times > 1).then(RequestCache::default),
            in_pass: (0, Time(0)),
            shift: Nanos(0),
            counts: SourceCounts::default(),
            passes: times,
        })
    }

    /// Begins the next pass, if there is one to begin.
    fn next_pass(&mut self) -> Result<(), TraceError> {
        let (requests, last) = self.in_pass;
        if let Pass::Reading(source) = &self.pass {
            self.counts = self.counts.plus(source.counts());
        }
        self.pass = Pass::Done;
        if self.passes_left == 0 || requests == 0 {
            return Ok(());
        }
        self.passes_left -= 1;
        let mean_gap = (last.0 / (requests - 1).max(1)).max(1);
        self.shift += Nanos(last.0.saturating_add(mean_gap));
        self.in_pass = (0, Time(0));
        self.pass = match &self.cache {
            Some(cache) if cache.is_complete() => Pass::Cached(0),
            _ => Pass::Reading((self.reopen)()?),
        };
        Ok(())
    }

    /// The next request of the current pass, on the pass's own clock.
    fn next_in_pass(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        match &mut self.pass {
            Pass::Cached(index) => {
                let request = self.cache.as_ref()?.get(*index)?;
                *index += 1;
                Some(Ok(request))
            }
            Pass::Reading(source) => {
                let next = source.next_request()?;
                if let (Ok(request), Some(cache)) = (&next, &mut self.cache) {
                    cache.push(request);
                }
                Some(next)
            }
            Pass::Done => None,
        }
    }
}

impl<F> TraceSource for Repeat<F>
where
    F: FnMut() -> Result<BoxedSource, TraceError>,
{
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        loop {
            match self.next_in_pass() {
                Some(Ok(mut request)) => {
                    self.in_pass = (self.in_pass.0 + 1, request.at);
                    request.at = request.at + self.shift;
                    return Some(Ok(request));
                }
                Some(Err(error)) => {
                    self.pass = Pass::Done;
                    return Some(Err(error));
                }
                None if matches!(self.pass, Pass::Done) => return None,
                None => {
                    if let Err(error) = self.next_pass() {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    fn counts(&self) -> SourceCounts {
        match &self.pass {
            Pass::Reading(source) => self.counts.plus(source.counts()),
            Pass::Cached(_) | Pass::Done => self.counts,
        }
    }

    fn progress(&self) -> Option<f64> {
        let begun = self.passes - self.passes_left;
        let within = match &self.pass {
            Pass::Reading(source) => source.progress()?,
            Pass::Cached(index) => {
                let cached = self.cache.as_ref().map_or(0, RequestCache::len);
                *index as f64 / cached.max(1) as f64
            }
            Pass::Done => 1.0,
        };
        Some((begun.saturating_sub(1) as f64 + within) / self.passes.max(1) as f64)
    }
}
