//! Fitting a large address space onto a smaller drive (`--fit`).
//!
//! Addresses move in chunks of 1 MiB, so that sequential runs and short distances are kept:
//!
//! 1. If the highest address fits, nothing changes.
//! 2. Otherwise the chunks that no read or write touches are taken out and the others moved
//!    together, in order: every request keeps its neighbours, and only distances over untouched
//!    space shrink.
//! 3. If the touched chunks are still too many, chunk number n of step 2 goes to n modulo the
//!    drive's chunks: distances stay, but several chunks share one place, so overwrites become more
//!    frequent.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Lba, Sectors};

use crate::error::TraceError;
use crate::request::{SourceCounts, TraceOp, TraceRequest, TraceSource};

const CHUNK_SECTORS: u64 = 2048;
const WORD_BITS: u64 = 64;

/// How a plan maps addresses: to be reported with every result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum FitRule {
    /// Everything fits as it is.
    AsIs,
    /// Untouched chunks are taken out.
    Compacted,
    /// Untouched chunks are taken out, and the rest is folded by modulo.
    Folded,
}

/// Where each chunk goes; made by reading the trace once.
#[derive(Clone, Debug)]
pub struct FitPlan {
    rule: FitRule,
    capacity: Sectors,
    /// Runs of touched chunks in order: first chunk, and the chunks of all runs before.
    runs: Vec<Run>,
    touched_chunks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    chunks: u64,
    before: u64,
}

impl FitPlan {
    /// Reads `source` to its end and plans how it fits on a drive of `capacity`.
    ///
    /// Addresses of all devices are taken as one space: lay several devices out first.
    /// Memory: one bit for each 1 MiB touched.
    ///
    /// # Errors
    ///
    /// The first error of the source, or if the drive holds no whole 1 MiB chunk.
    pub fn measure(source: &mut impl TraceSource, capacity: Sectors) -> Result<Self, TraceError> {
        if capacity.0 < CHUNK_SECTORS {
            let message = format!("cannot fit a trace onto {} bytes", capacity.bytes());
            return Err(TraceError::Options(message.into()));
        }
        let mut words: BTreeMap<u64, u64> = BTreeMap::new();
        let mut end = 0;
        while let Some(request) = source.next_request() {
            let request = request?;
            end = end.max(request.extent.end().0);
            if request.op.moves_data() && !request.extent.is_empty() {
                let last = (request.extent.end().0 - 1) / CHUNK_SECTORS;
                for chunk in request.extent.start.0 / CHUNK_SECTORS..=last {
                    *words.entry(chunk / WORD_BITS).or_default() |= 1 << (chunk % WORD_BITS);
                }
            }
        }
        let runs = runs_of(&words);
        let touched_chunks = runs.last().map_or(0, |run| run.before + run.chunks);
        let rule = if end <= capacity.0 {
            FitRule::AsIs
        } else if touched_chunks <= capacity.0 / CHUNK_SECTORS {
            FitRule::Compacted
        } else {
            FitRule::Folded
        };
        Ok(Self { rule, capacity, runs, touched_chunks })
    }

    /// The rule that the plan uses.
    #[must_use]
    pub const fn rule(&self) -> FitRule {
        self.rule
    }

    /// Bytes of address space touched, in whole chunks.
    #[must_use]
    pub const fn touched_bytes(&self) -> u64 {
        self.touched_chunks * Sectors(CHUNK_SECTORS).bytes()
    }

    /// Where `lba` goes in the compacted space; untouched space shrinks to a point.
    fn compacted(&self, lba: u64) -> u64 {
        let chunk = lba / CHUNK_SECTORS;
        let after = self.runs.partition_point(|run| run.first <= chunk);
        let Some(run) = after.checked_sub(1).and_then(|index| self.runs.get(index)) else {
            return 0;
        };
        let into = chunk - run.first;
        if into >= run.chunks {
            return (run.before + run.chunks) * CHUNK_SECTORS;
        }
        (run.before + into) * CHUNK_SECTORS + lba % CHUNK_SECTORS
    }

    fn is_touched(&self, lba: u64) -> bool {
        let chunk = lba / CHUNK_SECTORS;
        let after = self.runs.partition_point(|run| run.first <= chunk);
        let run = after.checked_sub(1).and_then(|index| self.runs.get(index));
        run.is_some_and(|run| chunk - run.first < run.chunks)
    }

    /// The extent on the smaller drive; empty if it covers only untouched space.
    fn map(&self, extent: Extent) -> Extent {
        if self.rule == FitRule::AsIs || extent.is_empty() {
            return extent;
        }
        let start = self.compacted(extent.start.0);
        let last = self.compacted(extent.end().0 - 1);
        let touches_last = self.is_touched(extent.end().0 - 1);
        let len = (last + u64::from(touches_last)).saturating_sub(start);
        let room = self.capacity.0 / CHUNK_SECTORS * CHUNK_SECTORS;
        let len = len.min(room);
        // A request that the fold would cut in two at the end is moved down instead.
        let folded = (start % room).min(room - len);
        Extent { start: Lba(folded), len: Sectors(len) }
    }
}

/// The runs of set bits, in order.
fn runs_of(words: &BTreeMap<u64, u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut before = 0;
    for (&word, &bits) in words {
        for bit in (0..WORD_BITS).filter(|bit| bits >> bit & 1 == 1) {
            let chunk = word * WORD_BITS + bit;
            match runs.last_mut() {
                Some(run) if run.first + run.chunks == chunk => run.chunks += 1,
                _ => runs.push(Run { first: chunk, chunks: 1, before }),
            }
            before += 1;
        }
    }
    runs
}

/// A source fitted onto a smaller drive.
#[derive(Debug)]
pub struct Fit<S> {
    source: S,
    plan: FitPlan,
}

impl<S: TraceSource> Fit<S> {
    /// Applies `plan`, which was measured on the same requests.
    pub const fn new(source: S, plan: FitPlan) -> Self {
        Self { source, plan }
    }
}

impl<S: TraceSource> TraceSource for Fit<S> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        loop {
            let request = match self.source.next_request()? {
                Ok(request) => request,
                Err(error) => return Some(Err(error)),
            };
            let extent = self.plan.map(request.extent);
            // A discard of untouched space alone has no counterpart on the smaller drive and is
            // dropped.
            if !extent.is_empty() || request.op == TraceOp::Flush {
                return Some(Ok(TraceRequest { extent, ..request }));
            }
        }
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
