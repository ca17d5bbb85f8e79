//! The link between host and drive, and what the host is told of durable writes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The command set that the host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// ATA with native command queueing. FLUSH CACHE is no queued command: what is in flight ends
    /// first, nothing goes beside it.
    Sata,
    /// SCSI, over SAS or Fibre Channel. SYNCHRONIZE CACHE is queued as any other command.
    Sas,
}

/// A drive's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The command set.
    pub kind: LinkKind,
    /// Whether the host is told that the drive takes forced unit access, as `queue/fua` of Linux
    /// has it while the drive's write cache is on. Else the host writes and flushes.
    pub fua: bool,
}

/// What of a drive's link is meant instead of what its profile says. `None` means: as there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// The command set.
    pub kind: Option<LinkKind>,
    /// Whether the host is told of forced unit access.
    pub fua: Option<bool>,
}

impl LinkKind {
    /// Every one there is.
    pub const ALL: [Self; 2] = [Self::Sata, Self::Sas];

    /// Name in profiles, options and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sata => "sata",
            Self::Sas => "sas",
        }
    }

    /// What Linux says of forced unit access over this link, unless somebody changed it: libata
    /// hides it (`libata.fua=0`), SCSI disks are asked.
    #[must_use]
    pub const fn usual_fua(self) -> bool {
        matches!(self, Self::Sas)
    }
}

impl Link {
    /// A link as Linux has it, unless somebody changed that.
    #[must_use]
    pub const fn usual(kind: LinkKind) -> Self {
        Self { kind, fua: kind.usual_fua() }
    }
}

impl LinkSettings {
    /// `link` with these settings. A link of another kind than the profile's has the usual FUA of
    /// its kind, unless that is set, too.
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
