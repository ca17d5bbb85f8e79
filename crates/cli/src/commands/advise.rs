//! `manylogs advise`: whether a volume helps, with which settings, and how sure that is.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_lab::advise::{Advice, Found, drive_range, replays_at_most, search};
use manylogs_lab::replay::{NamedPolicy, Plan, Progress, assemble, run_all};
use manylogs_lab::{report, table};

use super::load::{Load, choose_rate, replay_failure, stop_on_ctrl_c};
use crate::args::lab::AdviseArgs;
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Bars;

pub(crate) fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let args = &args.load;
    let reserve = |path: &Option<_>| path.as_deref().map(Output::reserve).transpose();
    let (json, page) = (reserve(&args.json)?, reserve(&args.report)?);
    let ours = [NamedPolicy::parse("mlb").map_err(Failure::input)?];
    let load = Load::read(args, &ours)?;
    let mut plan = load.plan(args, &ours);
    let rate = choose_rate(args, &mut plan)?;
    let progress = Arc::<Progress>::default();
    stop_on_ctrl_c(vec![Arc::clone(&progress)])?;
    let found = searched(&plan, &progress, args.threads())?;
    let progresses: Vec<Arc<Progress>> =
        found.finalists.iter().map(|_| Arc::clone(&progress)).collect();
    let results = run_all(&plan, &found.finalists, &progresses, args.threads());
    let outcomes = results.into_iter().map(|result| result.map_err(|e| replay_failure(&e)));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    if progress.stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let mut replay = assemble(&plan, load.setting(args, &plan, rate), &outcomes);
    let mut advice = Advice::of(&replay, &outcomes, found.clone());
    let range = drive_range(&plan, &found, &advice, &progress, args.threads());
    if let Some(range) = range.map_err(|e| replay_failure(&e))? {
        advice.over(range);
    }
    if progress.stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if let Some(output) = &json {
        let text = serde_json::to_string_pretty(&advice).map_err(Failure::failed)?;
        output.write((text + "\n").as_bytes())?;
    }
    if let Some(output) = &page {
        replay.verdict = advice.verdict();
        replay.warnings.clone_from(&advice.warnings);
        output.write(report::html(&replay).map_err(Failure::failed)?.as_bytes())?;
    }
    print(&text(&advice, &table::text(&replay)))
}

/// The search, with a progress bar on a terminal.
fn searched(plan: &Plan, progress: &Arc<Progress>, threads: usize) -> Result<Found, Failure> {
    let requests = plan.workload.requests() * replays_at_most();
    let shown = Bars::show(&["search".to_owned()], &[Arc::clone(progress)], requests);
    let found = search(plan, progress, threads).map_err(|e| replay_failure(&e))?;
    drop(shown);
    if found.interrupted { Err(Failure::Interrupted) } else { Ok(found) }
}

fn text(advice: &Advice, table: &str) -> String {
    let mut out = String::new();
    advice.warnings.iter().for_each(|warning| _ = writeln!(out, "warning: {warning}"));
    let _ = writeln!(out, "{}\n", advice.sentence());
    advice.reasons.iter().for_each(|reason| _ = writeln!(out, "* {reason}"));
    if !advice.commands.is_empty() {
        let _ = writeln!(out, "\nTo do it:");
        advice.commands.iter().for_each(|command| _ = writeln!(out, "  {command}"));
        let mount = &advice.mount_options;
        let _ = writeln!(out, "  mount -o {} (ext4), mount -o {} (XFS)", mount.ext4, mount.xfs);
    }
    let _ = writeln!(
        out,
        "\n{} settings were tried, then replayed from {} fresh seeds:\n",
        advice.tried.len(),
        advice.seeds
    );
    out + table
}
