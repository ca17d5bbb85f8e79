//! The layout of a device that has logs of one length and little else.
//!
//! ```text
//!  LBA 0        8        32       56   64                                end - 8
//!  +------------+--------+--------+----+-------+-------+-- ... --+------+------------+
//!  | superblock | root 0 | root 1 | 0  | log 0 | log 1 |         | 0    | superblock |
//!  +------------+--------+--------+----+-------+-------+-- ... --+------+------------+
//! ```
//! A superblock begins with eight bytes of magic and a CRC-32C of its content. The checksum counts
//! as zeroes in it.

use manylogs_block::{Extent, Lba, Sectors, to_usize};

use super::root::ROOT_SECTORS;
use crate::store::Device;

/// Sectors of a superblock.
pub const SUPERBLOCK: Sectors = Sectors(8);
/// First sector of the logs, or of what a system keeps in front of them.
pub const LOGS_FROM: Sectors = Sectors(64);
/// The two places of a root.
pub const ROOTS: [Extent; 2] = [
    Extent { start: Lba(SUPERBLOCK.0), len: ROOT_SECTORS },
    Extent { start: Lba(SUPERBLOCK.0 + ROOT_SECTORS.0), len: ROOT_SECTORS },
];
/// Bytes of a superblock's checksum, behind the magic.
const CHECKSUM: std::ops::Range<usize> = 8..12;

/// Places of the copies of the superblock on a device of this size.
#[must_use]
pub fn superblocks(device: Sectors) -> [Extent; 2] {
    let last = device.0 / SUPERBLOCK.0 * SUPERBLOCK.0 - SUPERBLOCK.0;
    [Lba(0), Lba(last)].map(|start| Extent { start, len: SUPERBLOCK })
}

/// Number of logs of length `log` that a device of this size has room for.
#[must_use]
pub fn log_count(device: Sectors, log: Sectors) -> u64 {
    let space = device.0.saturating_sub(LOGS_FROM.0 + 2 * SUPERBLOCK.0);
    space.checked_div(log.0).unwrap_or(0)
}

/// Least size of a device with this many logs.
#[must_use]
pub const fn least_device(logs: u64, log: Sectors) -> Sectors {
    Sectors(LOGS_FROM.0 + 2 * SUPERBLOCK.0 + logs * log.0)
}

/// The logs of `device`, in order of address.
pub fn logs(device: Device, count: u64, log: Sectors) -> impl Iterator<Item = (Device, Extent)> {
    logs_behind(Sectors(0), device, count, log)
}

/// As [`logs`], where the system keeps so much in front of them.
pub fn logs_behind(
    front: Sectors,
    device: Device,
    count: u64,
    log: Sectors,
) -> impl Iterator<Item = (Device, Extent)> {
    let from = LOGS_FROM.0 + front.0;
    (0..count).map(move |i| (device, Extent::new(from + i * log.0, log.0)))
}

/// The bytes of a superblock with the content `raw`, in which the checksum is zero.
#[must_use]
pub fn seal(raw: &[u8]) -> Vec<u8> {
    let mut bytes = raw.to_vec();
    bytes[CHECKSUM].copy_from_slice(&crc32c::crc32c(raw).to_le_bytes());
    bytes.resize(to_usize(SUPERBLOCK.bytes()), 0);
    bytes
}

/// Whether the checksum of a superblock's content `raw` is right.
#[must_use]
pub fn is_whole(raw: &[u8]) -> bool {
    let Some(checksum) = raw.get(CHECKSUM) else { return false };
    let front = crc32c::crc32c(&raw[..CHECKSUM.start]);
    let zeroed = crc32c::crc32c_append(front, &[0; 4]);
    crc32c::crc32c_append(zeroed, &raw[CHECKSUM.end..]).to_le_bytes() == checksum
}
