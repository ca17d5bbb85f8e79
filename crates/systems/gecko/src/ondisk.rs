//! The bytes of a chain on its drives besides the segments and the root: the superblock.
//!
//! The layout of a drive is that of [`equal_logs`]: a segment is a log. All drives have the same
//! number of segments, which are numbered through the drives in their order. Root 0 is on the first
//! drive, root 1 on the second.

pub(crate) use bytes_of_superblock::BYTES;
use bytes_of_superblock::{Raw, RawHalf};
use manylogs_block::{Extent, Payload, Request, Sectors, narrow, to_usize};
use manylogs_engine::RootSlot;
use manylogs_logstore::VolumeId;
use manylogs_logstore::ondisk::equal_logs::{self, ROOTS};
use manylogs_logstore::ondisk::protective;
use manylogs_logstore::store::Device;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::ChainError;
use crate::roster::{HALVES, Half, Joining, LINKS, Roster};
use crate::summaries::Area;

/// Bytes of a label without a roster.
const BYTES_WITHOUT: usize = 80;
const MAGIC: [u8; 8] = *b"MLGECKO1";
const VERSION: u32 = 2;
/// Labels of this version say that a place of the chain is empty, or that a link leaves.
const WITH_PLACES: u32 = 3;
/// Labels of this version say that there is a place for the summaries of segments, and that tables
/// on the segments' own links say which count. Programs of today do not look at those tables.
const WITH_OWN_TABLES: u32 = 4;
/// Labels of this version say that tables on the links that keep the summaries say it.
const WITH_SUMMARIES: u32 = 5;
/// Labels of this version say that halves may sleep, so the newest root may be on one half alone,
/// where programs that know no such labels do not look for it.
const WITH_SLEEPERS: u32 = 6;
/// Bytes of a label without such a place.
const BYTES_WITHOUT_SUMMARIES: usize = 336;
/// Labels of this version have no roster: each link is one drive.
const WITHOUT_ROSTER: u32 = 1;
/// The link of this half leaves.
const LEAVES: u32 = 1;
/// The chain has an SSD for its tail cache.
const CACHED: u32 = 2;

mod bytes_of_superblock {
    #![allow(missing_docs, reason = "fields of the format, named as in its description")]

    use zerocopy::little_endian::{U16, U32, U64};
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

    use crate::roster::{HALVES, LINKS};

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
        pub halves: U32,
        pub id: U64,
        pub roster_version: U64,
        pub joining_id: U64,
        pub joining_link: U16,
        pub joining_half: U16,
        pub joining_copied: U32,
        pub current: [[RawHalf; HALVES]; LINKS],
        pub slot_sectors: U32,
        pub reserved: U32,
    }

    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawHalf {
        pub id: U64,
        pub since: U32,
        pub flags: U32,
    }

    pub(crate) const BYTES: usize = size_of::<Raw>();
    const _: () = assert!(BYTES == 344);
}

/// Label of a drive of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) chain: VolumeId,
    /// The link that the drive belongs to.
    pub(crate) drive: u16,
    /// Drives of each link: two if they are mirrored, else one.
    pub(crate) halves: u32,
    pub(crate) physical: Sectors,
    pub(crate) segment: Sectors,
    /// Segments on each drive.
    pub(crate) segments: u64,
    pub(crate) export: Sectors,
    pub(crate) sectors: Sectors,
    /// The last opening that the drive took part in: that of the root, or one more.
    pub(crate) opening: u32,
    /// The drive itself, random. The roster names drives by it.
    pub(crate) id: u64,
    /// Which drives were current when this was written.
    pub(crate) roster: Roster,
    /// Room for the summary of a segment; zero if the chain keeps none.
    pub(crate) slot: Sectors,
}

impl From<Half> for RawHalf {
    fn from(half: Half) -> Self {
        let (id, since) = (U64::new(half.id), U32::new(half.since));
        Self { id, since, flags: U32::ZERO }
    }
}

impl From<RawHalf> for Half {
    fn from(raw: RawHalf) -> Self {
        Self { id: raw.id.get(), since: raw.since.get() }
    }
}

impl Superblock {
    /// Places of the copies on a drive of this size.
    pub(crate) fn places(sectors: Sectors) -> [Extent; 2] {
        equal_logs::superblocks(sectors)
    }

