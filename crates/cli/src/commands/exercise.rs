//! `manylogs drive exercise`: a drive under one load, second by second.

use std::sync::Arc;

use manylogs_block::Nanos;
use manylogs_lab::exercise::{Exercise, ExerciseError, Exercised, exercise, text};
use manylogs_lab::replay::{DriveSettings, NamedPolicy};

use super::command_line;
use crate::args::exercise::ExerciseArgs;
use crate::args::serve::OnOff;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &ExerciseArgs) -> Result<(), Failure> {
    let mut profile = super::drive(&args.drive)?;
    if let Some(capacity) = args.capacity {
        profile = profile.fitted(capacity).map_err(Failure::input)?;
    }
    let policy = NamedPolicy::parse(&args.policy).map_err(Failure::input)?;
    let write_cache = args.drive_cache.map_or(profile.cache.write_cache, |on| on == OnOff::On);
    let usual = DriveSettings::new(Arc::new(profile), write_cache);
    let drive = DriveSettings { link: args.link.settings(), ..usual };
    super::link::say([&drive.under(&policy)]);
    let link = drive.options(args.seed).link;
    let of = Exercise {
        drive,
        load: args.load.into(),
        span: Nanos::from_secs(args.seconds),
        seed: args.seed,
        policy,
    };
    let (kinds, figures) = exercise(&of).map_err(|error| match error {
        ExerciseError::Policy(_) => Failure::input(error),
        other => Failure::failed(other),
    })?;
    let done = Exercised {
        format: 1,
        command: command_line(std::env::args()),
        drive: of.drive.profile.name.clone(),
        policy: of.policy.name.clone(),
        load: of.load.name(),
        drive_write_cache: of.drive.under(&of.policy).write_cache,
        drive_link: link.kind.name(),
        drive_fua: link.fua,
        kinds,
        figures,
    };
    if args.json {
        let json = serde_json::to_string_pretty(&done).map_err(Failure::failed)?;
        return print(&format!("{json}\n"));
    }
    print(&text(&done))
}
