//! `manylogs advise`: whether a volume helps, with which settings, and how sure that is.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_disk::Profile;
use manylogs_lab::advise::{
    Advice, Found, PersistentCache, Subject, TooMuch, drive_range, replays_at_most, search,
};
use manylogs_lab::replay::{
    DriveSettings, NamedPolicy, Outcome, Plan, Progress, assemble, run_all,
};
use manylogs_lab::results::{RateDetails, Replay};
use manylogs_lab::verdict::Decision;
use manylogs_lab::{report, table};
use manylogs_storage::Attached;
use manylogs_workload::read_info;

use super::link;
use super::load::{Load, choose_rate, drive as drive_of, replay_failure, stop_on_ctrl_c};
use crate::args::lab::{AdviseArgs, LoadArgs};
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Bars;

/// Stands for a disk of which nothing is known.
const UNKNOWN_DISK: &str = "/dev/sdX";

pub(crate) fn run(given: &AdviseArgs) -> Result<(), Failure> {
    let mut load = given.load.clone();
    let (profile, disk) = drive(given, &mut load)?;
    let args = &load;
    let reserve = |path: &Option<_>| path.as_deref().map(Output::reserve).transpose();
    let (json, page) = (reserve(&args.json)?, reserve(&args.report)?);
    let ours = [NamedPolicy::parse("mlb").map_err(Failure::input)?];
    let load = Load::read_on(profile, args, &ours)?;
    let mut plan = load.plan(args, &ours);
    let mut rate = choose_rate(args, &mut plan)?;
    let progress = Arc::<Progress>::default();
    stop_on_ctrl_c(vec![Arc::clone(&progress)])?;
    let mut too_much = TooMuch::of(&plan, &progress).map_err(|e| replay_failure(&e))?;
    if let Some(found) = &too_much {
        plan.rate = found.judged;
        rate = RateDetails { factor: found.judged, chosen: "fits", ..rate };
    }
    let found = searched(&plan, &progress, args.threads())?;
    let judge = |plan: &Plan, policies: &[NamedPolicy]| judged(plan, policies, &progress, args);
    let outcomes = judge(&plan, &found.finalists)?;
    let replay = assemble(&plan, load.setting(args, &plan, rate.clone()), &outcomes);
    let table = table::text(&replay);
    let device = named(given);
    let subject = Subject { found: found.clone(), device: device.clone(), too_much };
    let mut advice = Advice::of(&replay, &outcomes, subject);
    let range = drive_range(&plan, &found, &advice, &progress, args.threads());
    if let Some(range) = range.map_err(|e| replay_failure(&e))? {
        advice.over(range);
    }
    if progress.stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if let Some(found) = &mut too_much {
        let asked = found.with_volume(&plan, &advice.policy, &progress);
        *found = asked.map_err(|e| replay_failure(&e))?;
        advice.too_much = Some(*found);
    }
    if plan.drive.profile.shingled.is_some() && args.smr_cache.is_none() {
        let drive = DriveSettings { smr_cache: 1.0, ..plan.drive.clone() };
        let full = Plan { drive, checkpoint_after: false, ..plan };
        let outcomes = judge(&full, &found.finalists)?;
        let full = assemble(&full, load.setting(args, &full, rate), &outcomes);
        if let Some(other) = PersistentCache::of(&full, 1.0) {
            advice = advice.with_other_cache(other);
        }
    }
    let volume = advice.decision == Decision::Use;
    let set = if volume { advice.caches.set_for_volume } else { advice.caches.set_for_plain };
    advice.reasons.extend(disk.as_ref().map(|disk| link::cache_now(disk, set, volume)));
    write(&advice, replay, json, page)?;
    print(&text(&advice, &device, &table))
}

