//! Chooses the profile that models a disk: the user's by serial number, then the catalogue's by
//! model, then one for drives of its class.

use std::path::PathBuf;

use manylogs_disk::LinkKind;
use manylogs_disk::profile::sheet::Key;
use manylogs_disk::profile::{Library, Profile, ProfileError, Sheet, catalogued_model};
use manylogs_workload::RecordingInfo;
use thiserror::Error;

/// A profile and the reason for it.
#[derive(Debug)]
pub struct Chosen {
    /// The profile.
    pub profile: Profile,
    /// The reason.
    pub how: How,
}

/// The way in which a profile was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The serial number is in this profile of the user.
    Own(PathBuf),
    /// The model is in the catalogue.
    Catalogue,
    /// Only capacity, speed and link are known.
    Class,
}

impl How {
    /// The word in JSON.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Own(_) => "own",
            Self::Catalogue => "catalogue",
            Self::Class => "class",
        }
    }
}

impl Chosen {
    /// The profile and the reason, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
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

/// The known facts about a disk, from the machine or from a trace.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Name for a profile of its class.
    pub name: String,
    /// Its model, as the disk reports it.
    pub model: String,
    /// Its serial number; empty if not known.
    pub serial: String,
    /// Revolutions a minute.
    pub rpm: Option<u32>,
    /// Its capacity.
    pub sectors: u64,
    /// Its link to the host.
    pub link: Option<LinkKind>,
}

/// Why no profile fits a disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnknownDisk {
    /// A profile cannot be used, or two of the user's claim the disk.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Too little is known of the disk.
    #[error(
        "{name}: neither its model ({model:?}) is in the catalogue nor does it tell how fast it \
         turns: give --drive (`manylogs drive list`), or describe it with `manylogs drive new NAME \
         --capacity ... --rpm ...`"
    )]
    TooLittle {
        /// The disk.
        name: String,
        /// The model that it reports.
        model: String,
    },
}

impl Known {
    /// The facts in a recording; `None` if it describes no drive.
    #[must_use]
    pub fn of_trace(info: &RecordingInfo) -> Option<Self> {
        let tells = !info.serial.is_empty() || info.rpm.is_some() || !info.link.is_empty();
        tells.then(|| Self::noted(info))
    }

    /// The facts in a recording, however few.
    #[must_use]
    pub fn noted(info: &RecordingInfo) -> Self {
        Self {
            name: info.device.trim_start_matches("/dev/").to_owned(),
            model: info.model.clone(),
            serial: info.serial.clone(),
            rpm: info.rpm,
            sectors: info.sectors,
            link: info.link.parse().ok(),
        }
    }

    /// The profile that fits best.
    ///
    /// # Errors
    /// If two profiles claim the disk, or too little is known of it.
    pub fn choose(&self, library: &Library) -> Result<Chosen, UnknownDisk> {
        if let Some(own) = library.of_serial(&self.serial)? {
            return Ok(Chosen { profile: own.profile, how: How::Own(own.path) });
        }
        if let Some(sheet) = catalogued_model(&self.model)? {
            let profile = sheet.clone().profile(&sheet.name)?;
            return Ok(Chosen { profile, how: How::Catalogue });
        }
        let Some(rpm) = self.rpm else {
            let (name, model) = (self.name.clone(), self.model.clone());
            return Err(UnknownDisk::TooLittle { name, model });
        };
        let profile = self.of_class(rpm).profile(&self.name)?;
        Ok(Chosen { profile, how: How::Class })
    }

    /// A data sheet with capacity, speed and link, and defaults for the rest.
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
