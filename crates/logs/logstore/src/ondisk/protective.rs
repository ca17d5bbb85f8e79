//! The protective MBR in the first sector of a volume, and of a drive of a chain.
//!
//! No other program knows the format, so mkfs used to take a volume for an empty disk. A protective
//! MBR (UEFI specification, section 5.2.3) says that the disk is in use. It is meant for programs
//! that know MBR partition tables only. libblkid calls it `PMBR`, mkfs of ext4 asks before it
//! overwrites one, and mkfs of XFS refuses to. The kernel makes no partition of it: it looks for a
//! GPT, and finds none.

use manylogs_block::{Sectors, narrow};

/// Where the MBR's table begins in the first sector.
pub const AT: usize = 446;
const LEN: usize = 66;
/// The kind of the partition: it says that a GPT describes the whole disk.
const PROTECTIVE: u8 = 0xee;
const MAGIC: [u8; 2] = [0x55, 0xaa];

/// A partition table whose only entry covers all of a device of `device` sectors but the first.
#[must_use]
pub fn mbr(device: Sectors) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    // Cylinder, head and sector of the second sector; then values too large for these fields.
    bytes[1..8].copy_from_slice(&[0, 2, 0, PROTECTIVE, 0xff, 0xff, 0xff]);
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    let rest: u32 = narrow(device.0.saturating_sub(1).min(u32::MAX.into()));
    bytes[12..16].copy_from_slice(&rest.to_le_bytes());
    bytes[64..].copy_from_slice(&MAGIC);
    bytes
}
