//! The bytes of a chain on its drives besides the segments and the root: the superblock.
//!
//! ```text
//!  LBA 0        8        32       56   64                                      end - 8
//!  +------------+--------+--------+----+-----------+-----------+-- ... --+------+------------+
//!  | superblock | root 0 | root 1 | 0  | segment 0 | segment 1 |         | 0    | superblock |
//!  +------------+--------+--------+----+-----------+-----------+-- ... --+------+------------+
//! ```
//! All drives have the same number of segments, which are numbered through the drives in their
//! order. Root 0 is on the first drive, root 1 on the second.

pub(crate) use bytes_of_superblock::BYTES;
use bytes_of_superblock::Raw;
use manylogs_block::{Extent, Lba, Payload, Request, Sectors, narrow};
use manylogs_engine::RootSlot;
use manylogs_logstore::VolumeId;
use manylogs_logstore::ondisk::protective;
use manylogs_logstore::ondisk::root::ROOT_SECTORS;
use manylogs_logstore::store::Device;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::ChainError;

const MAGIC: [u8; 8] = *b"MLGECKO1";
const VERSION: u32 = 1;
/// Sectors of a superblock.
const SUPERBLOCK: Sectors = Sectors(8);
/// First sector of the segments on each drive.
const SEGMENTS_FROM: Sectors = Sectors(64);

mod bytes_of_superblock {
    #![allow(missing_docs, reason = "fields of the format, named as in its description")]

    use zerocopy::little_endian::{U16, U32, U64};
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct Raw {
        pub magic: [u8; 8],
        pub checksum: U32,
        pub version: U32,
        pub chain: [u8; 16],
        pub drive: U16,
        pub drives: U16,
        pub physical_sectors: U32,
        pub segment_sectors: U64,
        pub segments: U64,
        pub export_sectors: U64,
        pub drive_sectors: U64,
        pub opening: U32,
        pub reserved: U32,
    }

    pub(crate) const BYTES: usize = size_of::<Raw>();
    const _: () = assert!(BYTES == 80);
}

/// Label of a drive of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) chain: VolumeId,
    /// Which of the chain's drives, and how many there are.
    pub(crate) drive: u16,
    pub(crate) drives: u16,
    pub(crate) physical: Sectors,
    pub(crate) segment: Sectors,
    /// Segments on each drive.
    pub(crate) segments: u64,
    pub(crate) export: Sectors,
    pub(crate) sectors: Sectors,
    /// The last opening that the drive took part in: never less than the root says, and at most
    /// one more.
    pub(crate) opening: u32,
}

/// Number of segments of this length that a drive has room for.
pub(crate) fn segments_in(drive: Sectors, segment: Sectors) -> u64 {
    let space = drive.0.saturating_sub(SEGMENTS_FROM.0 + 2 * SUPERBLOCK.0);
    space.checked_div(segment.0).unwrap_or(0)
}

/// Least size of a drive with so many segments.
pub(crate) const fn least_drive(segments: u64, segment: Sectors) -> Sectors {
    Sectors(SEGMENTS_FROM.0 + 2 * SUPERBLOCK.0 + segments * segment.0)
}

impl Superblock {
    /// Places of the copies on a drive of this size.
    pub(crate) fn places(sectors: Sectors) -> [Extent; 2] {
        let last = sectors.0 / SUPERBLOCK.0 * SUPERBLOCK.0 - SUPERBLOCK.0;
        [Lba(0), Lba(last)].map(|start| Extent { start, len: SUPERBLOCK })
    }

    /// The writes of both copies, the first one last.
    pub(crate) fn writes(&self) -> [Request; 2] {
        let [first, last] = Self::places(self.sectors);
        [last, first].map(|place| Request::write_fua(place, Payload::bytes(self.encode())))
    }

    fn encode(&self) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U32::new(VERSION),
            chain: self.chain,
            drive: U16::new(self.drive),
            drives: U16::new(self.drives),
            physical_sectors: U32::new(narrow(self.physical.0)),
            segment_sectors: U64::new(self.segment.0),
            segments: U64::new(self.segments),
            export_sectors: U64::new(self.export.0),
            drive_sectors: U64::new(self.sectors.0),
            opening: U32::new(self.opening),
            reserved: U32::ZERO,
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(manylogs_block::to_usize(SUPERBLOCK.bytes()), 0);
        let mbr = protective::mbr(self.sectors);
        bytes[protective::AT..][..mbr.len()].copy_from_slice(&mbr);
        bytes
    }

    /// The superblock in `bytes`; `None` if it is not whole, or says something impossible.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Self, ChainError>> {
        let mut raw = Raw::read_from_bytes(bytes.get(..BYTES)?).ok()?;
        if raw.magic != MAGIC {
            return None;
        }
        let (found, known) = (raw.version.get(), VERSION);
        if found != known {
            return Some(Err(ChainError::Version { found, known }));
        }
        let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
        let superblock = Self {
            chain: raw.chain,
            drive: raw.drive.get(),
            drives: raw.drives.get(),
            physical: Sectors(raw.physical_sectors.get().into()),
            segment: Sectors(raw.segment_sectors.get()),
            segments: raw.segments.get(),
            export: Sectors(raw.export_sectors.get()),
            sectors: Sectors(raw.drive_sectors.get()),
            opening: raw.opening.get(),
        };
        let whole = crc32c::crc32c(raw.as_bytes()) == checksum && superblock.is_possible();
        whole.then_some(Ok(superblock))
    }

    fn is_possible(&self) -> bool {
        [1, 8].contains(&self.physical.0)
            && self.segment.0.is_multiple_of(8)
            && self.drive < self.drives
            && (2..=7).contains(&self.drives)
            && self.segments > 0
            && self.segments <= segments_in(self.sectors, self.segment)
            && self.export.0 <= self.segments * self.segment.0 * u64::from(self.drives)
    }

    /// Whether two drives may be of one chain.
    pub(crate) fn is_of_one_chain(&self, other: &Self) -> bool {
        let same = |s: &Self| (s.chain, s.drives, s.physical, s.segment, s.segments, s.export);
        same(self) == same(other)
    }

    /// The drive's segments, in order of address.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (Device, Extent)> {
        let (device, len) = (Device(self.drive), self.segment.0);
        (0..self.segments).map(move |i| (device, Extent::new(SEGMENTS_FROM.0 + i * len, len)))
    }
}

/// The two slots of the root: one on each of the first two drives.
pub(crate) fn root_slots() -> [RootSlot; 2] {
    [0, 1].map(|slot: u16| RootSlot {
        device: Device(slot),
        place: Extent::new(SUPERBLOCK.0 + u64::from(slot) * ROOT_SECTORS.0, ROOT_SECTORS.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_survives_encoding_and_no_bit_flip_passes() {
        let superblock = Superblock {
            chain: *b"fedcba9876543210",
            drive: 1,
            drives: 3,
            physical: Sectors(8),
            segment: Sectors(128),
            segments: 7,
            export: Sectors(800),
            sectors: Sectors(1000),
            opening: 4,
        };
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes), Some(Ok(superblock)));
        for bit in 0..BYTES * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&bad), Some(Ok(_))), "bit {bit}");
        }
        let segments: Vec<Extent> = superblock.regions().map(|(_, at)| at).collect();
        assert_eq!(segments.len(), 7);
        assert!(segments[6].end() <= Superblock::places(superblock.sectors)[1].start);
        assert!(root_slots().iter().all(|root| root.place.end() <= segments[0].start));
        assert_eq!(least_drive(7, Sectors(128)), Sectors(976));
    }
}
