//! Prepares a load for replay from the command line.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_disk::Profile;
use manylogs_lab::load::{Blame, Load, LoadError, LoadOptions, LoadRate};
use manylogs_lab::prepare::TraceSpec;
use manylogs_lab::replay::{ArraySettings, Progress, ReplayError};

use super::command_line;
use super::drive::assumptions;
use super::drive::choose::{of_disk, of_trace};
use super::measured::on_ctrl_c;
use crate::args::lab::{DEFAULT_DRIVE, LoadArgs};
use crate::failure::Failure;
use crate::units::Rate;

impl LoadArgs {
    /// The options for the lab.
    pub(crate) fn options(&self) -> Result<LoadOptions, Failure> {
        Ok(LoadOptions {
            traces: TraceSpec {
                opens: Vec::new(),
                files: self.traces.clone(),
                open: self.open.options()?,
                window: self.change.window.map(Into::into),
                windows: Vec::new(),
                read: Vec::new(),
                limit: self.change.limit,
                seed: self.change.seed,
            },
            link: self.link.settings(),
            array: self.array.map(|shape| ArraySettings { shape, slow: None }),
            smr_cache: self.smr_cache,
            fit: self.fit,
            rate: match self.rate {
                Rate::Factor(factor) => LoadRate::Factor(factor),
                Rate::Auto => LoadRate::Busy(self.utilisation),
            },
            repeat: self.repeat,
            durability: self.durability,
            seeds: self.seeds,
        })
    }
}

/// Prints notes about the drive of `load`.
pub(crate) fn say(load: &Load) {
    super::link::say([&load.drive]);
    say_assumed(&load.drive.profile);
}

/// The command line that repeats this run.
pub(crate) fn this_command() -> String {
    command_line(std::env::args())
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

/// Prints the assumptions about a drive that is known by its data sheet only.
fn say_assumed(profile: &Profile) {
    if let Some(text) = profile.sheet.as_deref().and_then(assumptions) {
        eprintln!("note: {}: {text}", profile.name);
    }
    profile.not_modelled.iter().for_each(|text| eprintln!("note: {}: {text}", profile.name));
}

/// Stops the replays of `progresses` when the user presses Ctrl-C.
pub(crate) fn stop_on_ctrl_c(progresses: Vec<Arc<Progress>>) -> Result<(), Failure> {
    on_ctrl_c(move || {
        progresses.iter().for_each(|progress| progress.stop.store(true, Ordering::Relaxed));
    })
}

pub(crate) fn load_failure(error: &LoadError) -> Failure {
    Failure::of_blame(error.blame(), error)
}

pub(crate) fn replay_failure(error: &ReplayError) -> Failure {
    Failure::of_blame(Blame::of_replay(error), error)
}
