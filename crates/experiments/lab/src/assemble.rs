//! Turns measurements into the figures of JSON, table and report.

use manylogs_block::{Nanos, SECTOR_BYTES, Sectors};

mod plots;

use crate::replay::{Durability, LatencyClass, Loop, Outcome, Plan};
use crate::results::{
    DriveDetails, DurabilityDetails, FORMAT, LatencyByKind, LoopDetails, Overload, Policies,
    PolicyResult, RateDetails, Replay, TraceDetails, Verdict,
};
use crate::stats::{PERCENTILES, Percentile, compare, round3};
use crate::verdict::verdict;
use plots::{cdf, head, over_time};

/// A replay fell behind if it ended this long after its last arrival ...
const BEHIND: Nanos = Nanos::from_secs(1);
/// ... and if that time is this share of the whole replay.
const BEHIND_SHARE: f64 = 0.01;
/// A utilisation that misses its target by this much leads to a warning.
pub(crate) const MISSED: f64 = 0.05;
/// A load that uses less than this share of a drive leads to a warning: its seeks are shorter than
/// on a full drive.
const CORNER: f64 = 0.05;

/// Description of a replay that outputs show beside its measurements.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The drive profile's name.
    pub drive: String,
    /// Trace files as the user gave them.
    pub files: Vec<String>,
    /// What was done to the trace, in words.
    pub transforms: Vec<String>,
    /// The way in which the rate was chosen.
    pub rate: RateDetails,
    /// Whether the user gave the durability. Otherwise it follows from the trace.
    pub durability_given: bool,
    /// The command line that repeats the replay.
    pub command: String,
    /// Warnings that were found before the replay.
    pub warnings: Vec<String>,
}

/// Assembles the results.
#[must_use]
pub fn assemble(plan: &Plan, setting: Setting, outcomes: &[Outcome]) -> Replay {
    let base = baseline(outcomes);
    let policies: Vec<PolicyResult> =
        outcomes.iter().map(|outcome| policy_result(plan, outcome, base)).collect();
    let mut warnings = warnings_about(&policies);
    warnings.extend(missed_rate(&setting.rate));
    warnings.extend(corner(plan));
    warnings.extend(setting.warnings);
    let (mode, depth) = match plan.pump.mode {
        Loop::Open { outstanding_max, .. } => ("open", outstanding_max),
        Loop::Closed { depth } => ("closed", depth),
    };
    let durability = plan.pump.durability;
    let link = plan.drive.options(plan.seed).link;
    let mut replay = Replay {
        format: FORMAT,
        warnings,
        verdict: Verdict::default(),
        seed: plan.seed,
        seeds: plan.seeds,
        drive: setting.drive,
        drive_details: DriveDetails {
            model: plan.drive.profile.model.clone(),
            capacity_bytes: plan.drive.capacity().bytes(),
            link: link.kind.name(),
            fua: link.fua,
        },
        trace: trace_details(plan, setting.files, setting.transforms),
        loop_mode: LoopDetails { mode, depth },
        rate: setting.rate,
        durability: DurabilityDetails {
            mode: durability.to_string(),
            given: setting.durability_given,
            text: durability.text(),
        },
        small_write_max_bytes: plan.pump.small_write_max.bytes(),
        command: setting.command,
        baseline: base.map(|base| base.policy.name.clone()),
        interrupted: outcomes.iter().any(|outcome| outcome.interrupted),
        policies: Policies(policies),
    };
    replay.warnings.extend(too_few(&replay, durability));
    replay.verdict = verdict(&replay, outcomes);
    replay
}

/// The baseline: the plain drive with its cache on or off, whichever makes data durable sooner.
fn baseline(outcomes: &[Outcome]) -> Option<&Outcome> {
    let mean = |outcome: &Outcome| {
        let durable = outcome.recorder.latencies(&LatencyClass::DURABLE);
        let latencies = if durable.count() > 0 {
            durable
        } else {
            outcome.recorder.latencies(&[LatencyClass::Read])
        };
        latencies.mean_us()
    };
    let plain = outcomes.iter().filter(|outcome| outcome.policy.is_plain());
    plain.min_by(|a, b| mean(a).total_cmp(&mean(b)))
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
    let seconds = outcome.simulated.as_secs_f64();
    let volume = outcome.volume.unwrap_or_default();
    let summary_of_trace = plan.workload.summary();
    let bytes_a_request = (summary_of_trace.read_bytes + summary_of_trace.written_bytes) as f64
        / summary_of_trace.requests.max(1) as f64;
    let all = recorder.latencies(&LatencyClass::MOVES_DATA);
    PolicyResult {
        name: outcome.policy.name.clone(),
        parameters: outcome.policy.parameters(),
        drive_write_cache: outcome.write_cache,
        requests: outcome.pump.requests,
        latency_us: by_kind(outcome),
        stream_mb_s: recorder.stream_mb_s().map(round3),
        gain: base.map(|base| compare(base.recorder.windows(), recorder.windows(), plan.seed)),
        logged_writes: volume.logged_writes,
        logged_bytes: volume.logged_bytes,
        record_bytes: volume.record_bytes,
        write_amplification: (volume.logged_bytes > 0)
            .then(|| round3(volume.record_bytes as f64 / volume.logged_bytes as f64)),
        bypassed_writes: volume.bypassed_writes,
        log_records: volume.records,
        log_swaps: outcome.smr.as_ref().map_or(0, |smr| smr.log_swaps) + volume.log_swaps,
        mapping_table_bytes_max: volume.mapping_table_bytes_max,
        drive_busy_percent: round3(outcome.drive_busy.as_secs_f64() / seconds.max(1e-9) * 100.0),
        carried_mb_per_second: round3(
            bytes_a_request * outcome.pump.requests as f64 / seconds.max(1e-9) / 1e6,
        ),
        discards_skipped: outcome.pump.discards_skipped,
        overload: overload(outcome),
        checkpoint: outcome.checkpoint.clone(),
        simulated_seconds: round3(seconds),
        all_at_percentiles_us: PERCENTILES[..99].iter().map(|&p| all.at_us(p)).collect(),
        durable_cdf: cdf(&recorder.latencies(&LatencyClass::DURABLE)),
        reads_cdf: cdf(&recorder.latencies(&[LatencyClass::Read])),
        latency_over_time: over_time(recorder),
        head: head(outcome),
        log_occupancy: outcome.occupancy.clone(),
        smr: outcome.smr.clone(),
    }
}