    /// The writes of both copies, the first one last.
    pub(crate) fn writes(&self) -> [Request; 2] {
        let [first, last] = Self::places(self.sectors);
        [last, first].map(|place| Request::write_fua(place, Payload::bytes(self.encode())))
    }

    fn encode(&self) -> Vec<u8> {
        let joining = self.roster.joining.unwrap_or_default();
        let raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U32::new(self.version()),
            chain: self.chain,
            drive: U16::new(self.drive),
            drives: U16::new(narrow(self.roster.places())),
            physical_sectors: U32::new(narrow(self.physical.0)),
            segment_sectors: U64::new(self.segment.0),
            segments: U64::new(self.segments),
            export_sectors: U64::new(self.export.0),
            drive_sectors: U64::new(self.sectors.0),
            opening: U32::new(self.opening),
            halves: U32::new(self.halves),
            id: U64::new(self.id),
            roster_version: U64::new(self.roster.version),
            joining_id: U64::new(joining.id),
            joining_link: U16::new(joining.link),
            joining_half: U16::new(joining.half),
            joining_copied: U32::new(joining.copied),
            current: self.halves_of_roster(),
            slot_sectors: U32::new(narrow(self.slot.0)),
            reserved: U32::ZERO,
        };
        let mut bytes = equal_logs::seal(&raw.as_bytes()[..covered(self.version())]);
        let mbr = protective::mbr(self.sectors);
        bytes[protective::AT..][..mbr.len()].copy_from_slice(&mbr);
        bytes
    }

    fn version(&self) -> u32 {
        match self.slot.0 {
            _ if self.roster.has_sleepers => WITH_SLEEPERS,
            0 if self.roster.needs_places() => WITH_PLACES,
            0 => VERSION,
            _ => WITH_SUMMARIES,
        }
    }

    /// Where the drive keeps summaries; `None` if the chain keeps none.
    pub(crate) fn area(&self) -> Option<Area> {
        (self.slot.0 > 0).then_some(Area { segments: self.segments, slot: self.slot })
    }

    /// Least size of a drive of this chain.
    pub(crate) fn least_device(&self) -> Sectors {
        let front = self.area().map_or(Sectors(0), Area::len);
        equal_logs::least_device(self.segments, self.segment) + front
    }

    fn halves_of_roster(&self) -> [[RawHalf; HALVES]; LINKS] {
        let mut all = self.roster.links.map(|of| of.map(RawHalf::from));
        let cached = if self.roster.has_cache { CACHED } else { 0 };
        for (link, of) in (0..).zip(&mut all) {
            let leaves = if self.roster.leaving == Some(link) { LEAVES } else { 0 };
            let used = of.iter_mut().filter(|half| half.id.get() != 0);
            used.for_each(|half| half.flags = (leaves | cached).into());
        }
        all
    }

    /// The superblock in `bytes`; `None` if it is not whole, or says something impossible.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Self, ChainError>> {
        let raw = Raw::read_from_bytes(bytes.get(..BYTES)?).ok()?;
        if raw.magic != MAGIC {
            return None;
        }
        let (found, known) = (raw.version.get(), WITH_SLEEPERS);
        if !(WITHOUT_ROSTER..=known).contains(&found) {
            return Some(Err(ChainError::Version { found, known }));
        }
        let has_roster = found != WITHOUT_ROSTER;
        let mut superblock = Self::of(&raw);
        if found < WITH_OWN_TABLES {
            superblock.slot = Sectors(0);
        }
        if !has_roster {
            superblock.without_roster(raw.drives.get());
        }
        let says_places = found >= WITH_PLACES || !superblock.roster.needs_places();
        let says_places = says_places && superblock.roster.places() == raw.drives.get().into();
        superblock.roster.has_sleepers = found == WITH_SLEEPERS;
        // Labels of a chain with and without summaries say that halves may sleep.
        let says_slot =
            found == WITH_SLEEPERS || (found >= WITH_OWN_TABLES) == (superblock.slot.0 > 0);
        let covered = &raw.as_bytes()[..covered(found)];
        let whole =
            equal_logs::is_whole(covered) && says_slot && superblock.is_possible() && says_places;
        whole.then_some(Ok(superblock))
    }

    fn of(raw: &Raw) -> Self {
        let id = raw.joining_id.get();
        let (link, half) = (raw.joining_link.get(), raw.joining_half.get());
        let copied = raw.joining_copied.get();
        let joining = Some(Joining { id, link, half, copied }).filter(|joining| joining.id != 0);
        let links = raw.current.map(|of| of.map(Half::from));
        let leaves = |of: &[RawHalf; HALVES]| of.iter().any(|half| half.flags.get() & LEAVES != 0);
        let leaving = (0..).zip(&raw.current).find(|(_, of)| leaves(of)).map(|(link, _)| link);
        let mut halves = raw.current.iter().flatten();
        let has_cache = halves.any(|half| half.flags.get() & CACHED != 0);
        Self {
            chain: raw.chain,
            drive: raw.drive.get(),
            halves: raw.halves.get(),
            physical: Sectors(raw.physical_sectors.get().into()),
            segment: Sectors(raw.segment_sectors.get()),
            segments: raw.segments.get(),
            export: Sectors(raw.export_sectors.get()),
            sectors: Sectors(raw.drive_sectors.get()),
            opening: raw.opening.get(),
            id: raw.id.get(),
            roster: Roster {
                version: raw.roster_version.get(),
                links,
                joining,
                leaving,
                has_cache,
                has_sleepers: false,
            },
            slot: Sectors(raw.slot_sectors.get().into()),
        }
    }

    /// The drives of a label without a roster are named by their numbers. The next opening writes
    /// that down, so all drives must come to the same.
    fn without_roster(&mut self, drives: u16) {
        self.halves = 1;
        self.id = u64::from(self.drive) + 1;
        let ids: Vec<Vec<u64>> = (1..=u64::from(drives)).map(|id| vec![id]).collect();
        self.roster = Roster { version: 0, ..Roster::first(&ids) };
    }

    fn is_possible(&self) -> bool {
        [1, 8].contains(&self.physical.0)
            && self.segment.0.is_multiple_of(8)
            && usize::from(self.drive) < LINKS
            && [1, 2].contains(&self.halves)
            && self.roster.is_possible(to_usize(self.halves.into()))
            && self.segments > 0
            && self.slot.0.is_multiple_of(8)
            && self.segments <= equal_logs::log_count(self.sectors, self.segment)
            && self.least_device() <= self.sectors
            && self.export.0 <= self.segments * self.segment.0 * LINKS as u64
    }

    /// Orders rosters: the newest counts.
    pub(crate) const fn age(&self) -> (u32, u64) {
        (self.opening, self.roster.version)
    }

    /// Whether two drives may be of one chain.
    pub(crate) fn is_of_one_chain(&self, other: &Self) -> bool {
        let same = |s: &Self| {
            let sizes = (s.physical, s.segment, s.segments, s.export, s.slot);
            (s.chain, s.halves, sizes)
        };
        same(self) == same(other)
    }

    /// The segments of the link in a place, in order of address.
    pub(crate) fn regions(&self, place: usize) -> impl Iterator<Item = (Device, Extent)> {
        let front = self.area().map_or(Sectors(0), Area::len);
        equal_logs::logs_behind(front, Device(narrow(place)), self.segments, self.segment)
    }
}

