//! The way to a disk, from its path in sysfs and the driver of its host adapter.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sysfs::Disk;

/// Drivers of controllers that make disks of their own from the drives: the cache is the
/// controller's.
const RAID: [&str; 9] =
    ["megaraid_sas", "hpsa", "smartpqi", "aacraid", "arcmsr", "3w-9xxx", "3w-sas", "ips", "stex"];
/// Drivers of disks that a host provides to its guests.
const VIRTUAL: [&str; 5] =
    ["virtio_scsi", "storvsc_host_t", "storvsc", "vmw_pvscsi", "xen-scsifront"];
/// Drivers of USB bridges.
const USB: [&str; 2] = ["usb-storage", "uas"];
/// Vendor that SCSI reports for an ATA drive whose controller translates.
const ATA_VENDOR: &str = "ATA";

/// The way from the kernel to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// SATA, by the kernel's own libata.
    Sata,
    /// A SATA drive behind a SAS controller that translates SYNCHRONIZE CACHE to FLUSH CACHE for
    /// the drive.
    SataBehindSas,
    /// SCSI over SAS, Fibre Channel or another link that hides nothing; with the driver's name.
    Scsi(String),
    /// A USB bridge, which does not report what the drive does.
    Usb,
    /// A RAID controller, with a cache in front of those of its drives; with the driver's name.
    Raid(String),
    /// A disk that a host provides to a guest; with the driver's name.
    Virtual(String),
    /// `NVMe`.
    Nvme,
    /// A device without hardware of its own: loop, mapped, array or network. With the disks that it
    /// is made of, if the kernel tells.
    Made(Vec<String>),
    /// Another kind of disk; with the kernel's name of it.
    Unknown(String),
}

impl Transport {
    pub(crate) fn of(disk: &Disk) -> Self {
        let name = disk.name();
        if !disk.is_hardware() {
            return Self::Made(disk.members().iter().map(Disk::name).collect());
        }
        let Ok(dir) = fs::canonicalize(disk.dir()) else { return Self::Unknown(name) };
        let parts: Vec<&str> = dir.iter().filter_map(|part| part.to_str()).collect();
        let numbered = |prefix| parts.iter().any(|part| is_numbered(part, prefix));
        let driver = adapter(&dir).unwrap_or_else(|| "unknown driver".to_owned());
        let is = |drivers: &[&str]| drivers.contains(&driver.as_str());
        if numbered("virtio") || is(&VIRTUAL) || parts.iter().any(|part| part.starts_with("vbd-")) {
            return Self::Virtual(if numbered("virtio") { "virtio".to_owned() } else { driver });
        }
        if numbered("usb") || is(&USB) {
            return Self::Usb;
        }
        if is(&RAID) {
            return Self::Raid(driver);
        }
        if numbered("nvme") {
            return Self::Nvme;
        }
        if !numbered("host") {
            return Self::Unknown(name);
        }
        let speaks_ata = disk.attribute("device/vendor").is_some_and(|v| v == ATA_VENDOR);
        let behind_sas = parts.iter().any(|part| part.starts_with("end_device-"));
        match (numbered("ata"), speaks_ata) {
            (true, _) if !behind_sas => Self::Sata,
            (true, _) | (false, true) => Self::SataBehindSas,
            (false, false) => Self::Scsi(driver),
        }
    }

    /// Whether the drive speaks ATA and is visible: its FLUSH CACHE is not queued.
    #[must_use]
    pub const fn is_sata(&self) -> bool {
        matches!(self, Self::Sata | Self::SataBehindSas)
    }

    /// Whether it is a visible SCSI drive: its flush is queued.
    #[must_use]
    pub const fn is_scsi(&self) -> bool {
        matches!(self, Self::Scsi(_))
    }

    /// Why the drive's cache cannot be seen or set from here; `None` if it is visible.
    #[must_use]
    pub fn hides_cache(&self) -> Option<String> {
        match self {
            Self::Sata | Self::SataBehindSas | Self::Scsi(_) => None,
            Self::Usb => Some("a USB bridge does not tell of the drive's cache".to_owned()),
            Self::Raid(driver) => Some(format!(
                "the RAID controller ({driver}) has a cache of its own, and hides those of its \
                 drives: its own tool shows and sets them"
            )),
            Self::Virtual(driver) => Some(format!(
                "the disk is a host's ({driver}): its cache is set there, and is not seen from \
                 here"
            )),
            Self::Nvme => Some("the cache of NVMe disks is not looked at".to_owned()),
            Self::Made(parts) if parts.is_empty() => {
                Some("it is no disk but made of something else, whose cache counts".to_owned())
            }
            Self::Made(parts) => {
                Some(format!("it is made of {}, whose caches count", parts.join(", ")))
            }
            Self::Unknown(_) => Some("the way to the disk is not known".to_owned()),
        }
    }

    /// Name for programs to read.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sata => "sata",
            Self::SataBehindSas => "sata-behind-sas",
            Self::Scsi(_) => "sas",
            Self::Usb => "usb",
            Self::Raid(_) => "raid",
            Self::Virtual(_) => "virtual",
            Self::Nvme => "nvme",
            Self::Made(_) => "made",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sata => f.write_str("SATA"),
            Self::SataBehindSas => f.write_str("SATA behind a SAS controller"),
            Self::Scsi(driver) => write!(f, "SAS or another SCSI link ({driver})"),
            Self::Usb => f.write_str("USB"),
            Self::Raid(driver) => write!(f, "a RAID controller ({driver})"),
            Self::Virtual(driver) => write!(f, "a host's ({driver})"),
            Self::Nvme => f.write_str("NVMe"),
            Self::Made(_) => f.write_str("made of others"),
            Self::Unknown(_) => f.write_str("an unknown link"),
        }
    }
}

/// Whether `part` is `prefix` followed by digits.
fn is_numbered(part: &str, prefix: &str) -> bool {
    part.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name that the SCSI host's driver gives itself, found from the disk's directory.
fn adapter(dir: &Path) -> Option<String> {
    let host: PathBuf = dir
        .ancestors()
        .find(|dir| {
            dir.file_name().and_then(|n| n.to_str()).is_some_and(|n| is_numbered(n, "host"))
        })?
        .to_owned();
    let name = host.file_name()?;
    let told = fs::read_to_string(host.join("scsi_host").join(name).join("proc_name")).ok()?;
    let told = told.trim();
    (!told.is_empty() && told != "<NULL>" && told != "(null)").then(|| told.to_owned())
}
