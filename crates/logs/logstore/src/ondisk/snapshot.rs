//! The bytes of a table snapshot: numbers of variable length and differences, because tables are
//! long.

use std::collections::BTreeMap;

use crate::space::is_in_one_space;
use crate::{
    Class, DataSequence, Epoch, Log, LogContent, LogId, LogOffset, Mapped, SequenceLimit,
    Supersede, Unit, UnitTable,
};
use bytes::{Buf, BufMut};
use manylogs_block::{Extent, Lba, Sectors};

use crate::store::place::Place;
use manylogs_plant::{self as plant, Bug};

const MAGIC: u64 = u64::from_le_bytes(*b"MLOGSNP3");
/// Magic of a snapshot whose supersede entries say whether they are over kept versions.
const MAGIC_KEPT: u64 = u64::from_le_bytes(*b"MLOGSNP4");
const KIND_LOG: u64 = 1;
const KIND_ZEROES: u64 = 2;
const KIND_LOST: u64 = 3;
const KIND_METADATA: u64 = 4;
const KIND_DURABILITY_ONLY: u64 = 5;
const KIND_LEADING: u64 = 6;
const KIND_KEPT_METADATA: u64 = 7;
const KIND_BITS: u32 = 3;

/// A log as a snapshot describes it.
#[derive(Clone, Debug)]
pub struct LogState {
    /// The log.
    pub id: LogId,
    /// Present use (epoch) of the log.
    pub epoch: Epoch,
    /// Place of the next record.
    pub tail: Sectors,
    /// Header checksum of its last record.
    pub last_checksum: u32,
    /// Content of the log.
    pub content: LogContent,
}

/// Content of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Logs that are in use.
    pub logs: Vec<LogState>,
    /// The durable part of the table, by address.
    pub map: Vec<(Extent, Mapped<Place>)>,
}

impl Snapshot {
    /// Whether the snapshot can belong to a store with these log regions, with addresses that end
    /// at `capacity` and with sequences below `limit`. A valid checksum does not prove that.
    #[must_use]
    pub fn fits(
        &self,
        regions: &[Extent],
        capacity: Sectors,
        physical: Sectors,
        limit: SequenceLimit,
    ) -> bool {
        let exported = |extent: Extent| extent.end().0 <= capacity.0;
        let known = |sequence: DataSequence| sequence.0 <= limit.0;
        let region = |log: LogId| regions.get(log.0 as usize);
        let tails: BTreeMap<LogId, Sectors> =
            self.logs.iter().map(|log| (log.id, log.tail)).collect();
        let logs = self.logs.iter().all(|log| {
            let fits = region(log.id).is_some_and(|region| log.tail <= region.len);
            let mut supersedes = log.content.supersedes.iter();
            fits && log.tail.0.is_multiple_of(physical.0)
                && known(log.content.bound)
                && log.epoch.0 <= limit.0
                && supersedes.all(|found| exported(found.extent) && known(found.data_sequence))
        });
        // Logs must be listed once each.
        logs && tails.len() == self.logs.len()
            && self.map.iter().all(|(extent, mapped)| {
                let offset = match mapped.value {
                    Place::Log { offset, .. } => u64::from(offset.0) + extent.len.0,
                    _ => 0,
                };
                let tail = mapped.value.log().and_then(|log| tails.get(&log));
                exported(*extent)
                    && known(mapped.sequence)
                    && tail.is_some_and(|tail| offset <= tail.0)
            })
    }
}

