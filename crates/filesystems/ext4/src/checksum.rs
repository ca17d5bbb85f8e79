//! The checksums of ext4 and its journal.

/// CRC-32C as ext4 uses it: continued from `seed`, and not inverted at the end.
pub(crate) fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// What a checksum, of whatever seed, changes by if `before` becomes `after`, which is as long: the
/// new one is the old one XOR this. A CRC is linear, so neither the seed nor other bytes matter.
pub(crate) fn changed_sum(after: &[u8], before: &[u8]) -> u32 {
    let changed: Vec<u8> = after.iter().zip(before).map(|(new, old)| new ^ old).collect();
    crc(0, &changed)
}

/// The seed of a checksum that continues no other.
pub(crate) const NO_SEED: u32 = !0;

/// CRC-16 of group descriptors on file systems without checksums of metadata.
pub(crate) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| (crc >> 1) ^ (0xA001 * (crc & 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_both_polynomials_come_out() {
        assert_eq!(!crc(NO_SEED, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(crc16(0xffff, b"123456789"), 0x4b37);
    }

    #[test]
    fn a_checksum_goes_on_from_another() {
        assert_eq!(crc(crc(7, b"1234"), b"56789"), crc(7, b"123456789"));
    }
}
