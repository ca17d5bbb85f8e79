//! Latencies and rates of an exercise by kind of request.

use manylogs_block::{Nanos, Request, Sectors};
use serde::Serialize;

use crate::stats::{Latencies, LatencySummary, round3};

/// Reads and writes from this length on, 256 KiB, are those of a stream or of whole files.
const LARGE: Sectors = Sectors(512);

/// Latencies and rate of one kind of request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KindFigures {
    /// Their latencies, in microseconds.
    pub latency_us: LatencySummary,
    /// Mean rate of the data that they moved, in MiB a second.
    pub mib_s: f64,
}

/// The kinds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KindsFigures {
    /// Reads of less than 256 KiB.
    pub small_reads: KindFigures,
    /// Longer ones of this kind.
    pub large_reads: KindFigures,
    /// Writes that are durable when they return.
    pub durable_writes: KindFigures,
    /// Other writes of less than 256 KiB.
    pub small_writes: KindFigures,
    /// Longer ones of this kind.
    pub large_writes: KindFigures,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default)]
struct Kind {
    latencies: Latencies,
    bytes: u64,
}

impl Kind {
    fn figures(&self, span: Nanos) -> KindFigures {
        let mib = self.bytes as f64 / (1 << 20) as f64;
        let mib_s = round3(mib / span.as_secs_f64().max(1e-9));
        KindFigures { latency_us: self.latencies.summary(), mib_s }
    }
}

/// Counts requests as they end.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds {
    small_reads: Kind,
    large_reads: Kind,
    durable_writes: Kind,
    small_writes: Kind,
    large_writes: Kind,
}

/// The kind of a request, with its length.
#[derive(Clone, Copy, Debug)]
pub(super) enum KindOf {
    Read(Sectors),
    Write(Sectors),
    Durable(Sectors),
}

impl KindOf {
    /// The kind of `request`; `None` if it moves no data.
    pub(super) fn request(request: &Request) -> Option<Self> {
        match request {
            Request::Read { extent } => Some(Self::Read(extent.len)),
            Request::Write { extent, fua: true, .. } => Some(Self::Durable(extent.len)),
            Request::Write { extent, .. } => Some(Self::Write(extent.len)),
            Request::WriteZeroes { .. } | Request::Flush | Request::Discard { .. } => None,
        }
    }
}

impl Kinds {
    pub(super) fn ended(&mut self, of: KindOf, latency: Nanos) {
        let (kind, len) = match of {
            KindOf::Read(len) if len < LARGE => (&mut self.small_reads, len),
            KindOf::Read(len) => (&mut self.large_reads, len),
            KindOf::Durable(len) => (&mut self.durable_writes, len),
            KindOf::Write(len) if len < LARGE => (&mut self.small_writes, len),
            KindOf::Write(len) => (&mut self.large_writes, len),
        };
        kind.latencies.record(latency);
        kind.bytes += len.bytes();
    }

    /// The figures of each kind, for a run of this length.
    pub(super) fn figures(&self, span: Nanos) -> KindsFigures {
        KindsFigures {
            small_reads: self.small_reads.figures(span),
            large_reads: self.large_reads.figures(span),
            durable_writes: self.durable_writes.figures(span),
            small_writes: self.small_writes.figures(span),
            large_writes: self.large_writes.figures(span),
        }
    }
}

impl KindsFigures {
    /// Each kind with its name for people.
    pub(super) const fn named(&self) -> [(&'static str, &KindFigures); 5] {
        [
            ("small reads", &self.small_reads),
            ("large reads", &self.large_reads),
            ("durable writes", &self.durable_writes),
            ("small writes", &self.small_writes),
            ("large writes", &self.large_writes),
        ]
    }
}
