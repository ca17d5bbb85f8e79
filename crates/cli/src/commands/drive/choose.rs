//! Chooses the profile that models a disk: the user's by serial number, then the catalogue's by
//! model, then one for drives of its class.

use std::path::Path;

use manylogs_disk::profile::{Library, Profile, catalogued_model};
use manylogs_lab::known::UnknownDisk;
pub(crate) use manylogs_lab::known::{Chosen, How, Known};
use manylogs_storage::{DiskIdentity, Transport, identify};
use manylogs_workload::read_info;

use super::{assumptions, profile_failure};
use crate::commands::link::link_of;
use crate::failure::Failure;

/// The facts that the machine reports of a disk.
pub(crate) fn known(disk: &DiskIdentity) -> Known {
    Known {
        name: disk.name.clone(),
        model: disk.model.clone(),
        serial: disk.serial.clone(),
        rpm: disk.rpm,
        sectors: disk.sectors,
        link: link_of(&disk.transport),
    }
}

/// The failure if no profile fits a disk.
pub(crate) fn unknown(error: UnknownDisk) -> Failure {
    match error {
        UnknownDisk::Profile(error) => profile_failure(&error),
        other => Failure::input(other),
    }
}

/// The profile for the disk at `path`; prints which profile it is and why.
pub(crate) fn of_disk(path: &Path) -> Result<Profile, Failure> {
    let found = disk(path)?;
    let chosen = known(&found).choose(&Library::of_user()).map_err(unknown)?;
    eprintln!("note: {}: {}", path.display(), chosen.sentence());
    for missing in not_modelled(&found) {
        eprintln!("note: {}: {missing}", path.display());
    }
    Ok(chosen.profile)
}

/// The drive of a volume: that of --drive, or the one recognised at `path`; `None` if none is
/// recognised, for instance for an image. The text says which profile it is and why.
pub(crate) fn recognised(
    given: Option<&str>,
    path: &Path,
) -> Result<Option<(Profile, String)>, Failure> {
    if let Some(name) = given {
        return given_drive(name).map(Some);
    }
    Ok(found_at(path).map(|(found, chosen)| {
        let said = format!("{}: {}", found.model, chosen.sentence());
        (chosen.profile, said)
    }))
}

fn given_drive(name: &str) -> Result<(Profile, String), Failure> {
    let profile = crate::commands::drive(name)?;
    let said = format!("{}, as --drive says", profile.name);
    Ok((profile, said))
}

/// The disk at `path`, and its profile.
fn found_at(path: &Path) -> Option<(DiskIdentity, Chosen)> {
    let found = disk(path).ok()?;
    let chosen = known(&found).choose(&Library::of_user()).ok()?;
    Some((found, chosen))
}

/// Like [`recognised`], for `format`, which lays the volume out for the drive: the text also names
/// what is guessed and what is not modelled.
pub(crate) fn for_format(
    given: Option<&str>,
    path: &Path,
) -> Result<Option<(Profile, String)>, Failure> {
    if let Some(name) = given {
        return given_drive(name).map(Some);
    }
    let Some((found, chosen)) = found_at(path) else { return Ok(None) };
    let mut said = format!("{}: {}", found.model, chosen.sentence());
    if let Some(text) = chosen.profile.sheet.as_deref().and_then(assumptions) {
        said += &format!("\n           {text}");
    }
    for missing in chosen.profile.not_modelled.iter().chain(&not_modelled(&found)) {
        said += &format!("\n           not modelled: {missing}");
    }
    Ok(Some((chosen.profile, said)))
}

/// The drive that a trace was recorded on, if the trace names it and a profile fits; prints which
/// one.
pub(crate) fn of_trace(path: &Path) -> Option<Profile> {
    let known = Known::of_trace(&read_info(path).ok()?)?;
    let drive = if known.model.is_empty() { &known.name } else { &known.model };
    match known.choose(&Library::of_user()) {
        Ok(chosen) => {
            eprintln!("note: recorded on {drive}: {}", chosen.sentence());
            Some(chosen.profile)
        }
        Err(error) => {
            eprintln!("note: recorded on {drive}, which is not modelled: {}", error);
            None
        }
    }
}

/// Reads the identity of the disk at `path`, and refuses disks that no profile can model.
pub(crate) fn disk(path: &Path) -> Result<DiskIdentity, Failure> {
    let found =
        identify(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    check(&path.display().to_string(), &found, &Library::of_user())?;
    Ok(found)
}

/// Refuses disks that do not rotate, and virtual or hidden ones.
pub(crate) fn check(shown: &str, disk: &DiskIdentity, library: &Library) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::input(format!("{shown}: {why}")));
    let hides = |what: &str| {
        let told = format!("{} {}", disk.vendor, disk.model);
        refused(&format!(
            "{what} that hides the drive's model (it says {:?}): give --drive, or describe the \
             drive with `manylogs drive new NAME --serial {:?} ...`",
            told.trim(),
            disk.serial
        ))
    };
    match disk.transport {
        _ if disk.is_virtual() => refused(
            "a virtual disk, with no drive of its own behind it: name the disk below it, or give \
             --drive",
        ),
        Transport::Nvme => refused("an NVMe disk, which does not turn: it has no seeks to save"),
        Transport::Usb if !is_named(disk, library) => hides("a USB bridge"),
        Transport::Raid(_) if !is_named(disk, library) => hides("a RAID controller"),
        _ if disk.rotational == Some(false) => {
            refused("it does not turn (an SSD): it has no seeks to save")
        }
        _ => Ok(()),
    }
}

/// Whether a profile names the disk by its serial number, or the catalogue its model. True also if
/// two profiles name it, which is reported as an error later.
fn is_named(disk: &DiskIdentity, library: &Library) -> bool {
    !matches!(library.of_serial(&disk.serial), Ok(None))
        || !matches!(catalogued_model(&disk.model), Ok(None))
}

/// Properties of this disk that the model lacks.
pub(crate) fn not_modelled(disk: &DiskIdentity) -> Vec<String> {
    let mut found = Vec::new();
    if disk.actuators > 1 {
        found.push(format!(
            "{} actuators, each with its own part of the addresses: the model has one, so work in \
             several parts at once is faster than it says",
            disk.actuators
        ));
    }
    if disk.host_managed {
        found.push(
            "zones that the host must write in order (host-managed): no volume can be on it, and \
             the model writes anywhere"
                .to_owned(),
        );
    }
    found
}
