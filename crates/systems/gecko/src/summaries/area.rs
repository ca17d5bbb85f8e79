//! The bytes in front of the segments of a drive: the mark of its own link, and of another link
//! the table, and room for the summary of each segment.

use manylogs_block::{Extent, Payload, Sectors, to_usize};
use manylogs_logstore::ondisk::equal_logs::{self, LOGS_FROM, least_device, log_count};
use manylogs_logstore::{RecordSequence, SUMMARY_HEADER, VolumeId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"MLGTABL2";
const MARK_MAGIC: [u8; 8] = *b"MLGMARK1";
/// Segments that a sector of a table tells of.
const IN_SECTOR: usize = 60;
/// Room is made in whole multiples of this.
const UNIT: u64 = 8;
/// Room of a summary for each block of 4 KiB of a segment. Random writes take 9 to 11 bytes.
const BYTES_A_BLOCK: u64 = 12;
const BLOCK: u64 = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    number: U32,
    mark: [u8; 16],
    entries: [U64; IN_SECTOR],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMark {
    magic: [u8; 8],
    checksum: U32,
    reserved: U32,
    chain: VolumeId,
    mark: [u8; 16],
    zeroes: [u8; 464],
}

const _: () = assert!(size_of::<Raw>() == 512 && size_of::<RawMark>() == 512);

/// Says which table of a link's segments counts: the one that has the mark that the link has.
/// Random, so that no two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) [u8; 16]);

/// What a table says of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Floor {
    /// No summary of the segment counts: the segment must be read.
    #[default]
    None,
    /// A summary counts if the sequence of its last record is greater.
    Above(RecordSequence),
    /// The table or the summary cannot be read: one may count that is not known.
    Unknown,
}

/// Room for the summaries of one link's segments, and for what says which count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// Segments of each link.
    pub(crate) segments: u64,
    /// Room for one summary.
    pub(crate) slot: Sectors,
}

impl Area {
    /// Room that the summary of a segment of this length has.
    pub(crate) fn slot_for(segment: Sectors) -> Sectors {
        let bytes = SUMMARY_HEADER as u64 + segment.0 / BLOCK * BYTES_A_BLOCK;
        Sectors(Sectors::from_bytes_ceil(bytes).0.next_multiple_of(UNIT))
    }

    /// Number of segments of this length that a drive has room for, with their summaries.
    pub(crate) fn segments_on(drive: Sectors, segment: Sectors) -> u64 {
        let slot = Self::slot_for(segment);
        let mut segments = log_count(drive, segment + slot);
        let needs = |segments| least_device(segments, segment) + Self { segments, slot }.len();
        while segments > 0 && needs(segments) > drive {
            segments -= 1;
        }
        segments
    }

    /// Length of a table.
    const fn table_len(self) -> Sectors {
        Sectors(self.segments.div_ceil(IN_SECTOR as u64 * UNIT) * UNIT)
    }

    /// Length of all.
    pub(crate) const fn len(self) -> Sectors {
        Sectors(2 * self.table_len().0 + self.segments * self.slot.0)
    }

    /// Place of all.
    pub(crate) const fn place(self) -> Extent {
        Extent { start: manylogs_block::Lba(LOGS_FROM.0), len: self.len() }
    }

    /// Place of the mark of the drive's own link, as long as a table, and of the table of another
    /// link.
    pub(crate) fn mark_and_table(self) -> [Extent; 2] {
        let first = Extent { len: self.table_len(), ..self.place() };
        [first, Extent { start: first.end(), ..first }]
    }

    /// Place of the summary of the segment with this number within its link.
    pub(crate) fn slot(self, index: u64) -> Extent {
        let [_, last] = self.mark_and_table();
        Extent { start: last.end() + Sectors(index * self.slot.0), len: self.slot }
    }

    /// The part of a table that tells of a segment, in whole physical sectors: where it begins
    /// within the table, and its length.
    pub(crate) const fn part(index: u64, physical: Sectors) -> (Sectors, Sectors) {
        let at = index / IN_SECTOR as u64 / physical.0 * physical.0;
        (Sectors(at), physical)
    }

    /// The numbers of the segments that a part of a table tells of.
    pub(crate) fn told_by((at, len): (Sectors, Sectors)) -> std::ops::Range<u64> {
        let in_sector = IN_SECTOR as u64;
        at.0 * in_sector..(at.0 + len.0) * in_sector
    }

    /// The bytes of a part of a table.
    pub(crate) fn encode(mark: Mark, (at, len): (Sectors, Sectors), floors: &[Floor]) -> Payload {
        let mut bytes = Vec::with_capacity(to_usize(len.bytes()));
        for number in at.0..at.0 + len.0 {
            let of = |i: usize| match floors.get(to_usize(number) * IN_SECTOR + i) {
                // Zero is no floor.
                Some(Floor::Above(floor)) => U64::new(floor.next().0),
                _ => U64::ZERO,
            };
            let mut raw = Raw {
                magic: MAGIC,
                checksum: U32::ZERO,
                number: U32::new(manylogs_block::narrow(number)),
                mark: mark.0,
                entries: std::array::from_fn(of),
            };
            raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
            bytes.extend_from_slice(raw.as_bytes());
        }
        Payload::bytes(bytes)
    }

