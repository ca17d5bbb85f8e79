//! Notes about a modelled drive's link, printed before it is used.

use std::collections::BTreeSet;
use std::path::Path;

use manylogs_block::on_off;
use manylogs_disk::{LinkKind, LinkSettings, Profile};
use manylogs_lab::replay::DriveSettings;
use manylogs_storage::{Attached, Transport};

use super::volume::human;
use crate::args::link::LinkArgs;
use crate::args::serve::OnOff;
use crate::failure::Failure;

/// Prints notes about the links of `drives`, each note once.
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

/// The link of an emulated drive, and notes about it.
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

/// Takes the link of the disk where the command line gives none. Prints what contradicts the
/// drive's profile, and what cannot be seen.
pub(crate) fn of_disk(attached: &Attached, profile: &Profile, link: &mut LinkArgs) {
    for note in contradictions(profile, attached, link.settings()) {
        eprintln!("note: {note}");
    }
    if let Some(kind) = link_of(&attached.transport) {
        link.drive_link.get_or_insert(kind);
        // The disk's FUA applies only to its own kind of link.
        if link.drive_fua.is_none() && link.drive_link == Some(kind) {
            let fua = attached.fua.filter(|_| attached.flushed == Some(true));
            link.drive_fua = fua.map(|fua| if fua { OnOff::On } else { OnOff::Off });
        }
    }
}

/// How the disk at the path is attached.
///
/// # Errors
/// If it is no disk.
pub(crate) fn attached(disk: &Path) -> Result<Attached, Failure> {
    let named = |error: std::io::Error| Failure::input(format!("{}: {error}", disk.display()));
    disk.metadata().map_err(named)?;
    let none = || {
        let disk = disk.display();
        Failure::input(format!("{disk}: --disk takes a disk, as /dev/sdb, and this is none"))
    };
    Attached::at(disk).ok_or_else(none)
}

/// The link of a drive; `None` if something between hides it.
pub(crate) const fn link_of(transport: &Transport) -> Option<LinkKind> {
    match (transport.is_sata(), transport.is_scsi()) {
        (true, _) => Some(LinkKind::Sata),
        (false, true) => Some(LinkKind::Sas),
        (false, false) => None,
    }
}

/// Differences between the profile and the disk, and facts that cannot be seen, as notes.
fn contradictions(profile: &Profile, disk: &Attached, given: LinkSettings) -> Vec<String> {
    let (drive, own, of_profile) = (&profile.name, &disk.disk, profile.link());
    let mut notes = Vec::new();
    if let Some(why) = disk.transport.hides_cache() {
        notes.push(format!(
            "the link and the write cache of {own} cannot be seen: {why}; the model has {}",
            given.over(of_profile).kind
        ));
    }
    if let Some(kind) = link_of(&disk.transport) {
        let meant = given.kind.unwrap_or(of_profile.kind);
        if kind != meant {
            let who = if given.kind.is_some() { "--drive-link" } else { drive.as_str() };
            let counts = if given.kind.is_some() { "--drive-link" } else { "the disk" };
            notes.push(format!("{who} says {meant}, and {own} is on {kind}: {counts} counts"));
        } else if let Some(fua) = disk.fua.filter(|_| disk.flushed == Some(true)) {
            let meant = given.over(of_profile).fua;
            if fua != meant {
                let counts = if given.fua.is_some() { "--drive-fua" } else { "the disk" };
                notes.push(format!(
                    "FUA is {} in the model of {drive}, and {} for {own}: {counts} counts",
                    on_off(meant),
                    on_off(fua)
                ));
            }
        }
    }
    if disk.rotational == Some(false) {
        notes.push(format!("{own} does not turn, and {drive} does: the figures are not its own"));
    }
    if disk.queue_depth.is_some_and(|depth| depth != profile.queue.depth) {
        let depth = disk.queue_depth.unwrap_or_default();
        let (ours, why) = (profile.queue.depth, "the model keeps its own");
        notes
            .push(format!("the queue of {drive} is {ours} deep, and that of {own} {depth}: {why}"));
    }
    let capacity = profile.capacity().bytes();
    if disk.bytes > 0 && (disk.bytes < capacity / 10 * 9 || disk.bytes > capacity / 10 * 11) {
        notes.push(format!(
            "{own} has {} and {drive} {}: seeks are those of {drive}",
            human(disk.bytes),
            human(capacity)
        ));
    }
    notes
}

/// Advice for setting the disk's write cache to `set`, with a volume or without.
pub(crate) fn cache_now(disk: &Attached, set: Option<bool>, volume: bool) -> String {
    let own = &disk.disk;
    let hidden = disk.transport.hides_cache();
    match (disk.write_cache.or(disk.flushed).filter(|_| hidden.is_none()), set) {
        (None, _) => format!("whether the write cache of {own} is on cannot be seen from here"),
        (Some(now), Some(set)) if now != set => {
            let sets = if volume {
                format!("manylogs serve --write-cache {}", on_off(set))
            } else {
                format!("hdparm -W {} /dev/{own}", u8::from(set))
            };
            format!("the write cache of {own} is {} now: {sets} sets it", on_off(now))
        }
        (Some(now), _) => format!("the write cache of {own} is {} now: leave it", on_off(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sata() -> Attached {
        Attached {
            disk: "sdb".to_owned(),
            transport: Transport::Sata,
            flushed: Some(true),
            write_cache: Some(true),
            fua: Some(false),
            queue_depth: Some(32),
            rotational: Some(true),
            bytes: 20_000_588_955_648,
        }
    }

    fn said(drive: &str, disk: &Attached, given: LinkSettings) -> String {
        contradictions(&super::super::drive(drive).unwrap(), disk, given).join("; ")
    }

    #[test]
    fn what_contradicts_the_profile_is_said() {
        let usual = LinkSettings::default();
        assert_eq!(said("exos-x20", &sata(), usual), "");
        let text = said("cheetah-15k5", &sata(), usual);
        assert!(
            text.contains("cheetah-15k5 says sas, and sdb is on sata: the disk counts"),
            "{text}"
        );
        assert!(text.contains("sdb has 18.2 TiB"), "{text}");
        let told = Attached { fua: Some(true), ..sata() };
        let text = said("exos-x20", &told, usual);
        assert!(text.contains("FUA is off in the model of exos-x20, and on for sdb"), "{text}");
        let given = LinkSettings { kind: Some(LinkKind::Sas), fua: None };
        let text = said("exos-x20", &sata(), given);
        assert!(text.contains("--drive-link says sas") && text.contains("--drive-link counts"));
        let flash = Attached { rotational: Some(false), queue_depth: Some(1), ..sata() };
        let text = said("exos-x20", &flash, usual);
        assert!(text.contains("does not turn") && text.contains("that of sdb 1"), "{text}");
    }

    #[test]
    fn what_cannot_be_seen_is_not_guessed() {
        let hidden = Attached { transport: Transport::Usb, ..sata() };
        let text = said("exos-x20", &hidden, LinkSettings::default());
        assert!(text.contains("cannot be seen: a USB bridge"), "{text}");
        assert!(cache_now(&hidden, Some(false), true).contains("cannot be seen"));
        assert!(cache_now(&sata(), Some(false), true).contains("--write-cache off sets it"));
        assert!(cache_now(&sata(), Some(false), false).contains("hdparm -W 0 /dev/sdb sets it"));
        assert!(cache_now(&sata(), Some(true), true).contains("leave it"));
    }
}
