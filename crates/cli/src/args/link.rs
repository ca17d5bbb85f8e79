//! The link between host and modelled drive.

use clap::Args;
use manylogs_block::on_off;
use manylogs_disk::{LinkKind, LinkSettings};

use super::serve::OnOff;

/// What the profile says, where nothing is given.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct LinkArgs {
    /// The drive's link to the host: sata (a flush waits for what is in flight, and goes alone) or
    /// sas (also Fibre Channel: a flush is queued). As its profile says when not given.
    #[arg(long, value_name = "sata|sas")]
    pub(crate) drive_link: Option<LinkKind>,
    /// Whether the host is told that the drive takes forced unit access (FUA) while its write
    /// cache is on; else such a write is a write and a flush. As its profile says when not given.
    #[arg(long, value_enum, value_name = "on|off")]
    pub(crate) drive_fua: Option<OnOff>,
}

impl LinkArgs {
    /// As the model takes it.
    pub(crate) fn settings(self) -> LinkSettings {
        LinkSettings { kind: self.drive_link, fua: self.drive_fua.map(|fua| fua == OnOff::On) }
    }

    /// The name of an option that was given.
    pub(crate) const fn given(self) -> Option<&'static str> {
        match self {
            Self { drive_link: Some(_), .. } => Some("--drive-link"),
            Self { drive_fua: Some(_), .. } => Some("--drive-fua"),
            _ => None,
        }
    }

    /// The options again, for another process.
    pub(crate) fn again(self) -> Vec<String> {
        let settings = self.settings();
        let link =
            settings.kind.iter().flat_map(|kind| ["--drive-link".to_owned(), kind.to_string()]);
        let fua =
            settings.fua.iter().flat_map(|&fua| ["--drive-fua".to_owned(), on_off(fua).to_owned()]);
        link.chain(fua).collect()
    }
}