    /// What a table says; `None` if no part of it has the mark. `bytes` is `None` if the table
    /// cannot be read.
    pub(crate) fn decode(self, mark: Mark, bytes: Option<&[u8]>) -> Option<Vec<Floor>> {
        let (count, bytes) = (to_usize(self.segments), bytes.unwrap_or_default());
        let at = |number| bytes.get(number * size_of::<Raw>()..).unwrap_or_default();
        let sectors: Vec<Option<[Floor; IN_SECTOR]>> = (0..count.div_ceil(IN_SECTOR))
            .map(|number| decode_sector(mark, number, at(number)))
            .collect();
        let has_mark = |floors: &[Floor; IN_SECTOR]| floors[0] != Floor::Unknown;
        let counts = sectors.iter().flatten().any(has_mark);
        let floors =
            sectors.into_iter().flat_map(|floors| floors.unwrap_or([Floor::None; IN_SECTOR]));
        counts.then(|| floors.take(count).collect())
    }
}

/// What a sector of a table says, all unknown if it is damaged; `None` if it is of another table.
fn decode_sector(mark: Mark, number: usize, bytes: &[u8]) -> Option<[Floor; IN_SECTOR]> {
    let unknown = Some([Floor::Unknown; IN_SECTOR]);
    let Ok((raw, _)) = Raw::read_from_prefix(bytes) else { return unknown };
    if raw.as_bytes().iter().all(|byte| *byte == 0) {
        return None;
    }
    if raw.magic != MAGIC || !equal_logs::is_whole(raw.as_bytes()) {
        return unknown;
    }
    let floor = |entry: U64| match entry.get() {
        0 => Floor::None,
        next => Floor::Above(RecordSequence(next - 1)),
    };
    let is_its = raw.mark == mark.0 && raw.number.get() as usize == number;
    is_its.then(|| raw.entries.map(floor))
}

impl Mark {
    /// A mark that no table has yet.
    pub(crate) fn new(mut random: impl FnMut() -> u64) -> Self {
        let [first, last] = [random(), random()].map(u128::from);
        Self((first << 64 | last).to_le_bytes())
    }

    /// The bytes of a mark, in whole physical sectors.
    pub(crate) fn encode(self, chain: VolumeId, physical: Sectors) -> Payload {
        let mut raw = RawMark {
            magic: MARK_MAGIC,
            checksum: U32::ZERO,
            reserved: U32::ZERO,
            chain,
            mark: self.0,
            zeroes: [0; 464],
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(to_usize(physical.bytes()), 0);
        Payload::bytes(bytes)
    }

    /// The mark in `bytes`, if it is whole and of this chain.
    pub(crate) fn decode(chain: VolumeId, bytes: &[u8]) -> Option<Self> {
        let (raw, _) = RawMark::read_from_prefix(bytes).ok()?;
        let is_its = raw.magic == MARK_MAGIC && raw.chain == chain;
        (is_its && equal_logs::is_whole(raw.as_bytes())).then_some(Self(raw.mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark([7; 16]);

    #[test]
    fn a_table_survives_encoding_and_no_bit_flip_passes() {
        let area = Area { segments: 130, slot: Sectors(8) };
        let mut floors = vec![Floor::None; 130];
        for (at, floor) in [(0, 5), (59, 1 << 60), (60, 0), (129, 9)] {
            floors[at] = Floor::Above(RecordSequence(floor));
        }
        let [mark, table] = area.mark_and_table();
        assert_eq!((table.len, mark.end()), (Sectors(8), table.start));
        let bytes = Area::encode(MARK, (Sectors(0), table.len), &floors).to_bytes().unwrap();
        assert_eq!(area.decode(MARK, Some(&bytes)).as_ref(), Some(&floors));
        assert_eq!(area.decode(Mark([8; 16]), Some(&bytes)), None);
        assert_eq!(area.decode(MARK, None), None);
        assert_eq!(area.decode(MARK, Some(&[0; 4096])), None);
        for bit in (0..512 * 8).step_by(7) {
            let mut bad = bytes.to_vec();
            bad[512 + bit / 8] ^= 1 << (bit % 8);
            let found = area.decode(MARK, Some(&bad)).unwrap();
            assert_eq!(found[60..120], [Floor::Unknown; 60], "bit {bit}");
            assert_eq!(found[..60], floors[..60]);
        }
        // A part of it was written with another mark.
        let other = Area::encode(Mark([8; 16]), (Sectors(0), Sectors(1)), &floors);
        let mixed = [&other.to_bytes().unwrap()[..], &bytes[512..]].concat();
        let found = area.decode(MARK, Some(&mixed)).unwrap();
        assert_eq!((&found[..60], &found[60..]), (&[Floor::None; 60][..], &floors[60..]));
    }

    #[test]
    fn a_mark_survives_encoding_and_no_bit_flip_passes() {
        let chain = [3; 16];
        let bytes = MARK.encode(chain, Sectors(8)).to_bytes().unwrap();
        assert_eq!((bytes.len(), Mark::decode(chain, &bytes)), (4096, Some(MARK)));
        assert_eq!(Mark::decode([4; 16], &bytes), None);
        for bit in 0..512 * 8 {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(chain, &bad), None, "bit {bit}");
        }
    }

    #[test]
    fn summaries_and_segments_fill_a_drive_and_no_more() {
        for (drive, segment) in [(5000, 128), (100_000, 256), (1 << 34, 1 << 19)] {
            let (drive, segment) = (Sectors(drive), Sectors(segment));
            let segments = Area::segments_on(drive, segment);
            let slot = Area::slot_for(segment);
            let needs = |segments| least_device(segments, segment) + Area { segments, slot }.len();
            assert!(needs(segments) <= drive && needs(segments + 1) > drive);
            let area = Area { segments, slot };
            assert_eq!(area.slot(segments - 1).end(), area.place().end());
        }
    }
}