/// Encodes the logs in use and the durable part of the table, in about `expected_bytes` bytes.
pub fn encode<'a>(
    expected_bytes: usize,
    logs: impl Iterator<Item = &'a Log>,
    map: impl Iterator<Item = (Extent, Mapped<Place>)>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(expected_bytes);
    let used: Vec<&Log> = logs.filter(|log| log.bound().0 > 0).collect();
    let marks = used.iter().any(|log| log.buries_kept());
    out.put_u64_le(if marks { MAGIC_KEPT } else { MAGIC });
    put(&mut out, used.len() as u64);
    for log in used {
        encode_log(&mut out, log, marks);
    }
    let mut last = Previous::default();
    for (extent, mapped) in map {
        let (kind, offset) = match mapped.value {
            Place::Log { offset, class, .. } => (kind_of(class), offset.0),
            Place::Zeroes { .. } => (KIND_ZEROES, 0),
            Place::Lost { .. } => (KIND_LOST, 0),
            Place::Buffered { .. } => continue,
        };
        let log = mapped.value.log().unwrap_or_default();
        put(&mut out, u64::from(log.0) << KIND_BITS | kind);
        put(&mut out, extent.start.0 - last.end);
        put(&mut out, extent.len.0);
        put(&mut out, zigzag(mapped.sequence.0, last.sequence));
        if matches!(mapped.value, Place::Log { .. }) {
            put(&mut out, offset.into());
        }
        last = Previous { end: extent.end().0, sequence: mapped.sequence.0 };
    }
    // No kind is zero, so zero marks the end.
    put(&mut out, 0);
    out
}

const fn kind_of(class: Class) -> u64 {
    match class {
        Class::Data => KIND_LOG,
        Class::Metadata => KIND_METADATA,
        Class::DurabilityOnly => KIND_DURABILITY_ONLY,
        Class::Leading => KIND_LEADING,
        Class::KeptMetadata => KIND_KEPT_METADATA,
    }
}

/// The mapped extent before: the base of the differences.
#[derive(Clone, Copy, Default)]
struct Previous {
    end: u64,
    sequence: u64,
}

fn encode_log(out: &mut Vec<u8>, log: &Log, marks: bool) {
    put(out, log.id().0.into());
    out.put_u64_le(log.epoch().0);
    // Behind a failed record it is unknown what a scan will find, so the whole region counts as
    // used: appends need a new epoch.
    put(out, if log.is_retired() { log.region().len.0 } else { log.used().0 });
    out.put_u64_le(log.bound().0);
    out.put_u32_le(log.last_checksum());
    put(out, log.supersedes().len() as u64);
    for supersede in log.supersedes() {
        put(out, supersede.extent.start.0);
        put(out, supersede.extent.len.0);
        put(out, supersede.data_sequence.0);
        if marks {
            out.put_u8(u8::from(supersede.kept && !plant::is(Bug::SnapshotWithoutMarks)));
        }
    }
    // If a log has no live versions, only its end matters.
    let units = if log.live() > 0 { log.units().iter().len() } else { 0 };
    put(out, units as u64);
    let mut last = 0;
    for unit in log.units().iter().take(units) {
        put(out, (u64::from(unit.offset.0) - last) << 4 | unit.len.0);
        out.put_u32_le(unit.checksum);
        last = u64::from(unit.offset.0) + unit.len.0;
    }
}

/// Decodes a snapshot; `None` if the bytes end too early or make no sense.
pub fn decode(mut bytes: &[u8]) -> Option<Snapshot> {
    let input = &mut bytes;
    let marks = match input.try_get_u64_le().ok()? {
        MAGIC => false,
        MAGIC_KEPT => true,
        _ => return None,
    };
    let mut snapshot = Snapshot::default();
    for _ in 0..get(input)? {
        snapshot.logs.push(decode_log(input, marks)?);
    }
    let mut last = Previous::default();
    loop {
        let (log, kind) = match get(input)? {
            0 => return Some(snapshot),
            word => (LogId(u32::try_from(word >> KIND_BITS).ok()?), word & ((1 << KIND_BITS) - 1)),
        };
        let start = last.end.checked_add(get(input)?)?;
        let extent = checked_extent(start, get(input)?)?;
        let sequence = last.sequence.wrapping_add_signed(unzigzag(get(input)?));
        let value = match kind {
            KIND_ZEROES => Place::Zeroes { log },
            KIND_LOST => Place::Lost { log },
            kind => {
                let class = *Class::ALL.iter().find(|class| kind_of(**class) == kind)?;
                Place::Log { log, offset: LogOffset(u32::try_from(get(input)?).ok()?), class }
            }
        };
        snapshot.map.push((extent, Mapped { sequence: DataSequence(sequence), value }));
        last = Previous { end: extent.end().0, sequence };
    }
}

