//! Checksums of logged payload, one for each unit of at most eight sectors.

use manylogs_block::{Extent, Payload, Sectors, narrow};

use crate::LogOffset;

/// Most sectors of a unit: 4 KiB, so that reading a block back reads one unit.
const UNIT_SECTORS: u64 = 8;
/// Bits of a step that hold the length minus one; the other bits hold the gap in front.
const LEN_BITS: u32 = 3;
/// Longest gap in sectors that fits a step: enough for most record headers and padding.
const GAP_MAX: u64 = (1 << (u8::BITS - LEN_BITS)) - 1;
/// Most units in a block: finding a unit takes up to this many steps.
const BLOCK_UNITS: usize = 16;
/// Memory grows by at least this many units, and by one part in [`GROWTH_PART`] of the units in
/// use.
const GROWTH_MIN: usize = 16;
const GROWTH_PART: usize = 8;

/// A run of logged sectors with one checksum.
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

/// The checksums of one log's payload, by position: less than six bytes a unit, if most are near
/// the one before.
///
/// Units are in ascending order, because logs grow, and most begin near the end of the one before.
/// One byte holds that distance and the length of the unit. An offset is stored for one unit
/// in 16, and for each that is far from the one before.
#[derive(Clone, Debug, Default)]
pub struct UnitTable {
    blocks: Vec<Block>,
    steps: Vec<u8>,
    checksums: Vec<u32>,
    /// End of the last unit.
    end: u64,
}

/// A run of units that are found step by step.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Offset of the first unit, and its index.
    offset: u32,
    first: u32,
}

/// Iterates over units from some block on.
#[derive(Clone, Debug)]
struct Units<'a> {
    table: &'a UnitTable,
    blocks: std::slice::Iter<'a, Block>,
    /// Index of the next unit, and end of the one before it.
    index: usize,
    end: u64,
    /// Index of the first unit of the next block.
    block_end: usize,
}

impl UnitTable {
    /// Whether a table can describe a log of `len` sectors.
    #[must_use]
    pub const fn fits(len: Sectors) -> bool {
        len.0 < 1 << LogOffset::BITS
    }

    /// Adds a unit behind all others.
    pub fn push(&mut self, unit: Unit) {
        debug_assert!((1..=UNIT_SECTORS).contains(&unit.len.0), "unit of {} sectors", unit.len.0);
        let offset = u64::from(unit.offset.0);
        debug_assert!(self.end <= offset, "units ascend");
        let gap = offset.saturating_sub(self.end);
        let index = self.steps.len();
        let in_block = self.blocks.last().map(|block| index - block.first as usize);
        let joins = gap <= GAP_MAX && in_block.is_some_and(|units| units < BLOCK_UNITS);
        if !joins {
            let first = narrow(index);
            self.blocks.push(Block { offset: unit.offset.0, first });
        }
        self.make_room();
        let step = (if joins { gap } else { 0 }) << LEN_BITS | (unit.len.0 - 1);
        self.steps.push(u8::try_from(step).unwrap_or(u8::MAX));
        self.checksums.push(unit.checksum);
        self.end = offset + unit.len.0;
    }

    /// The units that overlap the `len` sectors from `offset`.
    pub fn covering(&self, offset: LogOffset, len: Sectors) -> impl Iterator<Item = Unit> {
        let block = self.blocks.partition_point(|block| block.offset <= offset.0);
        let end = u64::from(offset.0) + len.0;
        self.units_from(block.saturating_sub(1))
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

    /// Whether `payload`, read from `extent` of the log, is the content that was appended there. A
    /// unit that `extent` covers only in part counts as damaged, so widen it first.
    #[must_use]
    pub fn verify(&self, extent: Extent, payload: &Payload) -> bool {
        let Ok(offset) = u32::try_from(extent.start.0) else { return false };
        self.covering(LogOffset(offset), extent.len).all(|unit| {
            let at = Extent::new(unit.offset.0.into(), unit.len.0);
            extent.contains(at)
                && payload.verifies(Sectors(at.start.0 - extent.start.0), unit.len, unit.checksum)
        })
    }

    /// Forgets all units but those that overlap one of `parts` of the log, which are in order.
    /// Returns the length of those that stay.
    pub fn keep(&mut self, parts: &[Extent]) -> Sectors {
        let (mut kept, mut sectors, mut parts) = (Self::default(), Sectors(0), parts.iter());
        let mut part = parts.next();
        for unit in self.iter() {
            let at = Extent::new(unit.offset.0.into(), unit.len.0);
            while part.is_some_and(|part| part.end() <= at.start) {
                part = parts.next();
            }
            if part.is_some_and(|part| part.overlaps(at)) {
                kept.push(unit);
                sectors += unit.len;
            }
        }
        kept.blocks.shrink_to_fit();
        kept.steps.shrink_to_fit();
        kept.checksums.shrink_to_fit();
        *self = kept;
        sectors
    }

    /// The parts of `extent` of the log that have checksums, each as long as possible. Of a unit
    /// that lies there in part, that part: records may be appended while what was there is read.
    #[must_use]
    pub fn parts_of(&self, extent: Extent) -> Vec<Extent> {
        let mut parts: Vec<Extent> = Vec::new();
        let Ok(offset) = u32::try_from(extent.start.0) else { return parts };
        for unit in self.covering(LogOffset(offset), extent.len) {
            match parts.last_mut() {
                Some(last) if last.end().0 == u64::from(unit.offset.0) => last.len += unit.len,
                _ => parts.push(Extent::new(unit.offset.0.into(), unit.len.0)),
            }
        }
        parts.iter().map(|part| part.intersection(extent)).collect()
    }

    /// Every unit in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Unit> {
        self.units_from(0)
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.steps.capacity()
            + self.checksums.capacity() * size_of::<u32>()
    }

