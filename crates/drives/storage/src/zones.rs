//! Zoned disks: shingled disks that report their zones to the host.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use manylogs_block::Sectors;

use crate::sysfs::{DeviceNumber, System};

/// The zones of a disk, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Length of each zone.
    pub len: Sectors,
    /// Whether the disk refuses writes that are not at a zone's write pointer.
    pub managed_by_host: bool,
}

/// The zones of the disk at `path`; `None` if it has none, or is no disk. A drive that manages its
/// zones itself reports none.
#[must_use]
pub fn zones(path: &Path) -> Option<Zones> {
    let metadata = path.metadata().ok()?;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    let disk = System::this().disk(DeviceNumber::new(metadata.rdev()));
    from_queue(&disk.queue("zoned")?, disk.limit("chunk_sectors"))
}

/// Reads them from the attributes `zoned` and `chunk_sectors`.
fn from_queue(zoned: &str, chunk_sectors: u64) -> Option<Zones> {
    let managed_by_host = match zoned {
        "host-managed" => true,
        "host-aware" => false,
        _ => return None,
    };
    Some(Zones { len: Sectors(chunk_sectors), managed_by_host })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let zones = |managed_by_host| Zones { len: Sectors(1 << 19), managed_by_host };
        assert_eq!(from_queue("host-managed", 1 << 19), Some(zones(true)));
        assert_eq!(from_queue("host-aware", 1 << 19), Some(zones(false)));
        assert_eq!(from_queue("none", 0), None);
    }

    #[test]
    fn a_file_has_no_zones() {
        assert_eq!(super::zones(Path::new("/proc/self/exe")), None);
    }
}
