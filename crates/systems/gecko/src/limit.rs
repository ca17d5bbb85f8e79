//! How much of a chain can be exported.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::store::Room;
use manylogs_logstore::{EntryKind, RecordShape};

use crate::summaries::Area;

/// Longest write that a crash keeps or loses as a whole. Longer writes are split.
const PIECE_MOST: Sectors = Sectors(512);
/// Segments that cleaning has for itself.
pub(crate) const SPARE_SEGMENTS: u64 = 3;
/// Drives that a chain has at most.
pub(crate) const DRIVES_MOST: usize = 7;
/// Segments that each drive has at least.
pub(crate) const SEGMENTS_LEAST: u64 = 4;

/// Sizes that follow from the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Links when the chain was opened; those that are added or removed later are not counted.
    pub(crate) drives: usize,
    /// Segments of each drive.
    pub(crate) per_drive: u64,
    pub(crate) segment: Sectors,
    pub(crate) shape: RecordShape,
}

impl Geometry {
    /// Longest entry with content.
    pub(crate) fn piece(&self) -> Sectors {
        Sectors((self.segment.0 / 8).min(PIECE_MOST.0))
    }

    /// The most room that an entry needs.
    pub(crate) fn largest(&self) -> Room {
        let extent = Extent { len: self.piece(), ..Extent::default() };
        Room::of_one(EntryKind::Data, extent, self.shape)
    }

    /// The largest export. A drive is empty when the tail comes to it, so the exported content must
    /// fit on the others. A full record of 4 KiB blocks is 99 % content.
    pub(crate) fn export_limit(&self) -> Sectors {
        let segments = (self.drives as u64 - 1) * self.per_drive;
        let usable = self.segment.0.saturating_sub(self.largest().log.0);
        let content = segments.saturating_sub(SPARE_SEGMENTS) * usable / 100 * 97;
        Sectors(content / 8 * 8)
    }
}

/// Memory of the map for each exported block of 4 KiB, if all was written at random, on a chain of
/// 20 TB: see `docs/gecko.md` for what was measured on smaller ones.
const MAP_BYTES: u64 = 14;
/// Memory of the checksum of a block in a segment, and of the list of what the segment holds.
const LISTED_BYTES: u64 = 10;
/// Of so many listed blocks one may be dead.
const LISTED_DEAD: u64 = 8;
const BLOCK: Sectors = Sectors(8);

/// Memory in bytes that the map, the checksums and the segments' lists take at most, if clients
/// write blocks of 4 KiB, of a chain with this export and segments of this length in all. Longer
/// writes take less, and shorter ones more.
#[must_use]
pub const fn table_bytes_most(export: Sectors, segments: Sectors) -> u64 {
    let (blocks, most) = (export.0 / BLOCK.0, segments.0 / BLOCK.0);
    let listed = blocks * LISTED_DEAD / (LISTED_DEAD - 1);
    let listed = if listed < most { listed } else { most };
    blocks * MAP_BYTES + listed * LISTED_BYTES
}

/// Length that a drive with so many segments keeps for summaries of another link's segments.
#[must_use]
pub fn summary_room(segments: u64, segment: Sectors) -> Sectors {
    Area { segments, slot: Area::slot_for(segment) }.len()
}

/// Length of all segments of a chain of so many links, whose smallest drive has `smallest` sectors,
/// with segments of this length.
#[must_use]
pub fn segments_in_all(links: usize, smallest: Sectors, segment: Sectors) -> Sectors {
    let per_drive = Area::segments_on(smallest, segment);
    Sectors(links as u64 * per_drive * segment.0)
}

/// The largest export of a chain of `drives` drives, the smallest of which has `smallest` sectors,
/// with segments of this length.
#[must_use]
pub fn export_limit(drives: usize, smallest: Sectors, segment: Sectors) -> Sectors {
    let per_drive = Area::segments_on(smallest, segment);
    let shape = RecordShape::in_log(Sectors(8));
    Geometry { drives: drives.max(1), per_drive, segment, shape }.export_limit()
}
