//! The link between host and drive, and what the host knows about the drive's FUA.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The command set that the host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// ATA with native command queueing. FLUSH CACHE is not a queued command: commands in flight
    /// end first, and no command goes beside it.
    Sata,
    /// SCSI, over SAS or Fibre Channel. SYNCHRONIZE CACHE is queued like any other command.
    Sas,
}

/// A drive's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The command set.
    pub kind: LinkKind,
    /// Whether the host knows that the drive takes forced unit access, as Linux shows in
    /// `queue/fua` while the drive's write cache is on. Otherwise the host writes and then flushes.
    pub fua: bool,
}

/// Settings that replace those of the profile's link. `None` keeps the profile's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// The command set.
    pub kind: Option<LinkKind>,
    /// Whether the host knows that the drive takes forced unit access.
    pub fua: Option<bool>,
}

impl LinkKind {
    /// All kinds of link.
    pub const ALL: [Self; 2] = [Self::Sata, Self::Sas];

    /// Name in profiles, options and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sata => "sata",
            Self::Sas => "sas",
        }
    }

    /// Linux' default for forced unit access over this link: libata hides it (`libata.fua=0`), SCSI
    /// disks are asked.
    #[must_use]
    pub const fn usual_fua(self) -> bool {
        matches!(self, Self::Sas)
    }
}

impl Link {
    /// A link with Linux' default settings.
    #[must_use]
    pub const fn usual(kind: LinkKind) -> Self {
        Self { kind, fua: kind.usual_fua() }
    }
}

impl LinkSettings {
    /// `link` with these settings applied. If they change its kind, FUA is the usual one of that
    /// kind, unless FUA is set, too.
    #[must_use]
    pub fn over(self, link: Link) -> Link {
        let kind = self.kind.unwrap_or(link.kind);
        let told = if kind == link.kind { link.fua } else { kind.usual_fua() };
        Link { kind, fua: self.fua.unwrap_or(told) }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for LinkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("expected sata or sas (Fibre Channel, too), found {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_of_link_has_its_own_fua() {
        let sata = Link::usual(LinkKind::Sata);
        assert_eq!(sata, Link { kind: LinkKind::Sata, fua: false });
        let sas = LinkSettings { kind: Some(LinkKind::Sas), fua: None };
        assert_eq!(sas.over(sata), Link { kind: LinkKind::Sas, fua: true });
        let told = LinkSettings { kind: None, fua: Some(true) };
        assert_eq!(told.over(sata), Link { kind: LinkKind::Sata, fua: true });
        assert_eq!(LinkSettings::default().over(sata), sata);
    }

    #[test]
    fn names_read_back_and_others_are_refused() {
        for kind in LinkKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for bad in ["", "SATA", "nvme", "scsi"] {
            assert!(bad.parse::<LinkKind>().unwrap_err().contains("sata or sas"), "{bad}");
        }
    }
}