fn by_kind(outcome: &Outcome) -> LatencyByKind {
    let summary = |classes: &[LatencyClass]| outcome.recorder.latencies(classes).summary();
    LatencyByKind {
        durable: summary(&LatencyClass::DURABLE),
        durable_small_writes: summary(&[LatencyClass::DurableSmall]),
        durable_large_writes: summary(&[LatencyClass::DurableLarge]),
        syncs: summary(&[LatencyClass::Sync]),
        reads: summary(&[LatencyClass::Read]),
        cached_writes: summary(&LatencyClass::CACHED),
    }
}

fn overload(outcome: &Outcome) -> Overload {
    let pump = &outcome.pump;
    Overload {
        overloaded: outcome.overloaded,
        bursts: pump.held > 0,
        backlog_seconds_at_end: round3(pump.last_completion.since(pump.last_arrival).as_secs_f64()),
        held_requests: pump.held,
        held_seconds_max: round3(pump.held_longest.as_secs_f64()),
        stopped: pump.stopped_at_overload,
    }
}

impl Outcome {
    /// Whether latency measures backlog: see [`Overload::overloaded`].
    pub(super) fn is_overloaded(&self) -> bool {
        let behind = self.pump.last_completion.since(self.pump.last_arrival);
        let share = behind.as_secs_f64() / self.simulated.as_secs_f64().max(1e-9);
        self.pump.stopped_at_overload
            || (behind > BEHIND && share > BEHIND_SHARE)
            || self.median() > BEHIND
    }

    /// Median latency of reads and writes.
    #[must_use]
    pub fn median(&self) -> Nanos {
        let us = self.recorder.latencies(&LatencyClass::MOVES_DATA).at_us(Percentile::whole(50));
        Nanos::from_secs_f64(us / 1e6)
    }
}

fn missed_rate(rate: &RateDetails) -> Option<String> {
    let (target, found) = (rate.target_utilisation?, rate.utilisation?);
    ((target - found).abs() > MISSED).then(|| {
        format!(
            "no rate makes the plain drive {:.0} % busy without overloading it at times: it is \
             {:.0} % busy in this replay",
            target * 100.0,
            found * 100.0
        )
    })
}

fn corner(plan: &Plan) -> Option<String> {
    let end = Sectors(plan.workload.summary().end_sector);
    let capacity = plan.drive.capacity();
    ((end.0 as f64) < CORNER * capacity.0 as f64).then(|| {
        format!(
            "the load touches only the first {:.1} GB of a drive of {:.0} GB: the head's ways are \
             short, and longer on a drive that is full",
            (end.0 * SECTOR_BYTES) as f64 / 1e9,
            (capacity.0 * SECTOR_BYTES) as f64 / 1e9
        )
    })
}

fn too_few(replay: &Replay, durability: Durability) -> Option<String> {
    let base = replay.base()?;
    let judged = base.gain.is_some_and(|gain| gain.durable_mean.is_some());
    (!judged).then(|| {
        format!(
            "too few durable writes to judge: {} in {} replays, durability `{durability}`",
            base.latency_us.durable.requests, replay.seeds
        )
    })
}

fn warnings_about(policies: &[PolicyResult]) -> Vec<String> {
    let most = |values: &dyn Fn(&Overload) -> f64, of: &[&PolicyResult]| {
        of.iter().map(|policy| values(&policy.overload)).fold(0.0, f64::max)
    };
    let names =
        |of: &[&PolicyResult]| of.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut warnings = Vec::new();
    let (over, rest): (Vec<_>, Vec<_>) =
        policies.iter().partition(|policy| policy.overload.overloaded);
    if !over.is_empty() {
        warnings.push(format!(
            "under {} the trace asks for more than the drive can do: latency measures backlog \
             (last answer up to {} s after the last arrival); try --rate auto",
            names(&over),
            most(&|overload| overload.backlog_seconds_at_end, &over)
        ));
    }
    let bursts: Vec<_> = rest.into_iter().filter(|policy| policy.overload.bursts).collect();
    if !bursts.is_empty() {
        warnings.push(format!(
            "under {} bursts ask for more than the drive can do: requests waited their turn, up \
             to {} s",
            names(&bursts),
            most(&|overload| overload.held_seconds_max, &bursts)
        ));
    }
    if let Some(skipped) = policies.iter().map(|p| p.discards_skipped).max().filter(|&n| n > 0) {
        warnings.push(format!("{skipped} discards left out: the drive knows no discard"));
    }
    warnings
}
