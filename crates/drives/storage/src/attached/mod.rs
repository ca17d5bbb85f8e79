//! How the kernel reaches a disk: the link, the drive's write cache, forced unit access, the queue.
//!
//! Everything comes from what sysfs reports for the whole disk. If a controller, a bridge or a host
//! stands between, sysfs describes that and not the drive, and [`Transport::hides_cache`] says so.

mod cache;
mod held;
mod note;
mod transport;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

pub(crate) use cache::may_change;
pub use cache::{CacheError, CacheSwitch, NoSwitch};
pub use held::{HeldCache, HoldError, Noted, Released, noted, settle};
pub use transport::Transport;

use crate::sysfs::{DeviceNumber, Disk, System};

/// A disk and the way to it, as the kernel reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The kernel's name of the whole disk, such as `sdb`.
    pub disk: String,
    /// The way to the disk.
    pub transport: Transport,
    /// Whether the kernel takes the disk for one with a volatile write cache
    /// (`queue/write_cache`), and sends it flushes. `None` if it does not say.
    pub flushed: Option<bool>,
    /// Whether the drive's own write cache is on (`scsi_disk/*/cache_type`). `None` for disks of
    /// other kinds.
    pub write_cache: Option<bool>,
    /// Whether the kernel sends the disk writes with forced unit access (`queue/fua`). If not, such
    /// a write becomes a write and a flush. `None` if the kernel does not say.
    pub fua: Option<bool>,
    /// Number of commands that the disk is given at a time (`device/queue_depth`).
    pub queue_depth: Option<u32>,
    /// Whether the disk is rotational (`queue/rotational`). `None` if the kernel does not say.
    pub rotational: Option<bool>,
    /// Length in bytes, zero if the kernel does not say.
    pub bytes: u64,
}

impl Attached {
    /// What the kernel reports for the disk, or for the disk of the partition, at `path`. `None`
    /// for a file, and if the path cannot be examined.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        Some(Self::of(&whole_disk(&System::this(), path)?))
    }

    fn of(disk: &Disk) -> Self {
        let word = |name: &str| disk.queue(name);
        let flag = |name: &str| {
            word(name).and_then(|value| match value.as_str() {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            })
        };
        Self {
            disk: disk.name(),
            transport: Transport::of(disk),
            flushed: word("write_cache").and_then(|mode| match mode.as_str() {
                "write back" => Some(true),
                "write through" => Some(false),
                _ => None,
            }),
            write_cache: cache::read(disk),
            fua: flag("fua"),
            queue_depth: disk.attribute("device/queue_depth").and_then(|text| text.parse().ok()),
            rotational: flag("rotational"),
            bytes: disk.bytes(),
        }
    }

    /// Whether each durable write makes the drive's whole queue end first: it is sent as a write
    /// and a FLUSH CACHE, which SATA drives do not queue. Known only if the drive is visible.
    #[must_use]
    pub fn drains_queue(&self) -> bool {
        let one_by_one = self.queue_depth.is_some_and(|depth| depth <= 1);
        self.transport.is_sata()
            && self.flushed == Some(true)
            && self.fua == Some(false)
            && !one_by_one
    }

    /// Whether the kernel drops flushes although the drive's own cache is on, because `write
    /// through` was written into `queue/write_cache`. A power cut may then lose writes that were
    /// acknowledged as durable.
    #[must_use]
    pub fn drops_flushes(&self) -> bool {
        self.write_cache == Some(true) && self.flushed == Some(false)
    }
}

/// The whole disk of the block device at `path`; `None` if it is no block device.
fn whole_disk(system: &System, path: &Path) -> Option<Disk> {
    let metadata = fs::metadata(path).ok()?;
    let number = metadata.file_type().is_block_device().then(|| metadata.rdev())?;
    system.disk(DeviceNumber::new(number)).whole_disk()
}

#[cfg(test)]
mod tests;
