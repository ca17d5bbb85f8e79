//! How a disk identifies itself: model, serial number, speed and link, from sysfs and the pages of
//! vital product data (VPD) that the kernel keeps there.
//!
//! `device/model` holds 16 characters. The whole model of an ATA disk stands in its IDENTIFY data,
//! which page 89h of the SCSI/ATA translation carries.

use std::fs;
use std::io;
use std::path::Path;

use crate::attached::Transport;
use crate::sysfs::Disk;

/// Where IDENTIFY data begins in page 89h (SAT-4, ATA information VPD page).
const IDENTIFY_AT: usize = 60;
/// Length of IDENTIFY data.
const IDENTIFY_BYTES: usize = 512;
/// Words of IDENTIFY data (ACS-3): serial number, model, nominal media rotation rate.
const SERIAL_WORDS: std::ops::Range<usize> = 10..20;
const MODEL_WORDS: std::ops::Range<usize> = 27..47;
const RATE_WORD: usize = 217;
/// Rates that mean revolutions a minute. Smaller ones mean "does not turn", or nothing.
const RATES: std::ops::Range<u16> = 0x0401..0xffff;
/// Vendor names of disks that a hypervisor emulates.
const HYPERVISORS: [&str; 7] = ["QEMU", "VBOX", "VMware", "Msft", "Virtual", "Google", "Nutanix"];

/// A disk as it describes itself. Facts that it does not report are empty or `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskIdentity {
    /// The kernel's name of the disk, such as `sdb`.
    pub name: String,
    /// The vendor; empty for `ATA`.
    pub vendor: String,
    /// The whole model.
    pub model: String,
    /// The serial number.
    pub serial: String,
    /// Revolutions a minute.
    pub rpm: Option<u32>,
    /// Whether the disk is rotational.
    pub rotational: Option<bool>,
    /// Length in sectors of 512 bytes.
    pub sectors: u64,
    /// The way to the disk.
    pub transport: Transport,
    /// Whether a hypervisor emulates the disk, so that its name is not a drive's.
    pub is_made_up: bool,
    /// Whether the host has to manage its zones.
    pub host_managed: bool,
    /// Number of address ranges with an actuator of their own; 1 if the disk does not say.
    pub actuators: u32,
}

/// Reads the identity of the disk at `path`, or of the disk of the partition there.
///
/// # Errors
/// If `path` is no block device, or the kernel does not describe it.
pub fn identify(path: &Path) -> io::Result<DiskIdentity> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = fs::metadata(path)?;
    if !metadata.file_type().is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a block device"));
    }
    let number = crate::sysfs::DeviceNumber::new(metadata.rdev());
    identify_in(&Path::new("/sys/dev/block").join(number.to_string()))
}

/// As [`identify`], from the directory of the disk or partition in sysfs or in a copy of it.
///
/// # Errors
/// If there is no such directory, or it is not a disk's.
pub fn identify_in(dir: &Path) -> io::Result<DiskIdentity> {
    let dir = fs::canonicalize(dir)?;
    let is_partition = dir.join("partition").exists();
    let dir = if is_partition { dir.join("..").canonicalize()? } else { dir };
    let disk = Disk::in_copy(dir);
    let size = disk.attribute("size");
    let sectors = size.and_then(|size| size.parse().ok()).ok_or_else(|| {
        let message = format!("{} has no size", disk.dir().display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })?;
    Ok(identity(&disk, sectors))
}

fn identity(disk: &Disk, sectors: u64) -> DiskIdentity {
    let ata = ata(disk);
    let own = |name: &str| disk.attribute(&format!("device/{name}")).unwrap_or_default();
    let told = |words| ata.as_ref().map(|ata| ata.text(words)).filter(|text| !text.is_empty());
    let vendor = own("vendor");
    let model = told(MODEL_WORDS).unwrap_or_else(|| own("model"));
    let serial = told(SERIAL_WORDS).or_else(|| page_80(disk)).unwrap_or_else(|| own("serial"));
    DiskIdentity {
        name: disk.name(),
        serial,
        rpm: ata.as_ref().and_then(Identify::rpm).or_else(|| page_b1(disk)),
        rotational: disk.queue("rotational").map(|value| value == "1"),
        sectors,
        transport: Transport::of(disk),
        is_made_up: HYPERVISORS
            .iter()
            .any(|name| vendor.starts_with(name) || model.starts_with(name)),
        host_managed: disk.queue("zoned").as_deref() == Some("host-managed"),
        actuators: actuators(disk),
        vendor,
        model,
    }
}

impl DiskIdentity {
    /// Whether there is no drive behind the disk: it is a loop device, a mapped device, an array,
    /// or a hypervisor's disk.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        self.is_made_up || matches!(self.transport, Transport::Virtual(_) | Transport::Made(_))
    }
}

