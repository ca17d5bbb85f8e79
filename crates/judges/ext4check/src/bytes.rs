//! Numbers at offsets, and checksums. Bytes beyond the end of a slice read as zero, so that damaged
//! lengths do no harm.

macro_rules! field {
    ($get:ident, $number:ty, $from:ident) => {
        pub(crate) fn $get(bytes: &[u8], at: usize) -> $number {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
            found.map_or(0, |bytes| <$number>::$from(*bytes))
        }
    };
}

field!(le16, u16, from_le_bytes);
field!(le32, u32, from_le_bytes);
field!(be32, u32, from_be_bytes);

/// Joins the two halves of a number, which lie apart.
pub(crate) fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The part of `bytes` in `range`; empty if `range` is not within `bytes`.
pub(crate) fn part(bytes: &[u8], range: std::ops::Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or(&[])
}

pub(crate) fn put_le16(bytes: &mut [u8], at: usize, number: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn put_le32(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn put_be32(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// The lower half of a checksum.
pub(crate) const fn low16(number: u32) -> u16 {
    let [first, second, ..] = number.to_le_bytes();
    u16::from_le_bytes([first, second])
}

/// The upper half of a checksum.
pub(crate) const fn high16(number: u32) -> u16 {
    low16(number >> 16)
}

/// CRC-32C without the last inversion, begun with `seed`: the base of all checksums but one.
pub(crate) fn crc32c(seed: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(seed, |sum, part| !crc32c::crc32c_append(!sum, part))
}

/// CRC-16 with the polynomial 0x8005, reflected: for group descriptors without `metadata_csum`.
pub(crate) fn crc16(seed: u16, parts: &[&[u8]]) -> u16 {
    let step = |sum: u16| if sum & 1 == 1 { sum >> 1 ^ 0xA001 } else { sum >> 1 };
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(seed, |sum, byte| (0..8).fold(sum ^ u16::from(*byte), |sum, _| step(sum)))
}
