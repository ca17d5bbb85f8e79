//! A load made ready to be replayed, as the command line says.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_block::Sectors;
use manylogs_disk::Profile;
use manylogs_lab::prepare::{PrepareError, TraceSpec, prepare};
use manylogs_lab::replay::{
    DriveSettings, Durability, Loop, NamedPolicy, Plan, Progress, PumpSettings, ReplayError,
    SMALL_WRITE, Setting, Workload, exported_capacity, find_rate,
};
use manylogs_lab::results::RateDetails;
use manylogs_lab::stats::round3;

use super::drive::assumptions;
use super::drive::choose::{of_disk, of_trace};
use super::{command_line, trace_failure};
use crate::args::lab::{DEFAULT_DRIVE, LoadArgs};
use crate::failure::Failure;
use crate::units::Rate;

/// A load on a drive, measured.
pub(crate) struct Load {
    pub(crate) drive: DriveSettings,
    pub(crate) workload: Workload,
    pub(crate) transforms: Vec<String>,
    pub(crate) durability: Durability,
}

impl Load {
    /// Reads the traces, which must fit what the drive exports under each of `policies`.
    pub(crate) fn read(args: &LoadArgs, policies: &[NamedPolicy]) -> Result<Self, Failure> {
        Self::read_on(drive(args)?, args, policies)
    }

    /// The same on the drive of this profile.
    pub(crate) fn read_on(
        profile: Profile,
        args: &LoadArgs,
        policies: &[NamedPolicy],
    ) -> Result<Self, Failure> {
        let usual = DriveSettings::new(Arc::new(profile), false);
        let smr_cache = args.smr_cache.unwrap_or(0.0);
        let mut drive = DriveSettings { link: args.link.settings(), smr_cache, ..usual };
        if args.smr_cache.is_some() && drive.profile.shingled.is_none() {
            return Err(Failure::input(format!(
                "--smr-cache: {} is a conventional drive, without a persistent cache",
                drive.profile.name
            )));
        }
        let mut capacity = Sectors(u64::MAX);
        for named in policies {
            let exported = exported_capacity(&drive, named).map_err(|e| replay_failure(&e))?;
            capacity = capacity.min(exported);
        }
        let spec = TraceSpec {
            opens: Vec::new(),
            files: args.traces.clone(),
            open: args.open.options()?,
            window: args.change.window.map(Into::into),
            windows: Vec::new(),
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
        let durability = args.durability.unwrap_or_else(|| Durability::of(workload.summary()));
        drive.write_cache = durability.write_cache();
        super::link::say([&drive]);
        say_assumed(&drive.profile);
        let workload = workload.repeated(args.repeat);
        Ok(Self { drive, workload, transforms: prepared.transforms, durability })
    }

    /// The plan of a replay under `policies`, at the rate as recorded.
    pub(crate) fn plan(&self, args: &LoadArgs, policies: &[NamedPolicy]) -> Plan {
        let largest = policies.iter().filter_map(NamedPolicy::threshold).max();
        let plan = Plan::new(self.workload.clone(), self.drive.clone(), self.durability);
        Plan {
            pump: PumpSettings { small_write_max: largest.unwrap_or(SMALL_WRITE), ..plan.pump },
            checkpoint_after: true,
            seed: args.change.seed,
            seeds: args.seeds,
            ..plan
        }
    }

    /// What outputs say about the replay.
    pub(crate) fn setting(&self, args: &LoadArgs, plan: &Plan, rate: RateDetails) -> Setting {
        Setting {
            drive: plan.drive.profile.name.clone(),
            files: args.traces.iter().map(|file| file.display().to_string()).collect(),
            transforms: self.transforms.clone(),
            rate,
            durability_given: args.durability.is_some(),
            command: command_line(std::env::args()),
            warnings: dropped_by_reader(plan),
        }
    }
}

/// The drive: that of --drive, the disk of --device, the one that the trace was recorded on, or the
/// default.
pub(crate) fn drive(args: &LoadArgs) -> Result<Profile, Failure> {
    if let Some(name) = &args.drive {
        return super::drive(name);
    }
    if args.open.device.starts_with('/') {
        return of_disk(Path::new(&args.open.device));
    }
    let recorded = match args.traces.as_slice() {
        [trace] if trace.is_file() => of_trace(trace),
        _ => None,
    };
    recorded.map_or_else(|| super::drive(DEFAULT_DRIVE), Ok)
}

/// Says what is presumed of a drive that is known by its data sheet only.
fn say_assumed(profile: &Profile) {
    if let Some(text) = profile.sheet.as_deref().and_then(assumptions) {
        eprintln!("note: {}: {text}", profile.name);
    }
    profile.not_modelled.iter().for_each(|text| eprintln!("note: {}: {text}", profile.name));
}

/// Sets the rate of `plan` as asked for.
pub(crate) fn choose_rate(args: &LoadArgs, plan: &mut Plan) -> Result<RateDetails, Failure> {
    let details = match args.rate {
        Rate::Factor(factor) => RateDetails {
            factor,
            chosen: if factor == 1.0 { "as recorded" } else { "given" },
            target_utilisation: None,
            utilisation: None,
        },
        Rate::Auto => {
            let probe = Plan {
                pump: PumpSettings { mode: Loop::OPEN, ..plan.pump },
                workload: plan.workload.clone().repeated(1),
                ..plan.clone()
            };
            let found = find_rate(&probe, args.utilisation, &Arc::new(Progress::default()))
                .map_err(|error| replay_failure(&error))?;
            RateDetails {
                factor: found.factor,
                chosen: "auto",
                target_utilisation: Some(args.utilisation),
                utilisation: Some(round3(found.utilisation)),
            }
        }
    };
    plan.rate = details.factor;
    Ok(details)
}

/// Stops the replays of `progresses` when the user presses Ctrl-C.
pub(crate) fn stop_on_ctrl_c(progresses: Vec<Arc<Progress>>) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        progresses.iter().for_each(|progress| progress.stop.store(true, Ordering::Relaxed));
    })
    .map_err(|error| Failure::failed(format!("cannot watch for Ctrl-C: {error}")))
}

pub(crate) fn replay_failure(error: &ReplayError) -> Failure {
    match error {
        ReplayError::Trace(error) => trace_failure(error),
        ReplayError::Volume { .. }
        | ReplayError::Policy { .. }
        | ReplayError::NotShingled { .. } => Failure::input(error),
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
