//! The figures of a replay that advice needs: its means, and whether the drive kept up.

use std::time::Duration;

use manylogs_block::Nanos;
use serde::{Deserialize, Serialize};

use crate::replay::{LatencyClass, NamedPolicy, Outcome, Plan, Probe, PumpReport, Recorder};
use crate::results::Occupancy;
use crate::stats::{Sample, StreamMoved, Thinned, Total, Window};

/// A replay in brief, in a form that can be sent to other processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// Whether latency measures backlog.
    pub overloaded: bool,
    /// From the first arrival to the last answer.
    pub simulated_ns: u64,
    /// Time during which the drive worked.
    pub drive_busy_ns: u64,
    /// Median latency of reads and writes.
    pub median_ns: u64,
    /// Times until data was durable.
    pub durable: Total,
    /// Latencies of reads.
    pub reads: Total,
    /// Data moved by streams, and the time.
    pub stream: StreamMoved,
    /// The same figures for each part of the replay, for each seed; empty unless they were asked
    /// for.
    pub parts: Vec<Vec<Part>>,
}

/// A part of a replay: times until data was durable, latencies of reads, and data moved by streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part(Total, Total, StreamMoved);

impl Part {
    const fn of(window: &Window) -> Self {
        Self(window.durable.total(), window.reads.total(), window.stream)
    }

    const fn window(self) -> Window {
        let Self(durable, reads, stream) = self;
        Window { durable: Sample::of_total(durable), reads: Sample::of_total(reads), stream }
    }
}

impl Brief {
    /// The brief of a replay; `parts` says whether to include its parts.
    #[must_use]
    pub fn of(outcome: &Outcome, parts: bool) -> Self {
        let recorder = &outcome.recorder;
        let of_seed = |windows: &Vec<Window>| windows.iter().map(Part::of).collect();
        Self {
            overloaded: outcome.overloaded,
            simulated_ns: outcome.simulated.0,
            drive_busy_ns: outcome.drive_busy.0,
            median_ns: outcome.median().0,
            durable: recorder.latencies(&LatencyClass::DURABLE).total(),
            reads: recorder.latencies(&[LatencyClass::Read]).total(),
            stream: recorder.streamed(),
            parts: recorder.windows().iter().filter(|_| parts).map(of_seed).collect(),
        }
    }

    /// The brief of several seeds together.
    pub(super) fn pooled(briefs: &[Self]) -> Self {
        let mut all = briefs.first().cloned().unwrap_or_default();
        for other in briefs.iter().skip(1) {
            all.overloaded |= other.overloaded;
            all.durable.add(other.durable);
            all.reads.add(other.reads);
            all.stream.add(other.stream);
            all.parts.extend(other.parts.iter().cloned());
        }
        all
    }

    /// The replay as a probe of a search for a rate.
    pub(super) fn probe(&self) -> Probe {
        let Self { simulated_ns, drive_busy_ns, median_ns, overloaded, .. } = *self;
        Probe::of_times([drive_busy_ns, simulated_ns, median_ns].map(Nanos), overloaded)
    }

    /// Mean time until data is durable, or the mean latency of reads if no write had to be durable,
    /// in microseconds.
    pub(super) fn durable_us(&self) -> f64 {
        if self.durable.count > 0 { self.durable.mean_us() } else { self.reads.mean_us() }
    }

    /// The outcome of a replay of `policy` by `plan`, made from this brief. Its means are right;
    /// quantiles, positions of the head and contents of logs are missing.
    pub(super) fn outcome(&self, plan: &Plan, policy: &NamedPolicy) -> Outcome {
        let windows = |parts: &Vec<Part>| parts.iter().map(|part| part.window()).collect();
        let windows = self.parts.iter().map(windows).collect();
        let meant = policy.on(plan.drive.capacity()).unwrap_or_else(|_| policy.policy.clone());
        Outcome {
            policy: NamedPolicy { policy: meant, ..policy.clone() },
            write_cache: plan.drive.under(policy).write_cache,
            recorder: Recorder::of_means(self.durable, self.reads, windows),
            pump: PumpReport::default(),
            simulated: Nanos(self.simulated_ns),
            drive_busy: Nanos(self.drive_busy_ns),
            overloaded: self.overloaded,
            head: Thinned::new(1),
            volume: None,
            occupancy: Occupancy::default(),
            checkpoint: None,
            smr: None,
            wall: Duration::ZERO,
            interrupted: false,
        }
    }
}
