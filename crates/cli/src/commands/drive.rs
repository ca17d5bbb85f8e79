//! `manylogs drive`: the profiles and how true they are.

use std::fmt::Write as _;

use manylogs_disk::profile::{self, Profile};
use manylogs_lab::table::bytes;

use crate::args::{DEFAULT_DRIVE, DriveArgs, DriveCommand};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &DriveArgs) -> Result<(), Failure> {
    match &args.command {
        DriveCommand::List => list(),
        DriveCommand::Show { drive } => show(drive),
        DriveCommand::Validate { drive, trace, json } => {
            let _ = (drive, trace, json);
            Err(Failure::failed("not built yet"))
        }
    }
}

fn list() -> Result<(), Failure> {
    let mut out = String::new();
    for name in profile::drives() {
        let profile = super::drive(name)?;
        let default = if name == DEFAULT_DRIVE { " (default)" } else { "" };
        let _ = writeln!(out, "{name:<20} {}{default}", summary(&profile));
    }
    print(&out)
}

fn summary(profile: &Profile) -> String {
    let capacity = manylogs_block::Sectors(profile.geometry.capacity_sectors).bytes();
    format!("{}, {}, {:.0} rpm", profile.model, bytes(capacity), profile.rpm())
}

fn show(name: &str) -> Result<(), Failure> {
    let profile = super::drive(name)?;
    print(&format!("# {}: {}\n", profile.name, summary(&profile)))
}
