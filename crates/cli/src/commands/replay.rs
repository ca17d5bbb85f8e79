//! `manylogs replay`: one trace, one drive, several policies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_block::Sectors;
use manylogs_lab::prepare::{PrepareError, TraceSpec, prepare};
use manylogs_lab::replay::{
    Control, DriveSettings, Durability, Loop, NamedPolicy, Outcome, Plan, PumpSettings,
    QueueSettings, ReplayError, Setting, Workload, assemble, exported_capacity, find_rate,
    parse_policies, run_all,
};
use manylogs_lab::results::{RateDetails, Replay};
use manylogs_lab::{report, table};

use super::{command_line, trace_failure};
use crate::args::{LoopArg, OverloadArg, ReplayArgs};
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Progress;
use crate::units::Rate;

/// Writes up to this size count as small when no policy says otherwise: the paper's threshold.
const SMALL_WRITE: Sectors = Sectors(512);

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let policies = parse_policies(&args.policy).map_err(Failure::input)?;
    let drive = DriveSettings {
        profile: Arc::new(super::drive(&args.drive)?),
        write_cache: args.recorded_durability,
        queue: QueueSettings::default(),
    };
    let outputs = Outputs::reserve(args)?;
    let (workload, transforms) = workload(args, &drive, &policies)?;
    let mut plan = plan(args, drive, workload, &policies);
    let rate = choose_rate(args, &mut plan)?;
    let outcomes = replay(args, &plan, &policies)?;
    let (finished, unfinished): (Vec<Outcome>, Vec<Outcome>) =
        outcomes.into_iter().partition(|outcome| !outcome.interrupted);
    let mut warnings = dropped_by_reader(&plan);
    warnings.extend(unfinished.iter().map(|outcome| {
        format!(
            "{} was interrupted after {} requests and is left out",
            outcome.policy.name, outcome.pump.requests
        )
    }));
    let setting = Setting {
        drive: plan.drive.profile.name.clone(),
        files: args.traces.iter().map(|file| file.display().to_string()).collect(),
        transforms,
        rate,
        command: command_line(std::env::args()),
        warnings,
    };
    let mut result = assemble(&plan, setting, &finished);
    result.interrupted = !unfinished.is_empty();
    outputs.write(&result)?;
    print(&summary(&result, &outputs))?;
    if result.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The files that the replay writes.
struct Outputs {
    report: Option<Output>,
    json: Option<Output>,
}

impl Outputs {
    fn reserve(args: &ReplayArgs) -> Result<Self, Failure> {
        let reserve = |path: &Option<_>| -> Result<Option<Output>, Failure> {
            path.as_deref().map(Output::reserve).transpose()
        };
        Ok(Self { report: reserve(&args.report)?, json: reserve(&args.json)? })
    }

    fn write(&self, result: &Replay) -> Result<(), Failure> {
        if let Some(output) = &self.report {
            output.write(report::html(result).map_err(Failure::failed)?.as_bytes())?;
        }
        if let Some(output) = &self.json {
            output.write((result.to_json().map_err(Failure::failed)? + "\n").as_bytes())?;
        }
        Ok(())
    }
}

fn workload(
    args: &ReplayArgs,
    drive: &DriveSettings,
    policies: &[NamedPolicy],
) -> Result<(Workload, Vec<String>), Failure> {
    let mut capacity = Sectors(u64::MAX);
    for named in policies {
        let exported = exported_capacity(drive, &named.policy).map_err(|error| {
            Failure::input(format!("{} does not work on {}: {error}", named.name, args.drive))
        })?;
        capacity = capacity.min(exported);
    }
    let spec = TraceSpec {
        files: args.traces.clone(),
        open: args.open.options()?,
        window: args.change.window.map(Into::into),
        limit: args.change.limit,
        seed: args.change.seed,
    };
    let prepared = prepare(&spec, capacity, args.fit).map_err(|error| match error {
        PrepareError::Trace(error) => trace_failure(&error),
        other => Failure::input(other),
    })?;
    let workload = Workload::measure(prepared.open).map_err(|error| trace_failure(&error))?;
    if workload.requests() == 0 {
        return Err(Failure::input("no request is left of the trace: choose another window"));
    }
    Ok((workload.repeated(args.repeat), prepared.transforms))
}

