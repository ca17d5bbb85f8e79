//! `manylogs replay`: one trace, one drive, several policies.

use std::sync::Arc;

use manylogs_lab::load::Load;
use manylogs_lab::replay::{Loop, NamedPolicy, Outcome, Plan, Progress, parse_policies, run_all};
use manylogs_lab::results::Replay;
use manylogs_lab::{report, table};

use super::load::{drive, load_failure, replay_failure, say, stop_on_ctrl_c, this_command};
use crate::args::lab::{LoadArgs, LoopArg, OverloadArg, ReplayArgs};
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Bars;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let given = parse_policies(&args.policy).map_err(Failure::input)?;
    let outputs = Outputs::reserve(&args.load)?;
    let (profile, options) = (drive(&args.load)?, args.load.options()?);
    let (load, policies) =
        Load::compared(profile, &options, given).map_err(|e| load_failure(&e))?;
    say(&load);
    let mut plan = plan(args, &load, &policies);
    let rate = load.choose_rate(&mut plan, &Arc::default()).map_err(|e| replay_failure(&e))?;
    let outcomes = replay(args, &plan, &policies)?;
    let (result, finished) = load.result(&plan, rate, &this_command(), outcomes);
    outputs.write(&result)?;
    print(&(summary(&result, &outputs) + &speed(&finished)))?;
    if result.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The files that the replay writes.
struct Outputs {
    report: Option<Output>,
    json: Option<Output>,
}

impl Outputs {
    fn reserve(args: &LoadArgs) -> Result<Self, Failure> {
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

fn plan(args: &ReplayArgs, load: &Load, policies: &[NamedPolicy]) -> Plan {
    let mut plan = load.plan(policies);
    plan.pump.mode = match args.loop_mode {
        LoopArg::Open => Loop::Open {
            outstanding_max: args.outstanding,
            stop_at_overload: args.on_overload == OverloadArg::Stop,
        },
        LoopArg::Closed => Loop::Closed { depth: args.depth },
    };
    plan.pump.small_write_max = args.small.unwrap_or(plan.pump.small_write_max);
    plan.checkpoint_after = !args.no_checkpoint;
    plan
}

fn replay(
    args: &ReplayArgs,
    plan: &Plan,
    policies: &[NamedPolicy],
) -> Result<Vec<Outcome>, Failure> {
    let progresses: Vec<Arc<Progress>> = policies.iter().map(|_| Arc::default()).collect();
    stop_on_ctrl_c(progresses.clone())?;
    let names: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
    let shown = Bars::show(&names, &progresses, plan.workload.requests() * u64::from(plan.seeds));
    let results = run_all(plan, policies, &progresses, args.load.threads());
    drop(shown);
    results.into_iter().map(|result| result.map_err(|e| replay_failure(&e))).collect()
}

fn summary(result: &Replay, outputs: &Outputs) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} requests on {}, {} loop, {} times the recorded rate ({}), {} seeds from {}\n{}\n",
        result.trace.requests,
        result.drive,
        result.loop_mode.mode,
        result.rate.factor,
        result.rate.chosen,
        result.seeds,
        result.seed,
        result.durability.text,
    );
    result.warnings.iter().for_each(|warning| _ = writeln!(out, "warning: {warning}"));
    let _ = writeln!(out, "{}\n", result.verdict.text);
    out.push_str(&table::text(result));
    out.push('\n');
    result.verdict.points.iter().for_each(|point| _ = writeln!(out, "* {point}"));
    if let Some(report) = &outputs.report {
        let _ = writeln!(out, "report: {}", report.path().display());
    }
    if let Some(json) = &outputs.json {
        let _ = writeln!(out, "figures: {}", json.path().display());
    }
    out
}

/// How long the computer took. Not written to any file, because it differs from run to run.
fn speed(outcomes: &[Outcome]) -> String {
    let line = |outcome: &Outcome| {
        let wall = outcome.wall.as_secs_f64();
        format!("{} {wall:.1} s", outcome.policy.name)
    };
    let lines: Vec<String> = outcomes.iter().map(line).collect();
    format!("computing took: {}\n", lines.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::command_line;

    #[test]
    fn the_command_line_survives_a_shell() {
        let args = ["/usr/bin/manylogs", "replay", "my trace", "it's", "--rate=2x"];
        let line = command_line(args.iter().map(|&arg| arg.to_owned()));
        assert_eq!(line, "manylogs replay 'my trace' 'it'\\''s' --rate=2x");
    }
}
