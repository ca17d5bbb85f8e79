//! Volumes and their parts from arbitrary bytes: for cargo-fuzz, and for mutations by seed.
//!
//! A mutated image starts from a whole one ([`Image`]). It is changed where it matters (`mutate`),
//! mostly with its checksums recomputed, so that the checks behind them are reached. Then it is
//! inspected and opened (`exercise`).

mod exercise;
mod image;
mod mutate;
mod seal;

pub use exercise::exercise;
pub use image::Image;
pub use mutate::{Draw, FromBytes, mutate};

use manylogs::Superblock;
use manylogs_block::{SECTOR_BYTES, Sectors};
use manylogs_logstore::Record;
use manylogs_logstore::ondisk::{root::Root, snapshot};

/// The size of the device for any superblock.
const DEVICE: Sectors = Sectors(1 << 20);

/// Tries any bytes as a superblock, as they are and with right checksums.
pub fn superblock(bytes: &[u8]) {
    let _ = Superblock::decode(bytes, DEVICE);
    let mut bytes = bytes.to_vec();
    seal::superblock(&mut bytes);
    let Ok(found) = Superblock::decode(&bytes, DEVICE) else { return };
    let layout = found.layout();
    assert!(layout.device() <= DEVICE, "the device ends before the volume");
    assert!(layout.regions().len() as u64 <= DEVICE.0 / 8, "more logs than would fit");
    assert!(layout.homes().len() <= layout.regions().len() + 1);
    assert!(layout.capacity() <= DEVICE);
    assert_eq!(Superblock::decode(&found.encode(), DEVICE), Ok(found), "survives encoding");
}

/// Tries any bytes as a root, as they are and with a right checksum.
pub fn root(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let volume = bytes.get(16..32).and_then(|id| id.try_into().ok()).unwrap_or_default();
    let _ = Root::decode(&bytes, volume);
    seal::root(&mut bytes);
    if let Some(found) = Root::decode(&bytes, volume) {
        assert_eq!(Root::decode(&found.encode(volume), volume), Some(found), "survives encoding");
    }
}

/// Tries any bytes as a record header, as they are and with a right checksum.
pub fn record(bytes: &[u8]) {
    let _ = Record::decode(bytes);
    let mut bytes = bytes.to_vec();
    seal::record(&mut bytes);
    let Ok(found) = Record::decode(&bytes) else { return };
    assert!(found.header_sectors.bytes() <= bytes.len() as u64 + 256 * SECTOR_BYTES);
    // Reserved bytes need not be zero, so encoding may not give the same bytes.
    let payload = found.entries.iter().fold(0, |sum, entry| sum + entry.payload_sectors().0);
    assert!(found.record_sectors.0 >= found.header_sectors.0 + payload);
    assert!(found.unit_checksums.len() as u64 >= payload / 8);
}

/// Tries any bytes as a snapshot, as they are and behind its magic number.
pub fn snapshot(bytes: &[u8]) {
    let all = [b"MLOGSNP2", bytes].concat();
    for bytes in [bytes, &all] {
        let Some(found) = snapshot::decode(bytes) else { continue };
        let units: usize = found.logs.iter().map(|log| log.content.units.iter().len()).sum();
        let supersedes: usize = found.logs.iter().map(|log| log.content.supersedes.len()).sum();
        assert!(found.map.len() + found.logs.len() + units + supersedes <= bytes.len());
    }
}
