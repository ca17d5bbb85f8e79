//! The bytes of a store on its devices besides the logs and the root: the superblock.
//!
//! The layout of a device is that of [`equal_logs`]. Logs are numbered through all devices. A store
//! on one device has both roots there. One on several has root 0 on the first and root 1 on the
//! second; while one of these is gone, both are on the other. In format version 1 the first device
//! has both.

use bytes_of_superblock::{BYTES, Raw};
use manylogs_block::{Extent, Sectors, narrow};
use manylogs_engine::RootSlot;
use manylogs_logstore::VolumeId;
use manylogs_logstore::ondisk::equal_logs::{self, ROOTS};
use manylogs_logstore::store::Device;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::StoreError;

const MAGIC: [u8; 8] = *b"EVERSTOR";
/// The format of a store with both roots on its first device.
const ROOTS_ON_ONE: u32 = 1;
/// The format of a store whose two roots are on two devices.
const ROOTS_ON_TWO: u32 = 2;
/// The format of a store with room for its table. The roots are as in the two others, by the number
/// of devices.
const WITH_TABLE: u32 = 3;
/// Least number of logs of a device. One and a half are reserved for cleaning and deletions, and
/// each log is left while it still has room for the largest record.
const LOGS_LEAST: u64 = 6;

mod bytes_of_superblock {
    #![allow(missing_docs, reason = "fields of the format, named as in its description")]

    use zerocopy::little_endian::{U16, U32, U64};
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct Raw {
        pub magic: [u8; 8],
        pub checksum: U32,
        pub version: U32,
        pub store: [u8; 16],
        pub device: U16,
        pub devices: U16,
        pub physical_sectors: U32,
        pub log_sectors: U64,
        pub device_sectors: U64,
    }

    pub(super) const BYTES: usize = size_of::<Raw>();
    const _: () = assert!(BYTES == 56);
}

/// Bytes of a superblock with room for a table.
const WITH_TABLE_BYTES: usize = BYTES + size_of::<u64>();

/// Label of a device of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) store: VolumeId,
    /// The device's number in the store; the next field is the number of devices.
    pub(crate) device: u16,
    pub(crate) devices: u16,
    pub(crate) physical: Sectors,
    pub(crate) log: Sectors,
    pub(crate) sectors: Sectors,
    /// Whether the two roots are on two devices.
    pub(crate) roots_on_two: bool,
    /// Room for the table that an orderly close leaves, before the last copy of the superblock.
    /// `None` in stores of older formats, and zero on all devices but the first.
    pub(crate) table: Option<Sectors>,
}

