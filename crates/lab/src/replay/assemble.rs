//! From measurements to the figures that outputs show.

use manylogs_block::{Nanos, SECTOR_BYTES};

use super::policies::NamedPolicy;
use super::pump::{Durability, Loop};
use super::recorder::{Class, Recorder};
use super::run::{Outcome, Plan};
use crate::results::{
    Cdf, DriveDetails, HeadSample, LatencyByKind, LoopDetails, OverTime, Overload, Policies,
    PolicyResult, RateDetails, Replay, Speedup, TraceDetails,
};
use crate::stats::{Latencies, PERCENTILES, Percentile, Series, round3};

/// A replay that ended this long after its last arrival ran behind.
const BEHIND: Nanos = Nanos::from_secs(1);
/// ... if that is also this share of the whole.
const BEHIND_SHARE: f64 = 0.01;
const MOVES_DATA: [Class; 3] = [Class::Read, Class::SmallWrite, Class::LargeWrite];
const WRITES: [Class; 2] = [Class::SmallWrite, Class::LargeWrite];

/// What the outputs say about a replay beside its measurements.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The drive profile's name.
    pub drive: String,
    /// Trace files as given.
    pub files: Vec<String>,
    /// What was done to the trace, in words.
    pub transforms: Vec<String>,
    /// How the rate was chosen.
    pub rate: RateDetails,
    /// The command line that repeats the replay.
    pub command: String,
    /// What the reader must know already.
    pub warnings: Vec<String>,
}

/// Puts the results together.
#[must_use]
pub fn assemble(plan: &Plan, setting: Setting, outcomes: &[Outcome]) -> Replay {
    let base = outcomes.iter().find(|outcome| is_nologging(&outcome.policy));
    let policies: Vec<PolicyResult> =
        outcomes.iter().map(|outcome| policy_result(plan, outcome, base)).collect();
    let mut warnings = setting.warnings;
    warnings.extend(warnings_about(&policies));
    let (mode, depth) = match plan.pump.mode {
        Loop::Open { outstanding_max, .. } => ("open", outstanding_max),
        Loop::Closed { depth } => ("closed", depth),
    };
    Replay {
        format: 1,
        seed: plan.seed,
        drive: setting.drive,
        drive_details: DriveDetails {
            model: plan.drive.profile.model.clone(),
            capacity_bytes: plan.drive.profile.geometry.capacity_sectors * SECTOR_BYTES,
            write_cache: plan.drive.write_cache,
        },
        trace: trace_details(plan, setting.files, setting.transforms),
        loop_mode: LoopDetails { mode, depth },
        rate: setting.rate,
        durability: match plan.pump.durability {
            Durability::EveryWrite => "every write is durable (FUA), drive write cache off",
            Durability::AsRecorded => "flags as recorded, drive write cache on",
        },
        small_write_max_bytes: plan.small_write_max.bytes(),
        command: setting.command,
        warnings,
        interrupted: outcomes.iter().any(|outcome| outcome.interrupted),
        policies: Policies(policies),
    }
}

fn is_nologging(policy: &NamedPolicy) -> bool {
    matches!(policy.policy, manylogs::Policy::NoLogging)
}

fn trace_details(plan: &Plan, files: Vec<String>, transforms: Vec<String>) -> TraceDetails {
    let one_pass = *plan.workload.summary();
    let span_seconds = one_pass.span_ns as f64 / 1e9;
    let replayed_seconds = (span_seconds / plan.rate).max(1e-9);
    let bytes = (one_pass.read_bytes + one_pass.written_bytes) as f64;
    TraceDetails {
        files,
        requests: plan.workload.requests(),
        passes: plan.workload.passes(),
        span_seconds: round3(span_seconds),
        offered_requests_per_second: round3(one_pass.requests as f64 / replayed_seconds),
        offered_mb_per_second: round3(bytes / replayed_seconds / 1e6),
        transforms,
        one_pass,
    }
}

