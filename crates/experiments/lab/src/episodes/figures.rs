//! What a run of an episode gave.

use manylogs_block::Nanos;
use manylogs_everest::OffloadFigures;
use serde::Serialize;

use super::generate::DRIVES;
use crate::stats::{Latencies, Percentile, round3};

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EpisodeFigures {
    /// Requests to the busy volume.
    pub requests: u64,
    /// Their mean latency.
    pub mean_ms: f64,
    /// The latency that 99 per cent do not exceed.
    pub p99_ms: f64,
    /// Mean latency of its reads.
    pub reads_mean_ms: f64,
    /// 99 per cent of these do not exceed this.
    pub reads_p99_ms: f64,
    /// Mean latency of its writes.
    pub writes_mean_ms: f64,
    /// 99 per cent of these do not exceed this.
    pub writes_p99_ms: f64,
    /// Mean latency of the lenders' own requests.
    pub lenders_mean_ms: f64,
    /// 99 per cent of these do not exceed this.
    pub lenders_p99_ms: f64,
    /// Writes that went to stores, per cent.
    pub offloaded_percent: f64,
    /// The most that stores held, of the four drives that a volume has in the paper.
    pub held_max_mb: f64,
    /// The mean of that over the episode.
    pub held_mean_mb: f64,
    /// Time from the end of the last burst until everything was home.
    pub home_after_s: f64,
}

/// What stores held at a time of a run, of the four drives that a volume has in the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldAt {
    /// Since the episode began.
    pub since: Nanos,
    /// Megabytes.
    pub mb: f64,
}

/// Latencies of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Waited {
    pub(super) reads: Latencies,
    pub(super) writes: Latencies,
    pub(super) lenders: Latencies,
}

/// Megabytes of four drives such as the one of which this is.
pub(super) fn of_volume_mb(figures: &OffloadFigures) -> f64 {
    round3(DRIVES as f64 * figures.held.bytes() as f64 / 1e6)
}

impl Waited {
    /// The figures of a run whose stores held `held` over time.
    pub(super) fn figures(
        &self,
        home_after: Nanos,
        did: OffloadFigures,
        held: &[HeldAt],
    ) -> EpisodeFigures {
        let Self { reads, writes, lenders } = self;
        let mut all = reads.clone();
        all.add(writes);
        let ms = |us: f64| round3(us / 1e3);
        let mean = |of: &Latencies| ms(of.mean_us());
        let p99 = |of: &Latencies| ms(of.at_us(Percentile::whole(99)));
        let writes_sent = (did.offloaded + did.home).max(1);
        let held_mb = held.iter().fold(0.0, |sum, at| sum + at.mb);
        let held_max = OffloadFigures { held: did.held_max, ..did };
        EpisodeFigures {
            requests: all.count(),
            mean_ms: mean(&all),
            p99_ms: p99(&all),
            reads_mean_ms: mean(reads),
            reads_p99_ms: p99(reads),
            writes_mean_ms: mean(writes),
            writes_p99_ms: p99(writes),
            lenders_mean_ms: mean(lenders),
            lenders_p99_ms: p99(lenders),
            offloaded_percent: round3(100.0 * did.offloaded as f64 / writes_sent as f64),
            held_max_mb: of_volume_mb(&held_max),
            held_mean_mb: round3(held_mb / held.len().max(1) as f64),
            home_after_s: round3(home_after.as_secs_f64()),
        }
    }
}
