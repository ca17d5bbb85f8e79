//! Reads little-endian numbers from binary records.

/// The 32-bit number at `offset`; the caller has checked the length, else it is 0.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// The 64-bit number at `offset`; the caller has checked the length, else it is 0.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