fn decode_log(input: &mut &[u8], marks: bool) -> Option<LogState> {
    let id = LogId(u32::try_from(get(input)?).ok()?);
    let epoch = Epoch(input.try_get_u64_le().ok()?);
    let tail = Sectors(get(input)?);
    let bound = DataSequence(input.try_get_u64_le().ok()?);
    let last_checksum = input.try_get_u32_le().ok()?;
    let mut supersedes = Vec::new();
    for _ in 0..get(input)? {
        let extent = checked_extent(get(input)?, get(input)?)?;
        let data_sequence = DataSequence(get(input)?);
        let kept = marks && input.try_get_u8().ok()? == 1;
        supersedes.push(Supersede { extent, data_sequence, kept });
    }
    let (mut units, mut last) = (UnitTable::default(), 0u64);
    for _ in 0..get(input)? {
        let word = get(input)?;
        let (offset, len) = (last.checked_add(word >> 4)?, word & 15);
        let checksum = input.try_get_u32_le().ok()?;
        if !(1..=8).contains(&len) || offset + len > tail.0 {
            return None;
        }
        let offset = u32::try_from(offset).ok()?;
        units.push(Unit { offset: LogOffset(offset), len: Sectors(len), checksum });
        last = u64::from(offset) + len;
    }
    Some(LogState {
        id,
        epoch,
        tail,
        last_checksum,
        content: LogContent { units, supersedes, bound },
    })
}

fn checked_extent(start: u64, len: u64) -> Option<Extent> {
    let extent = Extent { start: Lba(start), len: Sectors(len) };
    (len > 0 && is_in_one_space(extent)).then_some(extent)
}

/// Appends a number as LEB128: seven bits a byte, lowest first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// The number at the start of `input`, which goes on behind it; `None` if there is none.
pub fn get(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = input.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The difference from `last` as a number that is small for small differences of either sign.
#[must_use]
pub const fn zigzag(value: u64, last: u64) -> u64 {
    let difference = value.wrapping_sub(last).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// The difference in a number that [`zigzag`] made.
#[must_use]
pub const fn unzigzag(word: u64) -> i64 {
    (word >> 1).cast_signed() ^ -(word & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_differences_survive(value: u64, last: u64) {
            let mut out = Vec::new();
            put(&mut out, zigzag(value, last));
            let back = unzigzag(get(&mut out.as_slice()).unwrap());
            prop_assert_eq!(last.wrapping_add_signed(back), value);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut all = MAGIC.to_le_bytes().to_vec();
            all.extend(bytes);
            let _ = decode(&all);
        }
    }

    #[test]
    fn a_table_survives_encoding() {
        let at = |start, len, sequence, value| {
            (Extent::new(start, len), Mapped { sequence: DataSequence(sequence), value })
        };
        let in_log = |class| Place::Log { log: LogId(3), offset: LogOffset(77), class };
        let map = vec![
            at(5, 8, 1 << 50, in_log(Class::Data)),
            at(13, 1, 7, Place::Zeroes { log: LogId(0) }),
            at(20, 8, 8, in_log(Class::Metadata)),
            at(28, 8, 9, in_log(Class::DurabilityOnly)),
            at(36, 8, 11, in_log(Class::Leading)),
            at(44, 8, 12, in_log(Class::KeptMetadata)),
            at(1 << 40, 1 << 35, 9, Place::Lost { log: LogId(200_000) }),
            at((3 << 48) + 7, 8, 10, in_log(Class::Data)),
        ];
        let bytes = encode(0, std::iter::empty(), map.iter().copied());
        assert_eq!(decode(&bytes).unwrap().map, map);
    }
}