fn policy_result(plan: &Plan, outcome: &Outcome, base: Option<&Outcome>) -> PolicyResult {
    let recorder = &outcome.recorder;
    let all = recorder.latencies(&MOVES_DATA);
    let summary = |classes: &[Class]| recorder.latencies(classes).summary();
    let seconds = outcome.simulated.as_secs_f64();
    let wall = outcome.wall.as_secs_f64();
    let volume = outcome.volume.unwrap_or_default();
    let summary_of_trace = plan.workload.summary();
    let bytes_a_request = (summary_of_trace.read_bytes + summary_of_trace.written_bytes) as f64
        / summary_of_trace.requests.max(1) as f64;
    PolicyResult {
        name: outcome.policy.name.clone(),
        parameters: outcome.policy.policy.to_string(),
        requests: outcome.pump.requests,
        latency_us: all.summary(),
        latency_us_by_kind: LatencyByKind {
            reads: summary(&[Class::Read]),
            writes: summary(&WRITES),
            small_writes: summary(&[Class::SmallWrite]),
            large_writes: summary(&[Class::LargeWrite]),
        },
        speedup_over_nologging: base.map(|base| speedup(&base.recorder, recorder)),
        logged_writes: volume.logged_writes,
        logged_bytes: volume.logged_bytes,
        record_bytes: volume.record_bytes,
        write_amplification: (volume.logged_bytes > 0)
            .then(|| round3(volume.record_bytes as f64 / volume.logged_bytes as f64)),
        bypassed_writes: volume.bypassed_writes,
        log_records: volume.records,
        log_swaps: volume.log_swaps,
        mapping_table_bytes_max: volume.mapping_table_bytes_max,
        drive_busy_percent: round3(outcome.drive_busy.as_secs_f64() / seconds.max(1e-9) * 100.0),
        carried_mb_per_second: round3(
            bytes_a_request * outcome.pump.requests as f64 / seconds.max(1e-9) / 1e6,
        ),
        discards_skipped: outcome.pump.discards_skipped,
        overload: overload(outcome),
        checkpoint: outcome.checkpoint.clone(),
        simulated_seconds: round3(seconds),
        wall_seconds: round3(wall),
        requests_per_wall_second: (outcome.pump.requests as f64 / wall.max(1e-9)).round(),
        latency_cdf: cdf(&all),
        latency_over_time: over_time(recorder),
        head: head(outcome),
        log_occupancy: outcome.occupancy.clone(),
    }
}

fn overload(outcome: &Outcome) -> Overload {
    let pump = &outcome.pump;
    Overload {
        overloaded: outcome.is_overloaded(),
        bursts: pump.held > 0,
        backlog_seconds_at_end: round3(pump.last_completion.since(pump.last_arrival).as_secs_f64()),
        held_requests: pump.held,
        held_seconds_max: round3(pump.held_longest.as_secs_f64()),
        stopped: pump.stopped_at_overload,
    }
}

impl Outcome {
    /// Whether latency measures backlog: see [`Overload::overloaded`].
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        let behind = self.pump.last_completion.since(self.pump.last_arrival);
        let share = behind.as_secs_f64() / self.simulated.as_secs_f64().max(1e-9);
        self.pump.stopped_at_overload
            || (behind > BEHIND && share > BEHIND_SHARE)
            || self.median() > BEHIND
    }

    /// Median latency of reads and writes.
    #[must_use]
    pub fn median(&self) -> Nanos {
        let us = self.recorder.latencies(&MOVES_DATA).at_us(Percentile::whole(50));
        Nanos::from_secs_f64(us / 1e6)
    }
}

fn speedup(base: &Recorder, policy: &Recorder) -> Speedup {
    let all = ratios(base, policy, &MOVES_DATA).unwrap_or_default();
    let mean = |classes: &[Class]| {
        ratios(base, policy, classes).map(|ratios| mean_over_percentiles(&ratios))
    };
    Speedup {
        mean_over_percentiles: mean_over_percentiles(&all),
        median_over_percentiles: median_over_percentiles(&all),
        p50: all.get(49).copied().unwrap_or(1.0),
        p90: all.get(89).copied().unwrap_or(1.0),
        p99: all.get(98).copied().unwrap_or(1.0),
        percentiles: PERCENTILES.map(Percentile::as_f64).to_vec(),
        at_percentiles: all,
        reads_mean_over_percentiles: mean(&[Class::Read]),
        writes_mean_over_percentiles: mean(&WRITES),
    }
}

