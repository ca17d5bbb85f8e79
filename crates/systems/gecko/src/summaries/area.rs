//! The bytes in front of the segments of a drive: two tables, and room for the summary of each
//! segment of another link.

use manylogs_block::{Extent, Payload, Sectors, to_usize};
use manylogs_logstore::ondisk::equal_logs::{self, LOGS_FROM, least_device, log_count};
use manylogs_logstore::{SUMMARY_HEADER, VolumeId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"MLGTABL1";
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
    chain: VolumeId,
    entries: [U64; IN_SECTOR],
}

const _: () = assert!(size_of::<Raw>() == 512);

/// What a table says of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Named {
    /// No summary of the segment counts: the segment must be read.
    #[default]
    None,
    /// A summary counts, if the segment's last record has this sequence in it.
    Last(u64),
    /// The table cannot be read. It may name a summary.
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

    /// Place of both tables: the first tells of the drive's own segments.
    pub(crate) fn tables(self) -> [Extent; 2] {
        let first = Extent { len: self.table_len(), ..self.place() };
        [first, Extent { start: first.end(), ..first }]
    }

    /// Place of the summary of the segment with this number within its link.
    pub(crate) fn slot(self, index: u64) -> Extent {
        let [_, last] = self.tables();
        Extent { start: last.end() + Sectors(index * self.slot.0), len: self.slot }
    }

    /// The part of a table that tells of a segment, in whole physical sectors: where it begins
    /// within the table, and its length.
    pub(crate) const fn part(index: u64, physical: Sectors) -> (Sectors, Sectors) {
        let at = index / IN_SECTOR as u64 / physical.0 * physical.0;
        (Sectors(at), physical)
    }

    /// The bytes of a part of a table.
    pub(crate) fn encode(
        chain: VolumeId,
        (at, len): (Sectors, Sectors),
        named: &[Named],
    ) -> Payload {
        let mut bytes = Vec::with_capacity(to_usize(len.bytes()));
        for number in at.0..at.0 + len.0 {
            let of = |i: usize| match named.get(to_usize(number) * IN_SECTOR + i) {
                Some(Named::Last(last)) => U64::new(*last),
                _ => U64::ZERO,
            };
            let mut raw = Raw {
                magic: MAGIC,
                checksum: U32::ZERO,
                number: U32::new(manylogs_block::narrow(number)),
                chain,
                entries: std::array::from_fn(of),
            };
            raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
            bytes.extend_from_slice(raw.as_bytes());
        }
        Payload::bytes(bytes)
    }

    /// What a table says; `None` for a part that cannot be read.
    pub(crate) fn decode(self, chain: VolumeId, bytes: Option<&[u8]>) -> Vec<Named> {
        let (count, bytes) = (to_usize(self.segments), bytes.unwrap_or_default());
        let at = |number| bytes.get(number * size_of::<Raw>()..).unwrap_or_default();
        let sectors = 0..count.div_ceil(IN_SECTOR);
        let named = sectors.flat_map(|number| decode_sector(chain, number, at(number)));
        named.take(count).collect()
    }
}

fn decode_sector(chain: VolumeId, number: usize, bytes: &[u8]) -> [Named; IN_SECTOR] {
    let unknown = [Named::Unknown; IN_SECTOR];
    let Ok((raw, _)) = Raw::read_from_prefix(bytes) else { return unknown };
    if raw.as_bytes().iter().all(|byte| *byte == 0) {
        return [Named::None; IN_SECTOR];
    }
    let is_whole = raw.magic == MAGIC
        && equal_logs::is_whole(raw.as_bytes())
        && raw.chain == chain
        && raw.number.get() as usize == number;
    let named = |last: U64| if last.get() == 0 { Named::None } else { Named::Last(last.get()) };
    if is_whole { raw.entries.map(named) } else { unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: VolumeId = [7; 16];

    #[test]
    fn a_table_survives_encoding_and_no_bit_flip_passes() {
        let area = Area { segments: 130, slot: Sectors(8) };
        let mut named = vec![Named::None; 130];
        for (at, last) in [(0, 5), (59, 1 << 60), (60, 6), (129, 9)] {
            named[at] = Named::Last(last);
        }
        let [own, other] = area.tables();
        assert_eq!((own.len, other.start), (Sectors(8), own.end()));
        let bytes = Area::encode(CHAIN, (Sectors(0), own.len), &named).to_bytes().unwrap();
        assert_eq!(area.decode(CHAIN, Some(&bytes)), named);
        assert_eq!(area.decode([8; 16], Some(&bytes)), [Named::Unknown; 130]);
        assert_eq!(area.decode(CHAIN, None), [Named::Unknown; 130]);
        assert_eq!(area.decode(CHAIN, Some(&[0; 4096])), [Named::None; 130]);
        for bit in (0..512 * 8).step_by(7) {
            let mut bad = bytes.to_vec();
            bad[512 + bit / 8] ^= 1 << (bit % 8);
            let found = area.decode(CHAIN, Some(&bad));
            assert_eq!(found[60..120], [Named::Unknown; 60], "bit {bit}");
            assert_eq!(found[..60], named[..60]);
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
