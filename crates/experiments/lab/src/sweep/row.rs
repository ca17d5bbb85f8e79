//! The row of results that a run leaves.

use serde::{Deserialize, Serialize};

use crate::assemble::MISSED;
use crate::replay::{LatencyClass, Outcome, Plan};
use crate::results::Checkpoint;
use crate::stats::{LatencySummary, PERCENTILES, round3};

/// Identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// The trace, or those of a mix.
    pub trace: String,
    /// The drive.
    pub drive: String,
    /// The policy, as `replay --policy` takes it.
    pub policy: String,
    /// The seed.
    pub seed: u64,
}

/// One run. Times are in microseconds unless the name says otherwise; `None` where nothing was
/// measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "columns() documents them, as users see them")]
pub struct Row {
    pub ask: Ask,
    /// Hash of the traces' contents.
    pub trace_content: String,
    pub parameters: String,
    pub drive_write_cache: bool,
    pub durability: String,
    pub rate: f64,
    pub requests: u64,
    pub durable: Figures,
    pub reads: Figures,
    pub stream_mb_s: Option<f64>,
    pub drive_busy_percent: f64,
    pub overloaded: bool,
    pub bursts: bool,
    pub backlog_seconds: f64,
    pub target_busy_percent: Option<f64>,
    pub plain_busy_percent: Option<f64>,
    pub logged_writes: u64,
    pub record_bytes: u64,
    pub log_swaps: u64,
    pub log_fullest_percent: f64,
    pub table_bytes_max: u64,
    pub checkpoint_seconds: Option<f64>,
    pub simulated_seconds: f64,
    /// Latency of all reads and writes at the percentiles 1 to 99, as the paper compares them.
    pub all_us: Vec<f64>,
    /// Emptying the logs afterwards.
    pub checkpoint: Option<Checkpointed>,
    /// Bands that are left to clean, of a shingled drive.
    pub dirty_bands: Option<u64>,
}

/// Emptying the logs, or cleaning the bands of a shingled drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in Checkpoint")]
pub struct Checkpointed {
    pub log_read_seconds: f64,
    pub home_write_seconds: f64,
    pub home_writes: u64,
    pub writes_saved_percent: f64,
    pub sectors_saved_percent: f64,
}

impl From<&Checkpoint> for Checkpointed {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            log_read_seconds: checkpoint.log_read_seconds,
            home_write_seconds: checkpoint.home_write_seconds,
            home_writes: checkpoint.home_writes,
            writes_saved_percent: checkpoint.writes_saved_percent,
            sectors_saved_percent: checkpoint.sectors_saved_percent,
        }
    }
}

/// Wanted utilisation of the plain drive, and its utilisation at the chosen rate, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    pub(super) target: f64,
    pub(super) found: f64,
}

/// Latencies of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "columns() documents them, as users see them")]
pub struct Figures {
    pub count: u64,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

impl From<LatencySummary> for Figures {
    fn from(summary: LatencySummary) -> Self {
        let some = |value: f64| (summary.requests > 0).then_some(value);
        Self {
            count: summary.requests,
            mean: some(summary.mean),
            p50: some(summary.p50),
            p90: some(summary.p90),
            p99: some(summary.p99),
            max: some(summary.max),
        }
    }
}

impl Row {
    /// Why the row's figures do not measure its policy; `None` if they do.
    pub(super) fn fault(&self) -> Option<String> {
        if self.overloaded {
            return Some(format!(
                "the load is more than the drive can do: latency measures backlog (last answer \
                 {} s after the last arrival)",
                self.backlog_seconds
            ));
        }
        let (target, found) = (self.target_busy_percent?, self.plain_busy_percent?);
        ((target - found).abs() > MISSED * 100.0).then(|| {
            format!(
                "no rate makes the plain drive {target:.0} % busy without overloading it at times: \
                 it is {found:.0} % busy"
            )
        })
    }

    /// The row of a finished run.
    #[must_use]
    pub fn of(ask: Ask, plan: &Plan, outcome: &Outcome, aim: Option<Aim>) -> Self {
        let volume = outcome.volume.unwrap_or_default();
        let seconds = outcome.simulated.as_secs_f64();
        let smr = outcome.smr.as_ref();
        let all = outcome.recorder.latencies(&LatencyClass::MOVES_DATA);
        let figures =
            |classes: &[LatencyClass]| outcome.recorder.latencies(classes).summary().into();
        Self {
            ask,
            trace_content: String::new(),
            parameters: outcome.policy.policy.to_string(),
            drive_write_cache: outcome.write_cache,
            durability: plan.pump.durability.to_string(),
            rate: plan.rate,
            requests: outcome.pump.requests,
            durable: figures(&LatencyClass::DURABLE),
            reads: figures(&[LatencyClass::Read]),
            stream_mb_s: outcome.recorder.stream_mb_s().map(round3),
            drive_busy_percent: round3(
                outcome.drive_busy.as_secs_f64() / seconds.max(1e-9) * 100.0,
            ),
            overloaded: outcome.overloaded,
            bursts: outcome.pump.held > 0,
            backlog_seconds: round3(
                outcome.pump.last_completion.since(outcome.pump.last_arrival).as_secs_f64(),
            ),
            target_busy_percent: aim.map(|aim| round3(aim.target * 100.0)),
            plain_busy_percent: aim.map(|aim| round3(aim.found * 100.0)),
            logged_writes: volume.logged_writes,
            record_bytes: volume.record_bytes,
            log_swaps: volume.log_swaps + smr.map_or(0, |smr| smr.log_swaps),
            log_fullest_percent: outcome.occupancy.fullest_percent,
            table_bytes_max: volume
                .mapping_table_bytes_max
                .max(smr.map_or(0, |smr| smr.table_bytes_max)),
            checkpoint_seconds: outcome.checkpoint.as_ref().map(|c| c.simulated_seconds),
            simulated_seconds: round3(seconds),
            all_us: PERCENTILES[..99].iter().map(|&percentile| all.at_us(percentile)).collect(),
            checkpoint: outcome.checkpoint.as_ref().map(Into::into),
            dirty_bands: smr.map(|smr| smr.dirty_bands),
        }
    }
}
