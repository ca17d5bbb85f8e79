//! Loop devices, and the files and disks behind them.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::ioctl::loop_status;
use crate::sysfs::{DeviceNumber, Disk, SECTOR, System};

/// Identifies a file by its file system and inode number, the same under all its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: DeviceNumber,
    pub(crate) inode: u64,
}

/// A file or disk that holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    File(FileId),
    Disk(DeviceNumber),
}

impl Object {
    /// The file or disk at the path; `None` if there is none.
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

/// A loop device with something behind it.
#[derive(Clone, Debug)]
pub(crate) struct LoopDevice {
    pub(crate) disk: Disk,
    /// The file or disk behind it. `None` if that is not known: its path leads nowhere, and the
    /// user may not ask the device.
    pub(crate) backing: Option<Object>,
    /// The path by which it was attached. The file may be elsewhere by now.
    pub(crate) path: PathBuf,
    /// Where in the file or disk the device begins, in bytes.
    pub(crate) offset: u64,
}

impl LoopDevice {
    /// The bytes of the file or disk behind it that the device shows.
    pub(crate) fn shows(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.disk.bytes())
    }
}

impl System {
    /// All loop devices that have something behind them.
    pub(crate) fn loops(&self) -> Vec<LoopDevice> {
        let entries = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        entries.filter_map(|entry| self.loop_in(entry.path())).collect()
    }

    /// The loop device that `disk` is; `None` for its partitions.
    pub(crate) fn loop_of(&self, disk: &Disk) -> Option<LoopDevice> {
        self.loop_in(disk.dir().to_owned())
    }

    fn loop_in(&self, dir: PathBuf) -> Option<LoopDevice> {
        let told = |name: &str| fs::read_to_string(dir.join("loop").join(name)).ok();
        let path = PathBuf::from(told("backing_file")?.trim_end_matches('\n'));
        let offset = told("offset").and_then(|offset| offset.trim().parse().ok()).unwrap_or(0);
        let disk = Disk::in_dir(dir)?;
        // The kernel knows the file itself. Its path may belong to another file by now, and is
        // valid only in the name space of the process that attached it.
        let asked = File::open(self.dev.join(disk.name())).and_then(|node| loop_status(&node));
        let backing = asked.ok().or_else(|| Object::at(&path));
        Some(LoopDevice { disk, backing, path, offset })
    }
}

/// Where a partition begins on its disk, in bytes.
pub(crate) fn partition_start(disk: &Disk) -> Option<u64> {
    disk.attribute("start")?.parse::<u64>().ok()?.checked_mul(SECTOR)
}
