//! Attributes of disks in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use manylogs_block::Sectors;

use crate::mapped::{Tables, table_of_kernel};

/// Unit of lengths in sysfs, whatever the size of the disk's sectors.
pub(crate) const SECTOR: u64 = 512;

/// Directories in which the kernel describes the machine. Tests have trees of their own.
#[derive(Clone, Debug)]
pub(crate) struct System {
    pub(crate) sys: PathBuf,
    pub(crate) dev: PathBuf,
    pub(crate) proc: PathBuf,
    /// Tells the tables of mapped devices.
    pub(crate) tables: Tables,
}

impl System {
    /// The directories of this machine.
    pub(crate) fn this() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            proc: "/proc".into(),
            tables: table_of_kernel,
        }
    }

    pub(crate) fn disk(&self, number: DeviceNumber) -> Disk {
        Disk { number, dir: self.sys.join(format!("dev/block/{number}")) }
    }
}

/// A disk or a partition, by its device number.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) number: DeviceNumber,
    dir: PathBuf,
}

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    pub(crate) fn new(number: u64) -> Self {
        Self { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }

    /// Decodes a number in the form in which the kernel passes it to programs.
    pub(crate) const fn decoded(number: u64) -> Self {
        let number = (number & 0xffff_ffff) as u32;
        Self { major: (number >> 8) & 0xfff, minor: (number & 0xff) | ((number >> 12) & 0xf_ff00) }
    }

    /// Reads a number such as `8:1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Disk {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kernel's name of the disk, as in `/dev`.
    pub(crate) fn name(&self) -> String {
        let dir = fs::canonicalize(&self.dir).ok();
        let name = dir.as_ref().and_then(|dir| dir.file_name()?.to_str());
        name.map_or_else(|| self.number.to_string(), |name| name.replace('!', "/"))
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.dir.join(name)).ok()?.trim().to_owned())
    }

    /// A property of the disk's queue; for a partition that of its disk.
    pub(crate) fn queue(&self, name: &str) -> Option<String> {
        let own = self.attribute(&format!("queue/{name}"));
        own.or_else(|| self.attribute(&format!("../queue/{name}")))
    }

    /// A number from the disk's queue, zero if unknown.
    pub(crate) fn limit(&self, name: &str) -> u64 {
        self.queue(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// The directory of the whole disk, also for a partition.
    fn whole(&self) -> PathBuf {
        if self.dir.join("partition").exists() { self.dir.join("..") } else { self.dir.clone() }
    }

    /// Whether there is hardware behind the disk, not only a driver: loop devices, mapped devices,
    /// arrays, compressed memory and network block devices have none.
    pub(crate) fn is_hardware(&self) -> bool {
        self.whole().join("device").exists()
    }

    /// Whether the kernel tells the disk which commands have priority. It does so for ATA disks
    /// with NCQ priority, if the administrator has enabled it.
    pub(crate) fn has_priorities(&self) -> bool {
        let enabled = fs::read_to_string(self.whole().join("device/ncq_prio_enable"));
        enabled.is_ok_and(|value| value.trim() == "1")
    }

    /// Whether the kernel assumes that the disk has no volatile cache, and therefore ends flushes
    /// without sending them.
    pub(crate) fn drops_flushes(&self) -> bool {
        self.queue("write_cache").is_some_and(|mode| mode == "write through")
    }

    /// The whole disk, also for a partition.
    pub(crate) fn whole_disk(&self) -> Option<Self> {
        Self::in_dir(self.whole())
    }

    /// Length in bytes, zero if unknown.
    pub(crate) fn bytes(&self) -> u64 {
        let sectors = self.attribute("size").and_then(|size| size.parse().ok()).unwrap_or(0);
        SECTOR.saturating_mul(sectors)
    }

    /// The disks that a mapped device or an array is made of.
    pub(crate) fn members(&self) -> Vec<Self> {
        let below = fs::read_dir(self.dir.join("slaves")).into_iter().flatten().flatten();
        below.filter_map(|entry| Self::in_dir(entry.path())).collect()
    }

    /// See [`manylogs_block::Capabilities::untorn`]: of an array or a mapped device, what the
    /// member with the shortest physical sector writes at once.
    pub(crate) fn untorn(&self) -> Sectors {
        let members = self.whole_disk().map(|disk| disk.members()).unwrap_or_default();
        let own = || Sectors::from_bytes_ceil(self.limit("physical_block_size")).max(Sectors(1));
        members.iter().map(Self::untorn).min().unwrap_or_else(own)
    }

    /// The loop devices that this disk is, or is made of.
    pub(crate) fn loops_below(&self) -> Vec<Self> {
        let whole = self.whole();
        let members = Self::in_dir(whole.clone()).map(|disk| disk.members()).unwrap_or_default();
        let mut found: Vec<Self> =
            members.into_iter().flat_map(|disk| disk.loops_below()).collect();
        if whole.join("loop").exists() {
            found.extend(Self::in_dir(whole));
        }
        found
    }

    /// The disk in a copy of sysfs, which may lack its number.
    pub(crate) fn in_copy(dir: PathBuf) -> Self {
        let nameless = DeviceNumber { major: 0, minor: 0 };
        Self::in_dir(dir.clone()).unwrap_or(Self { number: nameless, dir })
    }

    pub(crate) fn in_dir(dir: PathBuf) -> Option<Self> {
        let number = DeviceNumber::parse(&fs::read_to_string(dir.join("dev")).ok()?)?;
        Some(Self { number, dir })
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.attribute("ro").is_some_and(|value| value == "1")
    }

    /// The disk and its partitions.
    pub(crate) fn with_partitions(&self) -> Vec<Self> {
        let mut found = vec![self.clone()];
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let dirs = entries.map(|entry| entry.path());
        found.extend(dirs.filter(|dir| dir.join("partition").exists()).filter_map(Self::in_dir));
        found
    }

    /// Names of the devices that are made of this one: mapped devices, arrays.
    pub(crate) fn holders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("holders")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_the_disks_own_and_its_partitions_too() {
        for (told, has) in [(Some("1\n"), true), (Some("0\n"), false), (None, false)] {
            let dir = tempfile::tempdir().unwrap();
            let (disk, partition) = (dir.path(), dir.path().join("sdb1"));
            fs::create_dir(disk.join("device")).unwrap();
            fs::create_dir(&partition).unwrap();
            fs::write(disk.join("dev"), "8:16\n").unwrap();
            fs::write(partition.join("dev"), "8:17\n").unwrap();
            fs::write(partition.join("partition"), "1\n").unwrap();
            if let Some(told) = told {
                fs::write(disk.join("device/ncq_prio_enable"), told).unwrap();
            }
            for dir in [disk, &partition] {
                let disk = Disk::in_dir(dir.to_owned()).unwrap();
                assert_eq!(disk.has_priorities(), has, "{told:?} {dir:?}");
            }
        }
    }
}