impl Superblock {
    /// Places of the copies on a device of this size.
    pub(crate) fn places(sectors: Sectors) -> [Extent; 2] {
        equal_logs::superblocks(sectors)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U32::new(match self.table {
                Some(_) => WITH_TABLE,
                None if self.roots_on_two => ROOTS_ON_TWO,
                None => ROOTS_ON_ONE,
            }),
            store: self.store,
            device: U16::new(self.device),
            devices: U16::new(self.devices),
            physical_sectors: U32::new(narrow(self.physical.0)),
            log_sectors: U64::new(self.log.0),
            device_sectors: U64::new(self.sectors.0),
        };
        match self.table {
            None => equal_logs::seal(raw.as_bytes()),
            Some(table) => equal_logs::seal(&[raw.as_bytes(), &table.0.to_le_bytes()].concat()),
        }
    }

    /// The superblock in `bytes`; `None` if it is not whole, or says something impossible.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Self, StoreError>> {
        let raw = Raw::read_from_bytes(bytes.get(..BYTES)?).ok()?;
        if raw.magic != MAGIC {
            return None;
        }
        let (found, known) = (raw.version.get(), WITH_TABLE);
        if !(ROOTS_ON_ONE..=known).contains(&found) {
            return Some(Err(StoreError::Version { found, known }));
        }
        let table = match found {
            WITH_TABLE => Some(bytes.get(BYTES..WITH_TABLE_BYTES)?),
            _ => None,
        };
        let sectors = |bytes: &[u8]| U64::read_from_bytes(bytes).ok().map(|found| found.get());
        let table = table.and_then(sectors).map(Sectors);
        let superblock = Self {
            store: raw.store,
            device: raw.device.get(),
            devices: raw.devices.get(),
            physical: Sectors(raw.physical_sectors.get().into()),
            log: Sectors(raw.log_sectors.get()),
            sectors: Sectors(raw.device_sectors.get()),
            roots_on_two: found == ROOTS_ON_TWO || (found == WITH_TABLE && raw.devices.get() > 1),
            table,
        };
        let of_checksum = if table.is_some() { WITH_TABLE_BYTES } else { BYTES };
        let whole = equal_logs::is_whole(&bytes[..of_checksum]) && superblock.is_possible();
        whole.then_some(Ok(superblock))
    }

    fn is_possible(&self) -> bool {
        let physical = [1, 8].contains(&self.physical.0);
        physical
            && self.log.0.is_multiple_of(8)
            && self.device < self.devices
            && self.log_count() > 0
            && (!self.roots_on_two || self.devices > 1)
            && self.table.is_none_or(|table| table.0.is_multiple_of(8))
    }

    /// Number of logs of the device.
    pub(crate) fn log_count(&self) -> u64 {
        let table = self.table.unwrap_or_default();
        equal_logs::log_count(Sectors(self.sectors.0.saturating_sub(table.0)), self.log)
    }

    /// Where the table is, if there is room for one.
    pub(crate) fn table_place(&self) -> Option<Extent> {
        let [_, last] = Self::places(self.sectors);
        let len = self.table.filter(|len| len.0 > 0)?;
        Some(Extent::new(last.start.0.checked_sub(len.0)?, len.0))
    }

    /// The device's logs, in order of address.
    pub(crate) fn logs(&self) -> impl Iterator<Item = (Device, Extent)> {
        equal_logs::logs(Device(self.device), self.log_count(), self.log)
    }

    /// Least size of a device with logs of `log` sectors.
    pub(crate) const fn least(log: Sectors) -> Sectors {
        equal_logs::least_device(LOGS_LEAST, log)
    }
}

/// The places of the root's two slots, avoiding a device for which `gone` holds. With both roots on
/// one device, `gone` has no effect.
pub(crate) fn root_slots(on_two: bool, gone: impl Fn(Device) -> bool) -> [RootSlot; 2] {
    let (first, second) = (Device(0), Device(1));
    let devices = match on_two {
        false => [first, first],
        true if gone(second) => [first, first],
        true if gone(first) => [second, second],
        true => [first, second],
    };
    [0, 1].map(|slot| RootSlot { device: devices[slot], place: ROOTS[slot] })
}

/// Every place where a root may be. The slot of a place is its index modulo 2.
pub(crate) fn root_places(on_two: bool) -> Vec<RootSlot> {
    let devices = if on_two { 2 } else { 1 };
    let on = |device| ROOTS.map(|place| RootSlot { device: Device(device), place });
    (0..devices).flat_map(on).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_survives_encoding_and_no_bit_flip_passes() {
        let superblock = Superblock {
            store: *b"fedcba9876543210",
            device: 1,
            devices: 2,
            physical: Sectors(8),
            log: Sectors(128),
            sectors: Sectors(1000),
            roots_on_two: true,
            table: None,
        };
        all_bits_count(superblock, BYTES);
        let table = Some(Sectors(16));
        all_bits_count(Superblock { table, ..superblock }, WITH_TABLE_BYTES);
    }

    fn all_bits_count(superblock: Superblock, bytes_used: usize) {
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes), Some(Ok(superblock)));
        for bit in 0..bytes_used * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&bad), Some(Ok(_))), "bit {bit}");
        }
        let logs: Vec<Extent> = superblock.logs().map(|(_, log)| log).collect();
        assert_eq!(logs.len(), 7);
        let last = Superblock::places(superblock.sectors)[1].start;
        let behind = superblock.table_place().map_or(last, |table| table.start);
        assert!(
            logs[6].end() <= behind && superblock.table_place().is_none_or(|t| t.end() == last)
        );
        assert!(root_places(true).iter().all(|root| root.place.end() <= logs[0].start));
    }
}
