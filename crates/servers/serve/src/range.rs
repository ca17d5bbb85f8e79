//! Converts byte ranges of clients into sectors of an export.

use manylogs_block::{Extent, Lba, SECTOR_BYTES, Sectors};

/// The whole sectors around `len` bytes at byte `offset`, cut at the end of an export of
/// `capacity`; `None` if none is within the export.
pub(crate) fn sectors_around(capacity: Sectors, offset: u64, len: u64) -> Option<Extent> {
    let end = offset.saturating_add(len).min(capacity.bytes());
    let extent = Extent::between(
        Lba(offset / SECTOR_BYTES),
        Lba(Sectors::from_bytes_ceil(end.max(offset)).0),
    );
    (offset < end).then_some(extent)
}

/// The sectors that `len` bytes at byte `offset` fill exactly; `None` if the range is empty, begins
/// or ends within a sector, or is not within an export of `capacity`.
pub(crate) fn sectors_exactly(capacity: Sectors, offset: u64, len: u64) -> Option<Extent> {
    let aligned = offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES);
    let end = offset.checked_add(len)?;
    (aligned && len > 0 && end <= capacity.bytes())
        .then(|| Extent::new(offset / SECTOR_BYTES, len / SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Sectors = Sectors(8);

    #[test]
    fn bytes_are_rounded_or_refused() {
        assert_eq!(sectors_around(CAPACITY, 100, 500), Some(Extent::new(0, 2)));
        assert_eq!(sectors_around(CAPACITY, 4000, u64::MAX), Some(Extent::new(7, 1)));
        assert_eq!(sectors_around(CAPACITY, 4096, 512), None);
        assert_eq!(sectors_around(CAPACITY, u64::MAX, 512), None);
        assert_eq!(sectors_exactly(CAPACITY, 512, 3584), Some(Extent::new(1, 7)));
        for (offset, len) in [(100, 512), (512, 100), (512, 4096), (0, 0), (u64::MAX - 511, 512)] {
            assert_eq!(sectors_exactly(CAPACITY, offset, len), None, "{offset} {len}");
        }
    }
}