/// Speed-ups at [`PERCENTILES`]; `None` without requests of these classes.
fn ratios(base: &Recorder, policy: &Recorder, classes: &[Class]) -> Option<Vec<f64>> {
    let (base, policy) = (base.latencies(classes), policy.latencies(classes));
    if base.count() == 0 || policy.count() == 0 {
        return None;
    }
    // Half a histogram's unit stands for no latency at all.
    let at = |latencies: &Latencies, p| latencies.at_us(p).max(0.5);
    Some(PERCENTILES.iter().map(|&p| round3(at(&base, p) / at(&policy, p))).collect())
}

fn mean_over_percentiles(ratios: &[f64]) -> f64 {
    let whole = &ratios[..ratios.len().min(99)];
    if whole.is_empty() { 1.0 } else { round3(whole.iter().sum::<f64>() / whole.len() as f64) }
}

fn median_over_percentiles(ratios: &[f64]) -> f64 {
    let mut whole = ratios[..ratios.len().min(99)].to_vec();
    whole.sort_by(f64::total_cmp);
    whole.get(whole.len() / 2).copied().unwrap_or(1.0)
}

fn cdf(latencies: &Latencies) -> Cdf {
    if latencies.count() == 0 {
        return Cdf::default();
    }
    let (latency_us, fraction) = latencies.cdf().into_iter().unzip();
    Cdf { latency_us, fraction }
}

fn over_time(recorder: &Recorder) -> OverTime {
    let (reads, writes) = (recorder.reads_over_time(), recorder.writes_over_time());
    // One of the two may be too coarse for the other's bins: the wider width serves both.
    let width = reads.width().max(writes.width());
    let columns = [reads, writes].map(|series| columns(series, width));
    let bins = columns.iter().map(|(mean, _)| mean.len()).max().unwrap_or(0);
    let [(mut read_mean_us, mut read_max_us), (mut write_mean_us, mut write_max_us)] = columns;
    for column in [&mut read_mean_us, &mut read_max_us, &mut write_mean_us, &mut write_max_us] {
        column.resize(bins, None);
    }
    OverTime {
        seconds: (0..bins).map(|bin| round3(bin as f64 * width.as_secs_f64())).collect(),
        read_mean_us,
        read_max_us,
        write_mean_us,
        write_max_us,
    }
}

type Column = Vec<Option<f64>>;

/// Mean and maximum in microseconds, in bins of `width`.
fn columns(series: &Series, width: Nanos) -> (Column, Column) {
    let merged = manylogs_block::to_usize((width.0 / series.width().0).max(1));
    let sum = |bins: &[crate::stats::SeriesBin]| {
        let count: u64 = bins.iter().map(|bin| bin.count).sum();
        let total: u64 = bins.iter().map(|bin| bin.sum).sum();
        let max = bins.iter().map(|bin| bin.max).max().unwrap_or(0);
        (count > 0).then(|| (round3(total as f64 / count as f64 / 1e3), round3(max as f64 / 1e3)))
    };
    let pairs = series.bins().chunks(merged).map(sum);
    pairs.map(|pair| (pair.map(|p| p.0), pair.map(|p| p.1))).unzip()
}

fn head(outcome: &Outcome) -> HeadSample {
    let points = outcome.head.items();
    HeadSample {
        seconds: points.iter().map(|point| round3(point.at.as_secs_f64())).collect(),
        gigabytes: points
            .iter()
            .map(|point| round3((point.lba.0 * SECTOR_BYTES) as f64 / 1e6) / 1e3)
            .collect(),
        kind: points.iter().map(|point| point.letter()).collect(),
    }
}

fn warnings_about(policies: &[PolicyResult]) -> Vec<String> {
    let mut warnings = Vec::new();
    for policy in policies {
        let overload = &policy.overload;
        if overload.overloaded {
            warnings.push(format!(
                "under {} the trace asks for more than the drive can do: latency measures \
                 backlog (last answer {} s after the last arrival); try --rate auto",
                policy.name, overload.backlog_seconds_at_end
            ));
        } else if overload.bursts {
            warnings.push(format!(
                "under {} bursts ask for more than the drive can do: {} requests waited their \
                 turn, up to {} s",
                policy.name, overload.held_requests, overload.held_seconds_max
            ));
        }
    }
    if let Some(skipped) = policies.iter().map(|p| p.discards_skipped).max().filter(|&n| n > 0) {
        warnings.push(format!("{skipped} discards left out: the drive knows no discard"));
    }
    warnings
}
