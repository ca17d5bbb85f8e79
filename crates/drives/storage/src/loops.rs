//! Loop devices, and the files and disks behind them.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::ioctl::loop_status;
use crate::sysfs::{DeviceNumber, Disk, SECTOR, System};

/// A file, by the file system that holds it and its number there: the same under all its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: DeviceNumber,
    pub(crate) inode: u64,
}

/// What bytes lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    File(FileId),
    Disk(DeviceNumber),
}

impl Object {
    /// What is at the path; `None` if nothing is, or nothing that has bytes.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        Self::of(&fs::metadata(path).ok()?)
    }

    pub(crate) fn of(metadata: &fs::Metadata) -> Option<Self> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            Some(Self::Disk(DeviceNumber::new(metadata.rdev())))
        } else {
            kind.is_file().then(|| Self::File(FileId::of(metadata)))
        }
    }
}

impl FileId {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Self { device: DeviceNumber::new(metadata.dev()), inode: metadata.ino() }
    }
}

/// A loop device that shows something.
#[derive(Clone, Debug)]
pub(crate) struct LoopDevice {
    pub(crate) disk: Disk,
    /// What it shows; `None` if that cannot be told: its path leads nowhere, and the user may not
    /// ask the device.
    pub(crate) backing: Option<Object>,
    /// The path by which it was attached. The file may be elsewhere by now.
    pub(crate) path: PathBuf,
    /// Where in that it begins, in bytes.
    pub(crate) offset: u64,
}

impl LoopDevice {
    /// Bytes of the object behind it that it shows.
    pub(crate) fn shows(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.disk.bytes())
    }
}

impl System {
    /// Loop devices that show something.
    pub(crate) fn loops(&self) -> Vec<LoopDevice> {
        let entries = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        entries.filter_map(|entry| self.loop_in(entry.path())).collect()
    }

    /// The loop device that `disk` is, a partition is none.
    pub(crate) fn loop_of(&self, disk: &Disk) -> Option<LoopDevice> {
        self.loop_in(disk.dir().to_owned())
    }

    fn loop_in(&self, dir: PathBuf) -> Option<LoopDevice> {
        let told = |name: &str| fs::read_to_string(dir.join("loop").join(name)).ok();
        let path = PathBuf::from(told("backing_file")?.trim_end_matches('\n'));
        let offset = told("offset").and_then(|offset| offset.trim().parse().ok()).unwrap_or(0);
        let disk = Disk::in_dir(dir)?;
        // The kernel knows the file itself. Its path may be that of another by now, and is the one
        // in the name space of whoever attached it.
        let asked = File::open(self.dev.join(disk.name())).and_then(|node| loop_status(&node));
        let backing = asked.ok().or_else(|| Object::at(&path));
        Some(LoopDevice { disk, backing, path, offset })
    }
}

/// Bytes of a partition before its disk's end, and where it begins there.
pub(crate) fn partition_start(disk: &Disk) -> Option<u64> {
    disk.attribute("start")?.parse::<u64>().ok()?.checked_mul(SECTOR)
}