/// Bytes of a label of this version that its checksum covers.
const fn covered(version: u32) -> usize {
    match version {
        WITHOUT_ROSTER => BYTES_WITHOUT,
        VERSION | WITH_PLACES => BYTES_WITHOUT_SUMMARIES,
        _ => BYTES,
    }
}

/// The two slots of the root: one on each of the first two links that the chain has. A slot on a
/// link that is `lost` is on the third one meanwhile.
pub(crate) fn root_slots(roster: &Roster, lost: Option<usize>) -> [RootSlot; 2] {
    let mut links = roster.in_use();
    let first = [links.next(), links.next()].map(Option::unwrap_or_default);
    let third = links.next().unwrap_or_default();
    let mut places = ROOTS.into_iter();
    first.map(|link| {
        let link = if lost == Some(link) { third } else { link };
        let place = places.next().unwrap_or_default();
        RootSlot { device: Device(narrow(link)), place }
    })
}

/// Where a slot of the root may have been while a link was lost: see [`root_slots`].
pub(crate) fn slots_meanwhile(roster: &Roster) -> Option<[RootSlot; 2]> {
    let device = Device(narrow(roster.in_use().nth(2)?));
    Some(ROOTS.map(|place| RootSlot { device, place }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Change;

    #[test]
    fn a_superblock_survives_encoding_and_no_bit_flip_passes() {
        let superblock = Superblock {
            chain: *b"fedcba9876543210",
            drive: 1,
            halves: 2,
            physical: Sectors(8),
            segment: Sectors(128),
            segments: 7,
            export: Sectors(800),
            sectors: Sectors(1000),
            opening: 4,
            id: 22,
            roster: Roster {
                joining: Some(Joining { id: 9, link: 2, half: 1, copied: 5 }),
                ..Roster::first(&[vec![11, 12], vec![21, 22], vec![31, 32]])
            },
            slot: Sectors(0),
        };
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes), Some(Ok(superblock)));
        for bit in 0..BYTES_WITHOUT_SUMMARIES * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&bad), Some(Ok(_))), "bit {bit}");
        }
        let segments: Vec<Extent> = superblock.regions(1).map(|(_, at)| at).collect();
        assert_eq!(segments.len(), 7);
        assert!(segments[6].end() <= Superblock::places(superblock.sectors)[1].start);
        assert!(
            root_slots(&superblock.roster, None)
                .iter()
                .all(|root| root.place.end() <= segments[0].start)
        );
        assert_eq!(equal_logs::least_device(7, Sectors(128)), Sectors(976));
    }

    #[test]
    fn older_programs_refuse_a_label_with_an_empty_place_or_a_link_that_leaves() {
        let roster = Roster::first(&[vec![1], vec![2], vec![3]]);
        let label = |roster| Superblock {
            chain: [7; 16],
            drive: 2,
            halves: 1,
            physical: Sectors(8),
            segment: Sectors(128),
            segments: 7,
            export: Sectors(800),
            sectors: Sectors(1000),
            opening: 4,
            id: 3,
            roster,
            slot: Sectors(0),
        };
        let leaves = roster.after(Change::Evacuate { link: 0 }).unwrap().unwrap();
        let left = leaves.after(Change::Remove { link: 0 }).unwrap().unwrap();
        for (roster, version) in [(roster, 2), (leaves, 3), (left, 3)] {
            let bytes = label(roster).encode();
            assert_eq!(bytes[12], version);
            assert_eq!(Superblock::decode(&bytes), Some(Ok(label(roster))));
        }
        let slots = root_slots(&left, None).map(|slot| slot.device.0);
        assert_eq!(slots, [1, 2], "the root is on links that the chain has");
    }

    #[test]
    fn older_programs_refuse_a_label_of_a_chain_whose_halves_may_sleep() {
        let roster = Roster::first(&[vec![1, 2], vec![3, 4]]);
        let sleeps = roster.after(Change::Sleepers(true)).unwrap().unwrap();
        let woken = sleeps.after(Change::Sleepers(false)).unwrap().unwrap();
        for (slot, before) in [(0, 2), (8, 5)] {
            for (roster, version) in [(roster, before), (sleeps, 6), (woken, before)] {
                let label = Superblock {
                    chain: [7; 16],
                    drive: 1,
                    halves: 2,
                    physical: Sectors(8),
                    segment: Sectors(128),
                    segments: 7,
                    export: Sectors(800),
                    sectors: Sectors(1200),
                    opening: 4,
                    id: 3,
                    roster,
                    slot: Sectors(slot),
                };
                let mut bytes = label.encode();
                assert_eq!(bytes[12], version);
                assert_eq!(Superblock::decode(&bytes), Some(Ok(label)));
                bytes[12] = 7;
                let refused = ChainError::Version { found: 7, known: 6 };
                assert_eq!(Superblock::decode(&bytes), Some(Err(refused)));
            }
        }
    }

    #[test]
    fn a_label_without_a_roster_names_drives_by_number() {
        let mut raw = vec![0; BYTES_WITHOUT];
        raw[..8].copy_from_slice(&MAGIC);
        raw[12..16].copy_from_slice(&1u32.to_le_bytes());
        raw[32..34].copy_from_slice(&1u16.to_le_bytes());
        raw[34..36].copy_from_slice(&3u16.to_le_bytes());
        raw[36..40].copy_from_slice(&1u32.to_le_bytes());
        for (at, value) in [(40, 128u64), (48, 7), (56, 800), (64, 1000)] {
            raw[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let found = Superblock::decode(&equal_logs::seal(&raw)).unwrap().unwrap();
        assert_eq!((found.id, found.halves), (2, 1));
        assert_eq!(found.roster.place(3), Some((2, 0)));
        assert_eq!(found.roster.place(4), None);
    }
}
