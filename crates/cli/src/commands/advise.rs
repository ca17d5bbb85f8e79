//! `manylogs advise`: whether a volume helps, with which settings, and how sure that is.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use manylogs_disk::Profile;
use manylogs_lab::advise::{Advice, Advised, Asked, advise, fitted_policies};
use manylogs_lab::load::Load;
use manylogs_lab::replay::Progress;
use manylogs_lab::results::Decision;
use manylogs_lab::results::Replay;
use manylogs_lab::{report, table};
use manylogs_storage::Attached;
use manylogs_workload::read_info;

use super::link;
use super::load::{
    drive as drive_of, load_failure, replay_failure, say, stop_on_ctrl_c, this_command,
};
use crate::args::lab::{AdviseArgs, LoadArgs};
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Bars;

/// Name for the disk in the advice if the user gave none.
const UNKNOWN_DISK: &str = "/dev/sdX";

pub(crate) fn run(given: &AdviseArgs) -> Result<(), Failure> {
    let mut args = given.load.clone();
    let (profile, disk) = drive(given, &mut args)?;
    let reserve = |path: &Option<_>| path.as_deref().map(Output::reserve).transpose();
    let (json, page) = (reserve(&args.json)?, reserve(&args.report)?);
    let ours = fitted_policies().map_err(Failure::input)?;
    let load = Load::read(profile, &args.options()?, &ours).map_err(|e| load_failure(&e))?;
    say(&load);
    let mut plan = load.plan(&ours);
    let rate = load.choose_rate(&mut plan, &Arc::default()).map_err(|e| replay_failure(&e))?;
    let progress = Arc::<Progress>::default();
    stop_on_ctrl_c(vec![Arc::clone(&progress)])?;
    let (device, threads) = (named(given), args.threads());
    let command = this_command();
    let asked = Asked { load: &load, plan, rate, device: device.clone(), command, threads };
    let bar = |requests| Bars::show(&["search".to_owned()], &[Arc::clone(&progress)], requests);
    let advised = advise(asked, &progress, bar).map_err(|e| replay_failure(&e))?;
    let Advised { mut advice, replay } = advised.ok_or(Failure::Interrupted)?;
    let volume = advice.decision == Decision::Use;
    let set = if volume { advice.caches.set_for_volume } else { advice.caches.set_for_plain };
    advice.reasons.extend(disk.as_ref().map(|disk| link::cache_now(disk, set, volume)));
    let table = table::text(&replay);
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
        let text = advice.to_json().map_err(Failure::failed)?;
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

/// The drive, and how the disk that the advice is for is attached, if a disk was given. The disk's
/// own profile is used unless the user gave another one; the disk's link is always used.
fn drive(args: &AdviseArgs, load: &mut LoadArgs) -> Result<(Profile, Option<Attached>), Failure> {
    let Some(disk) = disk(args) else { return Ok((drive_of(load)?, None)) };
    let attached = link::attached(disk)?;
    load.drive.get_or_insert_with(|| disk.display().to_string());
    let profile = drive_of(load)?;
    link::of_disk(&attached, &profile, &mut load.link);
    Ok((profile, Some(attached)))
}

/// The disk's name in the commands that the advice suggests: as given, as recorded, or a
/// placeholder. A recorded loop device is not used, because its name does not last.
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
