//! Checksums of logged payload, one for each unit of at most eight sectors.

use manylogs_block::{Extent, Payload, Sectors};

use crate::LogOffset;

/// Sectors a unit has at most: 4 KiB, so that reading a block back reads one unit.
const UNIT_SECTORS: u64 = 8;
const LEN_BITS: u32 = 4;

/// A run of logged sectors that is checked as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// First sector in the log.
    pub offset: LogOffset,
    /// Length, one to eight sectors.
    pub len: Sectors,
    /// CRC-32C of the content; see [`Payload::checksum`].
    pub checksum: u32,
}

/// The units of an extent of `len` sectors: their starts within it and lengths.
pub fn units_of(len: Sectors) -> impl Iterator<Item = (Sectors, Sectors)> {
    (0..len.0.div_ceil(UNIT_SECTORS)).map(move |i| {
        let start = i * UNIT_SECTORS;
        (Sectors(start), Sectors(UNIT_SECTORS.min(len.0 - start)))
    })
}

/// The checksums of one log's payload, by position: eight bytes a unit.
#[derive(Clone, Debug, Default)]
pub struct UnitTable {
    /// Offset and length packed in one word, and the checksum; ascending, as the log grows.
    units: Vec<(u32, u32)>,
}

impl UnitTable {
    /// Whether a log of `len` sectors can be described.
    #[must_use]
    pub const fn fits(len: Sectors) -> bool {
        len.0 < 1 << (u32::BITS - LEN_BITS)
    }

    /// Adds a unit behind all others.
    pub fn push(&mut self, unit: Unit) {
        let len = u32::try_from(unit.len.0).unwrap_or(u32::MAX);
        debug_assert!(len >= 1 && u64::from(len) <= UNIT_SECTORS, "unit of {len} sectors");
        debug_assert!(self.units.last().is_none_or(|(last, _)| *last >> LEN_BITS < unit.offset.0));
        self.units.push((unit.offset.0 << LEN_BITS | len, unit.checksum));
    }

    /// The units that hold any of the `len` sectors from `offset`.
    pub fn covering(&self, offset: LogOffset, len: Sectors) -> impl Iterator<Item = Unit> {
        let first = self.units.partition_point(|(packed, _)| packed >> LEN_BITS <= offset.0);
        let end = u64::from(offset.0) + len.0;
        self.units[first.saturating_sub(1)..]
            .iter()
            .map(|unit| unpack(*unit))
            .skip_while(move |unit| u64::from(unit.offset.0) + unit.len.0 <= offset.0.into())
            .take_while(move |unit| u64::from(unit.offset.0) < end)
    }

    /// The `len` sectors from `offset`, widened to whole units.
    #[must_use]
    pub fn widen(&self, offset: LogOffset, len: Sectors) -> Extent {
        let (mut start, mut end) = (u64::from(offset.0), u64::from(offset.0) + len.0);
        for unit in self.covering(offset, len) {
            start = start.min(unit.offset.0.into());
            end = end.max(u64::from(unit.offset.0) + unit.len.0);
        }
        Extent::new(start, end - start)
    }

    /// Whether `payload`, read from `extent` of the log, is what was appended there. A unit that
    /// `extent` holds only a part of counts as damaged: widen first.
    #[must_use]
    pub fn verify(&self, extent: Extent, payload: &Payload) -> bool {
        let Ok(offset) = u32::try_from(extent.start.0) else { return false };
        self.covering(LogOffset(offset), extent.len).all(|unit| {
            let at = Extent::new(unit.offset.0.into(), unit.len.0);
            extent.contains(at)
                && payload.verifies(Sectors(at.start.0 - extent.start.0), unit.len, unit.checksum)
        })
    }

    /// Every unit in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Unit> {
        self.units.iter().map(|unit| unpack(*unit))
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.units.capacity() * size_of::<(u32, u32)>()
    }
}

fn unpack((packed, checksum): (u32, u32)) -> Unit {
    Unit {
        offset: LogOffset(packed >> LEN_BITS),
        len: Sectors(u64::from(packed & ((1 << LEN_BITS) - 1))),
        checksum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(payload: &Payload) -> UnitTable {
        let mut table = UnitTable::default();
        for (start, len) in units_of(payload.len()) {
            let checksum = payload.checksum(start, len);
            let offset = LogOffset(u32::try_from(100 + start.0).unwrap());
            table.push(Unit { offset, len, checksum });
        }
        table
    }

    #[test]
    fn a_partial_read_is_widened_to_the_units_it_touches() {
        let payload = Payload::tags(1, Sectors(20));
        let table = table(&payload);
        assert_eq!(table.widen(LogOffset(107), Sectors(2)), Extent::new(100, 16));
        assert_eq!(table.widen(LogOffset(119), Sectors(1)), Extent::new(116, 4));
    }

    #[test]
    fn one_changed_sector_is_noticed() {
        let payload = Payload::tags(1, Sectors(20));
        let table = table(&payload);
        let at = Extent::new(100, 20);
        assert!(table.verify(at, &payload));
        for bad in 0..20 {
            let mut damaged = payload.slice(Sectors(0), Sectors(bad));
            damaged.append(Payload::tags(999, Sectors(1)));
            damaged.append(payload.slice(Sectors(bad + 1), Sectors(19 - bad)));
            assert!(!table.verify(at, &damaged), "sector {bad}");
        }
        assert!(!table.verify(Extent::new(101, 3), &payload.slice(Sectors(1), Sectors(3))));
    }
}
