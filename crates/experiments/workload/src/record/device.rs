//! The kernel's facts about a block device.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::RecordError;

/// A disk, or a partition as a range of its disk.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) model: String,
    /// The kernel's device number of the whole disk, as in the tracepoints.
    pub(super) disk_number: u64,
    /// First sector on the disk; 0 unless it is a partition.
    pub(super) start: u64,
    pub(super) sectors: u64,
    pub(super) is_partition: bool,
    pub(super) rotational: Option<bool>,
}

impl Device {
    /// Looks the block device at `path` up in sysfs.
    pub(super) fn find(path: &Path) -> Result<Self, RecordError> {
        let not_a_device =
            |reason: String| RecordError::NotBlockDevice { path: path.to_owned(), reason };
        let metadata = fs::metadata(path).map_err(|error| not_a_device(error.to_string()))?;
        if !metadata.file_type().is_block_device() {
            let kind = if metadata.is_dir() { "a directory" } else { "a file of another kind" };
            return Err(not_a_device(kind.to_owned()));
        }
        let (major, minor) = major_minor(metadata.st_rdev());
        let sysfs = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let sectors = number(&sysfs.join("size"))
            .ok_or_else(|| not_a_device(format!("{} has no size", sysfs.display())))?;
        let is_partition = sysfs.join("partition").exists();
        let disk = if is_partition { parent(&sysfs) } else { Some(sysfs.clone()) };
        let disk = disk.ok_or_else(|| not_a_device("its disk is not in sysfs".to_owned()))?;
        let disk_number = disk_number(&disk)
            .ok_or_else(|| not_a_device("its disk has no device number".to_owned()))?;
        Ok(Self {
            name: path.display().to_string(),
            model: model(&disk),
            disk_number,
            start: if is_partition { number(&sysfs.join("start")).unwrap_or(0) } else { 0 },
            sectors,
            is_partition,
            rotational: number(&disk.join("queue/rotational")).map(|value| value == 1),
        })
    }
}

/// Major and minor number of a device number in user space's form.
fn major_minor(rdev: u64) -> (u64, u64) {
    let major = rdev >> 8 & 0xfff | rdev >> 32 & 0xffff_f000;
    let minor = rdev & 0xff | rdev >> 12 & 0xffff_ff00;
    (major, minor)
}

/// The directory of the disk, which contains a partition's directory.
fn parent(partition: &Path) -> Option<PathBuf> {
    fs::canonicalize(partition).ok()?.parent().map(Path::to_owned)
}

/// The kernel's own device number: major << 20 | minor.
fn disk_number(disk: &Path) -> Option<u64> {
    let text = fs::read_to_string(disk.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    Some(major << 20 | minor)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The drive's model, or the backing of a virtual device.
fn model(disk: &Path) -> String {
    let sources = ["device/model", "loop/backing_file", "dm/name", "device/device"];
    let found = sources.iter().find_map(|source| fs::read_to_string(disk.join(source)).ok());
    found.map_or_else(String::new, |text| text.trim().to_owned())
}
