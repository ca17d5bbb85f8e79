//! Units of the oracle: the content of each unit names the write that it came from.
//!
//! The first sectors are written in parts, so the oracle knows them in cells of a quarter of a
//! sector. It knows all others as whole sectors, which are atomic.

use manylogs_block::{Extent, Payload, Rng, SECTOR_BYTES, Sector, Sectors, to_usize};

/// Number of sectors at the start of the export that are divided into cells.
const IN_CELLS: u64 = 32;
/// Bytes in a cell.
pub(crate) const CELL_BYTES: u64 = SECTOR_BYTES / CELLS;
/// Cells in a sector.
const CELLS: u64 = 4;
/// Bit that is set in the tag of content that no client wrote.
const FOREIGN: u64 = 1 << 63;

/// An export divided into units.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    capacity: Sectors,
}

impl Units {
    /// The units of an export of `capacity`.
    #[must_use]
    pub const fn new(capacity: Sectors) -> Self {
        Self { capacity }
    }

    /// The export's length.
    #[must_use]
    pub const fn capacity(&self) -> Sectors {
        self.capacity
    }

    /// Number of units.
    #[must_use]
    pub fn count(&self) -> usize {
        to_usize(first_unit(self.capacity.bytes()))
    }

    /// Number of bytes at the start of the export that are divided into cells.
    #[must_use]
    pub const fn cell_bytes_end(&self) -> u64 {
        IN_CELLS * SECTOR_BYTES
    }

    /// The units of a byte range, which must consist of whole units.
    #[must_use]
    pub fn extent(&self, offset: u64, len: u64) -> Extent {
        let (start, end) = (first_unit(offset), first_unit(offset + len));
        Extent::new(start, end - start)
    }

    /// Content of a write: its first unit has the tag `first`, the others the following tags.
    #[must_use]
    pub fn bytes(&self, offset: u64, len: u64, first: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(to_usize(len));
        for tag in first.. {
            let at = offset + out.len() as u64;
            if at >= offset + len {
                return out;
            }
            let words = pattern(tag, unit_bytes(at));
            out.extend(words.flat_map(u64::to_le_bytes));
        }
        out
    }

    /// Tags of the units in `bytes`, which were read from `offset`.
    #[must_use]
    pub fn payload(&self, offset: u64, mut bytes: &[u8]) -> Payload {
        let (mut out, mut at) = (Payload::default(), offset);
        while !bytes.is_empty() {
            let len = to_usize(unit_bytes(at)).min(bytes.len());
            let (unit, rest) = bytes.split_at(len);
            out.append(known(unit));
            (bytes, at) = (rest, at + len as u64);
        }
        out
    }

    /// Tags of all units of a volume.
    #[must_use]
    pub fn of_volume(&self, content: &Payload) -> Payload {
        let mut out = Payload::default();
        for (lba, sector) in (0..).zip(content.sectors()) {
            let at = lba * SECTOR_BYTES;
            let count = SECTOR_BYTES / unit_bytes(at);
            match sector {
                Some(Sector::Zero) => out.append(Payload::zeroes(Sectors(count))),
                Some(Sector::Bytes(bytes)) => out.append(self.payload(at, &bytes)),
                Some(Sector::Tag(tag)) => {
                    (0..count).for_each(|_| out.append(Payload::tags(tag | FOREIGN, Sectors(1))));
                }
                None => out.append(Payload::absent(Sectors(count))),
            }
        }
        out
    }
}

/// The unit that begins at this byte.
fn first_unit(offset: u64) -> u64 {
    let in_cells = offset.min(IN_CELLS * SECTOR_BYTES);
    in_cells / CELL_BYTES + (offset - in_cells) / SECTOR_BYTES
}

/// Length of the unit at this byte.
const fn unit_bytes(offset: u64) -> u64 {
    if offset < IN_CELLS * SECTOR_BYTES { CELL_BYTES } else { SECTOR_BYTES }
}

/// The words of a unit with this tag. The first word is the tag.
fn pattern(tag: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::new(tag);
    (0..bytes / 8).map(move |word| if word == 0 { tag } else { rng.next_u64() })
}

fn known(unit: &[u8]) -> Payload {
    if unit.iter().all(|byte| *byte == 0) {
        return Payload::zeroes(Sectors(1));
    }
    let (words, _) = unit.as_chunks::<8>();
    let mut found = words.iter().map(|word| u64::from_le_bytes(*word));
    let tag = found.clone().next().unwrap_or(0);
    if found.clone().eq(pattern(tag, unit.len() as u64)) {
        return Payload::tags(tag, Sectors(1));
    }
    let mixed = found.try_fold(0_u64, |sum, word| Some(sum.rotate_left(7) ^ word));
    Payload::tags(mixed.unwrap_or(0) | FOREIGN, Sectors(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Units = Units::new(Sectors(64));

    #[test]
    fn what_is_written_is_known_again_and_nothing_else_is() {
        assert_eq!(UNITS.count(), 32 * 4 + 32);
        let bytes = UNITS.bytes(128, 1024, 7);
        assert_eq!(bytes.len(), 1024);
        assert_eq!(UNITS.extent(128, 1024), Extent::new(1, 8));
        assert_eq!(UNITS.payload(128, &bytes), Payload::tags(7, Sectors(8)));
        let sectors = UNITS.bytes(40 * 512, 1024, 99);
        assert_eq!(UNITS.extent(40 * 512, 1024), Extent::new(32 * 4 + 8, 2));
        assert_eq!(UNITS.payload(40 * 512, &sectors), Payload::tags(99, Sectors(2)));
        let mut torn = sectors.clone();
        torn[700] ^= 1;
        let found: Vec<_> = UNITS.payload(40 * 512, &torn).sectors().flatten().collect();
        assert_eq!(found[0], Sector::Tag(99));
        assert!(matches!(found[1], Sector::Tag(tag) if tag & FOREIGN != 0));
        assert_eq!(UNITS.payload(0, &[0; 512]), Payload::zeroes(Sectors(4)));
    }

    #[test]
    fn a_volume_is_seen_as_its_bytes_are() {
        let bytes = UNITS.bytes(31 * 512, 1024, 5);
        let mut content = Payload::zeroes(Sectors(31));
        content.append(Payload::bytes(bytes));
        content.append(Payload::zeroes(Sectors(31)));
        let seen = UNITS.of_volume(&content);
        assert_eq!(seen.len().0, UNITS.count() as u64);
        assert_eq!(seen.slice(Sectors(31 * 4), Sectors(5)), Payload::tags(5, Sectors(5)));
    }
}