    /// Grows by a fraction: doubling would leave a quarter of the memory unused on average.
    fn make_room(&mut self) {
        if self.steps.len() == self.steps.capacity() {
            let more = (self.steps.len() / GROWTH_PART).max(GROWTH_MIN);
            self.steps.reserve_exact(more);
            self.checksums.reserve_exact(more);
        }
    }

    fn units_from(&self, block: usize) -> Units<'_> {
        let blocks = self.blocks[block.min(self.blocks.len())..].iter();
        let index =
            blocks.as_slice().first().map_or(self.steps.len(), |first| first.first as usize);
        Units { table: self, blocks, index, end: 0, block_end: index }
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let (step, checksum) =
            (*self.table.steps.get(self.index)?, *self.table.checksums.get(self.index)?);
        if self.index == self.block_end {
            self.end = self.blocks.next()?.offset.into();
            let next = self.blocks.as_slice().first();
            self.block_end = next.map_or(self.table.steps.len(), |block| block.first as usize);
        }
        self.index += 1;
        let offset = self.end + u64::from(step >> LEN_BITS);
        let len = u64::from(step & ((1 << LEN_BITS) - 1)) + 1;
        self.end = offset + len;
        let offset = LogOffset(narrow(offset));
        Some(Unit { offset, len: Sectors(len), checksum })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.table.steps.len() - self.index;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Units<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn parts_with_checksums_are_joined() {
        let mut table = table(&Payload::tags(1, Sectors(20)));
        let unit = Unit { offset: LogOffset(121), len: Sectors(3), checksum: 0 };
        table.push(unit);
        let parts = table.parts_of(Extent::new(90, 60));
        assert_eq!(parts, [Extent::new(100, 20), Extent::new(121, 3)]);
        let parts = table.parts_of(Extent::new(102, 20));
        assert_eq!(parts, [Extent::new(102, 18), Extent::new(121, 1)]);
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

    proptest! {
        /// The reference model is the list of units itself.
        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0..40u64, 1..9u64), 0..200)) {
            let mut table = UnitTable::default();
            let mut model = Vec::new();
            let mut end = 0;
            for (i, (gap, len)) in steps.into_iter().enumerate() {
                // Most units follow the one before.
                let start = end + gap.saturating_sub(5);
                let offset = LogOffset(u32::try_from(start).unwrap());
                let checksum = u32::try_from(i).unwrap();
                model.push(Unit { offset, len: Sectors(len), checksum });
                table.push(model[i]);
                end = start + len;
            }
            let third: Vec<Extent> = model
                .iter()
                .step_by(3)
                .map(|unit| Extent::new(u64::from(unit.offset.0) + unit.len.0 - 1, 1))
                .collect();
            let mut some = table.clone();
            let kept: Vec<Unit> = model.iter().copied().step_by(3).collect();
            let sectors = kept.iter().map(|unit| unit.len.0).sum();
            prop_assert_eq!(some.keep(&third), Sectors(sectors));
            prop_assert_eq!(some.iter().collect::<Vec<_>>(), kept);
            prop_assert_eq!(table.iter().len(), model.len());
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), model.clone());
            for start in 0..end + 9 {
                let wanted = Extent::new(start, 11);
                let expected: Vec<Unit> = model
                    .iter()
                    .copied()
                    .filter(|u| Extent::new(u.offset.0.into(), u.len.0).overlaps(wanted))
                    .collect();
                let offset = LogOffset(u32::try_from(start).unwrap());
                let found: Vec<Unit> = table.covering(offset, Sectors(11)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
