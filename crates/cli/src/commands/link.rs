//! What is said of a modelled drive's link before it is used.

use std::collections::BTreeSet;

use manylogs_disk::{LinkSettings, Profile};
use manylogs_lab::replay::DriveSettings;

use crate::args::link::LinkArgs;
use crate::failure::Failure;

/// Says what the user should know of the links of `drives`, each thing once.
pub(crate) fn say<'a>(drives: impl IntoIterator<Item = &'a DriveSettings>) {
    let notes = drives
        .into_iter()
        .flat_map(|drive| drive.profile.link_notes(drive.link, drive.write_cache));
    let mut said = BTreeSet::new();
    for note in notes {
        if said.insert(note.clone()) {
            eprintln!("note: {note}");
        }
    }
}

/// The link of an emulated drive, and what is to be said of it.
///
/// # Errors
/// If a link was given and no drive is emulated.
pub(crate) fn emulated(
    args: LinkArgs,
    profile: Option<&Profile>,
    write_cache: Option<bool>,
) -> Result<(LinkSettings, Vec<String>), Failure> {
    let settings = args.settings();
    match (profile, args.given()) {
        (None, Some(option)) => Err(Failure::input(format!(
            "{option} is a setting of an emulated drive: give --emulate, too; the link of a real \
             disk is what it is"
        ))),
        (None, None) => Ok((settings, Vec::new())),
        (Some(profile), _) => {
            let cache = write_cache.unwrap_or(profile.cache.write_cache);
            Ok((settings, profile.link_notes(settings, cache)))
        }
    }
}