fn plan(
    args: &ReplayArgs,
    drive: DriveSettings,
    workload: Workload,
    policies: &[NamedPolicy],
) -> Plan {
    let mode = match args.loop_mode {
        LoopArg::Open => Loop::Open {
            outstanding_max: args.outstanding,
            stop_at_overload: args.on_overload == OverloadArg::Stop,
        },
        LoopArg::Closed => Loop::Closed { depth: args.depth },
    };
    let durability =
        if args.recorded_durability { Durability::AsRecorded } else { Durability::EveryWrite };
    let largest = policies.iter().filter_map(NamedPolicy::threshold).max();
    Plan {
        workload,
        drive,
        rate: 1.0,
        pump: PumpSettings { mode, durability },
        small_write_max: args.small.or(largest).unwrap_or(SMALL_WRITE),
        checkpoint_after: !args.no_checkpoint,
        seed: args.change.seed,
    }
}

fn choose_rate(args: &ReplayArgs, plan: &mut Plan) -> Result<RateDetails, Failure> {
    let details = match args.rate {
        Rate::Factor(factor) => RateDetails {
            factor,
            chosen: if factor == 1.0 { "as recorded" } else { "given" },
            target_utilisation: None,
        },
        Rate::Auto => {
            let probe = Plan {
                pump: PumpSettings { mode: OPEN, ..plan.pump },
                workload: plan.workload.clone().repeated(1),
                ..plan.clone()
            };
            let found = find_rate(&probe, args.utilisation, &Arc::new(Control::default()))
                .map_err(|error| replay_failure(&error))?;
            RateDetails {
                factor: found.factor,
                chosen: "auto",
                target_utilisation: Some(args.utilisation),
            }
        }
    };
    plan.rate = details.factor;
    Ok(details)
}

const OPEN: Loop = Loop::Open { outstanding_max: 1024, stop_at_overload: false };

fn replay(
    args: &ReplayArgs,
    plan: &Plan,
    policies: &[NamedPolicy],
) -> Result<Vec<Outcome>, Failure> {
    let controls: Vec<Arc<Control>> = policies.iter().map(|_| Arc::default()).collect();
    let stop = controls.clone();
    ctrlc::set_handler(move || {
        stop.iter().for_each(|control| control.stop.store(true, Ordering::Relaxed));
    })
    .map_err(|error| Failure::failed(format!("cannot watch for Ctrl-C: {error}")))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, manylogs_block::to_usize);
    let names: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
    let progress = Progress::show(&names, &controls, plan.workload.requests());
    let results = run_all(plan, policies, &controls, threads);
    drop(progress);
    let failed = |error: ReplayError| replay_failure(&error);
    results.into_iter().map(|result| result.map_err(failed)).collect()
}

fn replay_failure(error: &ReplayError) -> Failure {
    match error {
        ReplayError::Trace(error) => trace_failure(error),
        ReplayError::Volume { .. } => Failure::input(error),
        other => Failure::failed(other),
    }
}

fn dropped_by_reader(plan: &Plan) -> Vec<String> {
    let dropped = plan.workload.summary().dropped;
    let kinds = [
        (dropped.skipped, "malformed records passed over"),
        (dropped.late, "records out of order, moved to the time of the one before"),
        (dropped.echoes, "records dropped as echoes of an earlier one"),
        (dropped.empty, "reads and writes of no bytes dropped"),
        (dropped.lost, "events lost by the recorder"),
    ];
    let told = kinds.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("trace: {count} {what}")).collect()
}

fn summary(result: &Replay, outputs: &Outputs) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} requests on {}, {} loop, {} times the recorded rate ({}), seed {}\n{}\n",
        result.trace.requests,
        result.drive,
        result.loop_mode.mode,
        result.rate.factor,
        result.rate.chosen,
        result.seed,
        result.durability,
    );
    out.push_str(&table::text(result));
    out.push('\n');
    result.warnings.iter().for_each(|warning| _ = writeln!(out, "warning: {warning}"));
    let found = report::headline(result);
    let _ = writeln!(out, "{}", found.verdict);
    for policy in &result.policies.0 {
        let _ = writeln!(
            out,
            "{}: {} simulated s in {} s, {} requests/s",
            policy.name,
            policy.simulated_seconds,
            policy.wall_seconds,
            policy.requests_per_wall_second
        );
    }
    if let Some(report) = &outputs.report {
        let _ = writeln!(out, "report: {}", report.path().display());
    }
    if let Some(json) = &outputs.json {
        let _ = writeln!(out, "figures: {}", json.path().display());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_survives_a_shell() {
        let args = ["/usr/bin/manylogs", "replay", "my trace", "it's", "--rate=2x"];
        let line = command_line(args.iter().map(|&arg| arg.to_owned()));
        assert_eq!(line, "manylogs replay 'my trace' 'it'\\''s' --rate=2x");
    }
}
