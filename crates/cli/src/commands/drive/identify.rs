//! `manylogs drive identify`: finds out which drive a disk is.

use std::fmt::Write as _;
use std::path::Path;

use manylogs_disk::profile::Library;
use manylogs_lab::table::bytes;
use manylogs_storage::{DiskIdentity, identify_in};
use serde_json::json;

use super::assumptions;
use super::choose::{Chosen, How, check, disk, known, not_modelled, unknown};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(device: &Path, sys: Option<&Path>, json: bool) -> Result<(), Failure> {
    let found = match sys {
        None => disk(device)?,
        Some(sys) => copied(device, sys)?,
    };
    let chosen = known(&found).choose(&Library::of_user()).map_err(unknown)?;
    if json { print(&as_json(&found, &chosen)?) } else { print(&text(&found, &chosen)) }
}

/// The identity of another machine's disk, from a copy of that machine's sysfs.
fn copied(device: &Path, sys: &Path) -> Result<DiskIdentity, Failure> {
    let name = device.file_name().unwrap_or(device.as_os_str());
    let dir = sys.join("class/block").join(name);
    let found =
        identify_in(&dir).map_err(|error| Failure::input(format!("{}: {error}", dir.display())))?;
    check(&device.display().to_string(), &found, &Library::of_user())?;
    Ok(found)
}

fn said(text: &str) -> &str {
    if text.is_empty() { "not told" } else { text }
}

fn text(disk: &DiskIdentity, chosen: &Chosen) -> String {
    let rpm = disk.rpm.map_or_else(|| "not told".to_owned(), |rpm| format!("{rpm} rpm"));
    let mut out = format!(
        "{}: {}, serial number {}, {}, {rpm}, {}\n{}\n",
        disk.name,
        said(&disk.model),
        said(&disk.serial),
        bytes(disk.sectors.saturating_mul(512)),
        disk.transport,
        chosen.sentence(),
    );
    if let (How::Class | How::Catalogue, Some(sheet)) = (&chosen.how, &chosen.profile.sheet)
        && let Some(text) = assumptions(sheet)
    {
        let _ = writeln!(out, "{text}");
    }
    for missing in chosen.profile.not_modelled.iter().chain(&not_modelled(disk)) {
        let _ = writeln!(out, "not modelled: {missing}");
    }
    out
}

fn as_json(disk: &DiskIdentity, chosen: &Chosen) -> Result<String, Failure> {
    let missing = chosen.profile.not_modelled.iter().cloned().chain(not_modelled(disk));
    let value = json!({
        "format": 1,
        "disk": {
            "name": disk.name,
            "vendor": disk.vendor,
            "model": disk.model,
            "serial": disk.serial,
            "rpm": disk.rpm,
            "sectors": disk.sectors,
            "link": disk.transport.name(),
            "actuators": disk.actuators,
            "host_managed": disk.host_managed,
        },
        "drive": chosen.profile.name,
        "found_by": chosen.how.word(),
        "profile_file": match &chosen.how {
            How::Own(path) => Some(path),
            How::Catalogue | How::Class => None,
        },
        "not_modelled": missing.collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&value).map_err(Failure::failed)?;
    Ok(text + "\n")
}