/// Writes the files that were asked for.
fn write(
    advice: &Advice,
    mut replay: Replay,
    json: Option<Output>,
    page: Option<Output>,
) -> Result<(), Failure> {
    if let Some(output) = json {
        let text = serde_json::to_string_pretty(advice).map_err(Failure::failed)?;
        output.write((text + "\n").as_bytes())?;
    }
    if let Some(output) = page {
        replay.verdict = advice.verdict();
        replay.warnings.clone_from(&advice.warnings);
        output.write(report::html(&replay).map_err(Failure::failed)?.as_bytes())?;
    }
    Ok(())
}

/// The disk that the advice is for.
fn disk(args: &AdviseArgs) -> Option<&Path> {
    let device = Path::new(&args.load.open.device);
    args.disk.as_deref().or_else(|| device.is_absolute().then_some(device))
}

/// The drive, and how the disk that the advice is for is attached, if one was given. The disk's own
/// profile counts unless another one was given, and its link in any case.
fn drive(args: &AdviseArgs, load: &mut LoadArgs) -> Result<(Profile, Option<Attached>), Failure> {
    let Some(disk) = disk(args) else { return Ok((drive_of(load)?, None)) };
    let attached = link::attached(disk)?;
    load.drive.get_or_insert_with(|| disk.display().to_string());
    let profile = drive_of(load)?;
    link::of_disk(&attached, &profile, &mut load.link);
    Ok((profile, Some(attached)))
}

/// The disk that commands name: as given, as recorded, or one that stands for it. A loop device is
/// none that anybody has tomorrow.
fn named(args: &AdviseArgs) -> String {
    if let Some(disk) = disk(args) {
        return disk.display().to_string();
    }
    let recorded = match args.load.traces.as_slice() {
        [trace] => read_info(trace).ok().map(|info| info.device),
        _ => None,
    };
    let is_disk = |name: &String| name.starts_with("/dev/") && !name.starts_with("/dev/loop");
    recorded.filter(is_disk).unwrap_or_else(|| UNKNOWN_DISK.to_owned())
}

/// Replays `policies` from fresh seeds.
fn judged(
    plan: &Plan,
    policies: &[NamedPolicy],
    progress: &Arc<Progress>,
    args: &LoadArgs,
) -> Result<Vec<Outcome>, Failure> {
    let progresses: Vec<Arc<Progress>> = policies.iter().map(|_| Arc::clone(progress)).collect();
    let results = run_all(plan, policies, &progresses, args.threads());
    let outcomes = results.into_iter().map(|result| result.map_err(|e| replay_failure(&e)));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    if progress.stop.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(outcomes) }
}

/// The search, with a progress bar on a terminal.
fn searched(plan: &Plan, progress: &Arc<Progress>, threads: usize) -> Result<Found, Failure> {
    let requests = plan.workload.requests() * replays_at_most();
    let shown = Bars::show(&["search".to_owned()], &[Arc::clone(progress)], requests);
    let found = search(plan, progress, threads).map_err(|e| replay_failure(&e))?;
    drop(shown);
    if found.interrupted { Err(Failure::Interrupted) } else { Ok(found) }
}

fn text(advice: &Advice, device: &str, table: &str) -> String {
    let mut out = String::new();
    advice.warnings.iter().for_each(|warning| _ = writeln!(out, "warning: {warning}"));
    let _ = writeln!(out, "{}\n", advice.sentence());
    advice.reasons.iter().for_each(|reason| _ = writeln!(out, "* {reason}"));
    if !advice.commands.is_empty() {
        let which = if device == UNKNOWN_DISK { ", which stands for the disk," } else { "" };
        let _ = writeln!(out, "\nTo do it (what {device}{which} holds is lost):");
        advice.commands.iter().for_each(|command| _ = writeln!(out, "  {command}"));
        let _ = writeln!(out, "(For XFS: mkfs.xfs, and mount -o {})", advice.mount_options.xfs);
    }
    let _ = writeln!(
        out,
        "\n{} settings were tried, then replayed from {} fresh seeds:\n",
        advice.tried.len(),
        advice.seeds
    );
    out + table
}