fn page(disk: &Disk, name: &str) -> Option<Vec<u8>> {
    fs::read(disk.dir().join("device").join(name)).ok()
}

/// The IDENTIFY data of an ATA disk.
fn ata(disk: &Disk) -> Option<Identify> {
    let page = page(disk, "vpd_pg89")?;
    let data = page.get(IDENTIFY_AT..IDENTIFY_AT + IDENTIFY_BYTES)?;
    Some(Identify(data.to_vec()))
}

/// The serial number of page 80h: four bytes, of which two are the length, and text.
fn page_80(disk: &Disk) -> Option<String> {
    let page = page(disk, "vpd_pg80")?;
    let (head, rest) = page.split_first_chunk::<4>()?;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let serial = String::from_utf8_lossy(rest.get(..len.min(rest.len()))?).trim().to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// The speed of page B1h (SBC-4, block device characteristics).
fn page_b1(disk: &Disk) -> Option<u32> {
    let page = page(disk, "vpd_pgb1")?;
    let rate = page.get(4..6)?;
    rpm(u16::from_be_bytes([rate[0], rate[1]]))
}

fn actuators(disk: &Disk) -> u32 {
    let ranges = fs::read_dir(disk.dir().join("queue/independent_access_ranges"));
    let count = ranges.into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    u32::try_from(count.count()).unwrap_or(1).max(1)
}

/// IDENTIFY data: words of two bytes, the low one first.
struct Identify(Vec<u8>);

impl Identify {
    /// Text has the first character of a word in its high byte.
    fn text(&self, words: std::ops::Range<usize>) -> String {
        let bytes = self.0.get(2 * words.start..2 * words.end).unwrap_or_default();
        let swapped: Vec<u8> = bytes.chunks_exact(2).flat_map(|word| [word[1], word[0]]).collect();
        String::from_utf8_lossy(&swapped).trim_matches(['\0', ' ']).to_owned()
    }

    fn rpm(&self) -> Option<u32> {
        let word = self.0.get(2 * RATE_WORD..2 * RATE_WORD + 2)?;
        rpm(u16::from_le_bytes([word[0], word[1]]))
    }
}

fn rpm(rate: u16) -> Option<u32> {
    RATES.contains(&rate).then(|| u32::from(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory of a disk in a tree like sysfs.
    struct Tree(tempfile::TempDir, String);

    impl Tree {
        fn new(path: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join(path).join("queue")).unwrap();
            let tree = Self(dir, path.to_owned());
            tree.with("size", "35156656128\n").with("queue/rotational", "1\n")
        }

        fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
            let path = self.0.path().join(&self.1).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
            self
        }

        fn identity(&self) -> DiskIdentity {
            identify_in(&self.0.path().join(&self.1)).unwrap()
        }
    }

    fn page_89(model: &str, serial: &str, rate: u16) -> Vec<u8> {
        let mut page = vec![0; IDENTIFY_AT + IDENTIFY_BYTES];
        let mut put = |words: std::ops::Range<usize>, text: &str| {
            let padded = format!("{text:<width$}", width = 2 * words.len());
            for (word, pair) in words.zip(padded.as_bytes().chunks(2)) {
                page[IDENTIFY_AT + 2 * word] = pair[1];
                page[IDENTIFY_AT + 2 * word + 1] = pair[0];
            }
        };
        put(MODEL_WORDS, model);
        put(SERIAL_WORDS, serial);
        page[IDENTIFY_AT + 2 * RATE_WORD..][..2].copy_from_slice(&rate.to_le_bytes());
        page
    }

    #[test]
    fn an_ata_disk_has_its_whole_model_in_page_89() {
        let tree = Tree::new("pci0/ata1/host0/0:0:0:0/block/sda")
            .with("device/model", "ST18000NM000J-2T\n")
            .with("device/vendor", "ATA     \n")
            .with("device/vpd_pg89", page_89("ST18000NM000J-2TV103", "ZR512ABC", 7200));
        let found = tree.identity();
        assert_eq!(
            (found.model.as_str(), found.serial.as_str()),
            ("ST18000NM000J-2TV103", "ZR512ABC")
        );
        assert_eq!(
            (found.rpm, &found.transport, found.actuators),
            (Some(7200), &Transport::Sata, 1)
        );
        assert_eq!(found.sectors, 35_156_656_128);
        let partition = tree.with("sda1/partition", "1\n").with("sda1/size", "2048\n");
        let dir = partition.0.path().join(&partition.1).join("sda1");
        assert_eq!(identify_in(&dir).unwrap(), found);
    }

    #[test]
    fn a_scsi_disk_has_its_serial_number_in_page_80_and_its_speed_in_b1() {
        let tree = Tree::new("pci0/host1/port-1:0/end_device-1:0/block/sdb")
            .with("device/model", "ST900MP0006\n")
            .with("device/vendor", "SEAGATE \n")
            .with("device/vpd_pg80", [&[0, 0x80, 0, 8][..], b"WAB1CDE2"].concat())
            .with("device/vpd_pgb1", [&[0, 0xb1, 0, 60][..], &15_000_u16.to_be_bytes()].concat())
            .with("queue/zoned", "host-managed\n")
            .with("queue/independent_access_ranges/0/sector", "0\n")
            .with("queue/independent_access_ranges/1/sector", "9\n");
        let found = tree.identity();
        assert_eq!((found.serial.as_str(), found.rpm), ("WAB1CDE2", Some(15_000)));
        assert!(found.transport.is_scsi() && !found.is_virtual());
        assert_eq!((found.actuators, found.host_managed), (2, true));
    }

    #[test]
    fn what_hides_its_model_or_is_none_is_told() {
        let bridge = Tree::new("pci0/usb2/2-1/host6/6:0:0:0/block/sdc")
            .with("device/model", "External\n")
            .with("device/vendor", "Generic\n");
        assert_eq!((bridge.identity().transport, bridge.identity().rpm), (Transport::Usb, None));
        let image = Tree::new("virtual/block/loop0");
        assert!(image.identity().is_virtual());
        let guest = Tree::new("pci0/ata1/block/sda").with("device/model", "QEMU HARDDISK\n");
        assert!(guest.identity().is_virtual());
        let array = Tree::new("pci0/host0/target0:2:0/0:2:0:0/block/sda")
            .with("device/model", "LOGICAL VOLUME\n")
            .with("device/vendor", "HPE\n")
            .with("../../../../scsi_host/host0/proc_name", "hpsa\n");
        assert_eq!(array.identity().transport, Transport::Raid("hpsa".to_owned()));
        let short = Tree::new("pci0/ata1/block/sda")
            .with("device/model", "ST1000DM010-2EP\n")
            .with("device/vendor", "ATA\n")
            .with("device/vpd_pg89", [0_u8; 100])
            .with("device/vpd_pgb1", [0_u8; 5]);
        let found = short.identity();
        assert_eq!((found.model.as_str(), found.rpm), ("ST1000DM010-2EP", None));
        assert!(identify_in(&image.0.path().join("nowhere")).is_err());
        assert!(identify(image.0.path()).is_err());
    }
}
