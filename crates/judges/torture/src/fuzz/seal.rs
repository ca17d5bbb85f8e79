//! Recomputes the checksums of changed structures, so that the checks behind them are tested.

use std::collections::BTreeMap;

use manylogs_block::{SECTOR_BYTES, to_usize};
use manylogs_logstore::ondisk::root::ROOT_BYTES;
use manylogs_logstore::{ENTRY_BYTES, HEADER_BYTES};

use crate::fuzz::image::{Image, ImageKind};

/// Place of the checksum in most structures.
const CHECKSUM: usize = 8;
const SUPERBLOCK_BYTES: usize = 4096;
/// Longer structures are left as they are: small images have none.
const LONGEST: usize = 1 << 16;

/// A little-endian number of 2, 4 or 8 bytes; zero beyond the end of the bytes.
pub(crate) fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(found) = bytes.get(at..at + len) {
        word[..len].copy_from_slice(found);
    }
    u64::from_le_bytes(word)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn sum(bytes: &mut [u8], used: usize) {
    if bytes.len() >= used.max(CHECKSUM + 4) {
        put(bytes, CHECKSUM, 0);
        let checksum = crc32c::crc32c(&bytes[..used]);
        put(bytes, CHECKSUM, checksum);
    }
}

/// Corrects the checksums of a superblock: of its head, and of the runs behind it.
pub(crate) fn superblock(bytes: &mut [u8]) {
    let runs = to_usize(number(bytes, 104, 4)).saturating_sub(120);
    let tail = bytes.get(SUPERBLOCK_BYTES..SUPERBLOCK_BYTES + runs.min(LONGEST) * 32);
    if let Some(checksum) = tail.map(crc32c::crc32c) {
        put(bytes, 108, checksum);
    }
    sum(bytes, SUPERBLOCK_BYTES);
}

/// Corrects the checksum of a root.
pub(crate) fn root(bytes: &mut [u8]) {
    sum(bytes, ROOT_BYTES);
}

/// Corrects the checksum of a record's header.
pub(crate) fn record(bytes: &mut [u8]) {
    if let Some(used) = used(bytes) {
        sum(bytes, used);
    }
}

/// Number of bytes of a record header that its checksum covers.
pub(crate) fn used(head: &[u8]) -> Option<usize> {
    let (entries, units) = (to_usize(number(head, 14, 2)), to_usize(number(head, 76, 4)));
    let used = HEADER_BYTES + entries * ENTRY_BYTES + units * 4;
    (used <= LONGEST).then_some(used)
}

/// Corrects every structure of the image. Sums of the payload are corrected only if `payload`.
pub(crate) fn image(image: &mut Image, payload: bool) {
    let spots = image.spots.clone();
    let at = |kind| spots.iter().filter(move |spot| spot.kind == kind).map(|s| s.range.start);
    // Maps the old checksum of each record to the new one, so that the next record still follows
    // it.
    let mut renamed = BTreeMap::new();
    for start in at(ImageKind::Record) {
        let Some(len) = used(&image.read(start, HEADER_BYTES)) else { continue };
        let mut bytes = image.read(start, len);
        let (old, previous) = (number(&bytes, CHECKSUM, 4), number(&bytes, 68, 4));
        if let Some(now) = renamed.get(&previous) {
            put(&mut bytes, 68, *now);
        }
        if payload {
            seal_payload(image, start, &mut bytes);
        }
        record(&mut bytes);
        renamed.insert(old, u32::try_from(number(&bytes, CHECKSUM, 4)).unwrap_or(0));
        image.write(start, &bytes);
    }
    let snapshot = at(ImageKind::Snapshot).next();
    for start in at(ImageKind::Root) {
        let mut bytes = image.read(start, ROOT_BYTES);
        let len = to_usize(number(&bytes, 48, 8));
        if let (Some(snapshot), 1..=LONGEST) = (snapshot, len) {
            let content = image.read(snapshot, len);
            put(&mut bytes, 56, crc32c::crc32c(&content));
        }
        root(&mut bytes);
        image.write(start, &bytes);
    }
    for start in at(ImageKind::Superblock) {
        let mut bytes = image.read(start, SUPERBLOCK_BYTES);
        superblock(&mut bytes);
        image.write(start, &bytes);
    }
}

/// Corrects the unit checksums of the record that begins at `start`.
fn seal_payload(image: &Image, start: usize, bytes: &mut [u8]) {
    let sector = to_usize(SECTOR_BYTES);
    let entries = to_usize(number(bytes, 14, 2));
    let mut at = start + to_usize(number(bytes, 36, 4)) * sector;
    let mut sum_at = HEADER_BYTES + entries * ENTRY_BYTES;
    for entry in 0..entries {
        let from = HEADER_BYTES + entry * ENTRY_BYTES;
        let data = number(bytes, from + 24, 1) == 1;
        let mut left = if data { to_usize(number(bytes, from + 16, 8)) } else { 0 };
        while left > 0 && sum_at + 4 <= bytes.len() && at < usize::MAX / 2 {
            let len = left.min(8);
            put(bytes, sum_at, crc32c::crc32c(&image.read(at, len * sector)));
            (at, left, sum_at) = (at + len * sector, left - len, sum_at + 4);
        }
    }
}
