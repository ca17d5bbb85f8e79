//! Which profile a disk is modelled by: its own by serial number, then the catalogue's by model,
//! then what drives of its class have.

use std::path::{Path, PathBuf};

use manylogs_disk::LinkKind;
use manylogs_disk::profile::sheet::Key;
use manylogs_disk::profile::{Library, Profile, Sheet, catalogued_model};
use manylogs_storage::{DiskIdentity, Transport, identify};
use manylogs_workload::{RecordingInfo, read_info};

use super::{assumptions, profile_failure};
use crate::commands::link::link_of;
use crate::failure::Failure;

/// A profile and the reason for it.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) profile: Profile,
    pub(crate) how: How,
}

/// The way in which a profile was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The serial number stands in this profile of the user's.
    Own(PathBuf),
    /// The model is in the catalogue.
    Catalogue,
    /// Capacity, speed and link are all that is known.
    Class,
}

impl How {
    /// The word in JSON.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Own(_) => "own",
            Self::Catalogue => "catalogue",
            Self::Class => "class",
        }
    }
}

impl Chosen {
    /// Which profile, and why, in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let name = &self.profile.name;
        match &self.how {
            How::Own(path) => {
                format!("it is modelled by {}, which names its serial number", path.display())
            }
            How::Catalogue => format!("it is modelled by `{name}` of the catalogue, by its model"),
            How::Class => format!(
                "its model is not in the catalogue: it is modelled as drives of its class, {} \
                 rpm and {}; `manylogs drive new NAME --serial ...` describes it by its data sheet",
                self.profile.rpm().round(),
                self.profile.link().kind
            ),
        }
    }
}

/// What is known of a disk, from the machine or from a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) serial: String,
    pub(crate) rpm: Option<u32>,
    pub(crate) sectors: u64,
    pub(crate) link: Option<LinkKind>,
}

impl Known {
    pub(crate) fn of_disk(disk: &DiskIdentity) -> Self {
        Self {
            name: disk.name.clone(),
            model: disk.model.clone(),
            serial: disk.serial.clone(),
            rpm: disk.rpm,
            sectors: disk.sectors,
            link: link_of(&disk.transport),
        }
    }

    /// What a recording notes; none if it notes no drive.
    pub(crate) fn of_trace(info: &RecordingInfo) -> Option<Self> {
        let tells = !info.serial.is_empty() || info.rpm.is_some() || !info.link.is_empty();
        tells.then(|| Self {
            name: info.device.trim_start_matches("/dev/").to_owned(),
            model: info.model.clone(),
            serial: info.serial.clone(),
            rpm: info.rpm,
            sectors: info.sectors,
            link: info.link.parse().ok(),
        })
    }

    /// The profile that fits best.
    ///
    /// # Errors
    /// When two profiles claim the disk, or too little is known of it.
    pub(crate) fn choose(&self, library: &Library) -> Result<Chosen, Failure> {
        let failure = |error| profile_failure(&error);
        if let Some(own) = library.of_serial(&self.serial).map_err(failure)? {
            return Ok(Chosen { profile: own.profile, how: How::Own(own.path) });
        }
        if let Some(sheet) = catalogued_model(&self.model).map_err(failure)? {
            let profile = sheet.clone().profile(&sheet.name).map_err(failure)?;
            return Ok(Chosen { profile, how: How::Catalogue });
        }
        let Some(rpm) = self.rpm else {
            return Err(Failure::input(format!(
                "{}: neither its model ({:?}) is in the catalogue nor does it tell how fast it \
                 turns: give --drive (`manylogs drive list`), or describe it with `manylogs drive \
                 new NAME --capacity ... --rpm ...`",
                self.name, self.model
            )));
        };
        let profile = self.of_class(rpm).profile(&self.name).map_err(failure)?;
        Ok(Chosen { profile, how: How::Class })
    }

    /// Capacity, speed and link, and defaults for the rest.
    fn of_class(&self, rpm: u32) -> Sheet {
        let told = "measurement: the disk says so";
        let mut sheet = Sheet::new(if self.name.is_empty() { "disk" } else { &self.name });
        sheet.model.clone_from(&self.model);
        sheet.state(Key::Capacity, self.sectors as f64, told);
        sheet.state(Key::Rpm, f64::from(rpm), told);
        sheet.link = self.link;
        if self.link.is_some() {
            sheet.other_sources.insert("link".to_owned(), told.to_owned());
        }
        sheet
    }
}

/// The drive that the disk at `path` is, and says by which profile it is modelled.
pub(crate) fn of_disk(path: &Path) -> Result<Profile, Failure> {
    let found = disk(path)?;
    let chosen = Known::of_disk(&found).choose(&Library::of_user())?;
    eprintln!("note: {}: {}", path.display(), chosen.sentence());
    for missing in not_modelled(&found) {
        eprintln!("note: {}: {missing}", path.display());
    }
    Ok(chosen.profile)
}

/// The drive of a volume: that of --drive, or the one that the disk at `path` is found to be; none
/// where it is not found, as in an image. With what is to be said of it.
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
    let chosen = Known::of_disk(&found).choose(&Library::of_user()).ok()?;
    Some((found, chosen))
}

/// The same for `format`, which lays the volume out for the drive: with all that is guessed of it,
/// and not modelled.
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

/// The drive that a trace was recorded on, if it notes that and enough is known of it; says which.
pub(crate) fn of_trace(path: &Path) -> Option<Profile> {
    let known = Known::of_trace(&read_info(path).ok()?)?;
    let drive = if known.model.is_empty() { &known.name } else { &known.model };
    match known.choose(&Library::of_user()) {
        Ok(chosen) => {
            eprintln!("note: recorded on {drive}: {}", chosen.sentence());
            Some(chosen.profile)
        }
        Err(error) => {
            eprintln!("note: recorded on {drive}, which is not modelled: {}", error.message());
            None
        }
    }
}

/// Reads what the disk at `path` says of itself, and refuses what no profile can stand for.
pub(crate) fn disk(path: &Path) -> Result<DiskIdentity, Failure> {
    let found =
        identify(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    check(&path.display().to_string(), &found, &Library::of_user())?;
    Ok(found)
}

/// Refuses what does not turn, and what stands for no disk.
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

/// Whether a profile names the disk by its serial number, or the catalogue its model. Two profiles
/// that name it are an error of its own.
fn is_named(disk: &DiskIdentity, library: &Library) -> bool {
    !matches!(library.of_serial(&disk.serial), Ok(None))
        || !matches!(catalogued_model(&disk.model), Ok(None))
}

/// What the model does not have of this disk.
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
