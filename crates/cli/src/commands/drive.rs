//! `manylogs drive`: drives, their profiles, and the accuracy of their models.

pub(crate) mod choose;
mod compare;
mod identify;
mod new;

use std::fmt::Write as _;

use manylogs_disk::LinkSettings;
use manylogs_disk::profile::sheet::Origin;
use manylogs_disk::profile::{self, Library, Profile, ProfileError, Sheet};
use manylogs_lab::table::bytes;

use crate::args::drive::{DriveArgs, DriveCommand};
use crate::args::lab::DEFAULT_DRIVE;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &DriveArgs) -> Result<(), Failure> {
    match &args.command {
        DriveCommand::List { all } => list(*all),
        DriveCommand::New(args) => new::run(args),
        DriveCommand::Show { drive } => show(drive),
        DriveCommand::Exercise(args) => super::exercise::run(args),
        DriveCommand::Validate { drive, trace, json } => {
            super::validate::run(drive, trace.as_deref(), *json)
        }
        DriveCommand::Vary { like, seed } => vary(like, *seed),
        DriveCommand::Compare { first, second, json } => compare::run(first, second, *json),
        DriveCommand::Identify { device, sys, json } => {
            identify::run(device, sys.as_deref(), *json)
        }
    }
}

/// The failure for a refused profile: bad input, unless a newer version wrote it or it cannot be
/// read.
pub(crate) fn profile_failure(error: &ProfileError) -> Failure {
    match error {
        ProfileError::TooNew { .. } => Failure::TooNew(error.to_string()),
        ProfileError::Read { source, .. } => Failure::of_given(source, error),
        _ => Failure::input(error),
    }
}

fn list(all: bool) -> Result<(), Failure> {
    let mut out = String::new();
    let library = Library::of_user();
    for (name, path) in library.files() {
        let line = match Profile::load(&path) {
            Ok(profile) => summary(&profile),
            Err(error) => format!("cannot be used: {error}"),
        };
        let _ = writeln!(out, "{name:<24} {line} (your own)");
    }
    for name in profile::drives() {
        let profile = super::drive(name)?;
        let default = if name == DEFAULT_DRIVE { " (default)" } else { "" };
        let _ = writeln!(out, "{name:<24} {}{default}", summary(&profile));
    }
    let catalogue = profile::catalogue().map_err(Failure::failed)?;
    if all {
        for sheet in catalogue {
            let profile = sheet.clone().profile(&sheet.name).map_err(Failure::failed)?;
            let _ = writeln!(out, "{:<24} {} (catalogue)", sheet.name, summary(&profile));
        }
    } else {
        let _ = writeln!(
            out,
            "\nand {} of the catalogue (--all); own profiles lie in {}",
            catalogue.len(),
            library.folder().display()
        );
    }
    print(&out)
}

fn summary(profile: &Profile) -> String {
    let capacity = bytes(profile.capacity().bytes());
    format!("{}, {capacity}, {:.0} rpm", profile.model, profile.rpm())
}

fn show(name: &str) -> Result<(), Failure> {
    let profile = super::drive(name)?;
    print(&shown(&profile))
}

/// The profile as TOML, with what a reader should know in comments.
fn shown(profile: &Profile) -> String {
    let mut out = format!("# {}: {}\n", profile.name, summary(profile));
    for note in profile.link_notes(LinkSettings::default(), profile.cache.write_cache) {
        let _ = writeln!(out, "# {note}");
    }
    for trait_ in &profile.not_modelled {
        let _ = writeln!(out, "# not modelled: {trait_}");
    }
    if let Some(text) = profile.sheet.as_deref().and_then(assumptions) {
        let _ = writeln!(out, "# {text}");
    }
    out + &profile.toml()
}

/// The guessed figures of a drive, in a sentence.
pub(crate) fn assumptions(sheet: &Sheet) -> Option<String> {
    let guessed: Vec<&str> = sheet
        .figures
        .iter()
        .filter(|(_, figure)| figure.origin() == Origin::Guess)
        .map(|(key, _)| key.name())
        .collect();
    (!guessed.is_empty()).then(|| {
        format!(
            "guessed, within ranges: {}; figures of the data sheet or measurements would narrow \
             what is said of the drive",
            guessed.join(", ")
        )
    })
}

fn vary(like: &str, seed: u64) -> Result<(), Failure> {
    let profile = super::drive(like)?;
    let sheet = Sheet::of(&profile).complete(like).map_err(|error| profile_failure(&error))?;
    if sheet.ranges().next().is_none() {
        return Err(Failure::input(format!(
            "{like} has no ranges: every number of its profile is measured or published"
        )));
    }
    let drawn = sheet.drawn(seed);
    // Makes sure that the model accepts the drawn drive.
    let drawn = drawn.profile(like).map_err(|error| profile_failure(&error))?;
    print(&drawn.toml())
}
