//! A summary of every closed segment on another link, so that an opening after a crash need not
//! read the segment.
//!
//! The next link, the *keeper*, has the summaries of a link's segments, and a *table*. The table
//! says of each segment from which sequence on a summary counts: its *floor*. The link itself has a
//! *mark*, and a table counts only if it has the same one. Link and keeper are never both at the
//! tail, so that of each segment only its summary is written, and that to the body. These rules
//! hold, on all current halves of a link:
//!
//! 1. A summary is written only of a segment that takes no more records in its epoch, and all of
//!    whose records are durable.
//! 2. Before a segment takes records, in a new epoch or behind what an opening found, no summary
//!    of what it held before counts, durably: its floor is as high as all sequences of records that
//!    were used, or no table that has a floor for it has the link's mark.
//! 3. A table is written with the mark of a link only while the link's segments are those that the
//!    table was read with, or written for since the mark was. If the keeper changes, is lost, or
//!    fails the write of a table, the link gets a new mark first.
//! 4. An opening believes a summary only if it is whole, of this chain and this segment, and above
//!    the floor. If one may be there that it could not read, the segment takes no records before a
//!    floor is written.
//!
//! So a summary that is believed says exactly what the segment holds. One that is lost, torn, old,
//! or of another segment costs a read of the segment. The mark lies with the segments, so that a
//! keeper that was away for a while cannot bring old summaries back.

use std::cell::RefCell;

use manylogs_block::{Extent, Payload, Sectors, to_usize};
use manylogs_logstore::{LogId, RecordSequence, VolumeId};

use crate::roster::LINKS;

mod area;
mod found;
mod keep;
mod release;
pub(crate) use area::{Area, Floor};
pub(crate) use found::SummaryReader;
pub(crate) use keep::next_link;

use area::Mark;

/// Where the table with a link's mark is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    /// Some table may have the mark, and say what does not hold any more.
    #[default]
    Unsure,
    /// No table has it. The keeper that failed to take one, if one did, is not tried again.
    Nowhere(Option<usize>),
    /// The table on this link says what is known here.
    On(usize),
}

/// What is known of the summaries of a link's segments.
#[derive(Clone, Debug)]
struct OfLink {
    /// What the link has on the disk, if that was read or written.
    mark: Option<Mark>,
    kept: Kept,
    floors: Vec<Floor>,
}

/// Which summaries of an open chain may count: see the module.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) area: Area,
    chain: VolumeId,
    physical: Sectors,
    /// By place.
    links: RefCell<[OfLink; LINKS]>,
    /// Held while a table or a mark is written.
    turn: manylogs_block::TaskLock,
    /// Held while a summary is written, and before `turn`.
    writing: manylogs_block::TaskLock,
}

impl Tables {
    /// Tables of which nothing is known.
    pub(crate) fn new(area: Area, chain: VolumeId, physical: Sectors) -> Self {
        let links = RefCell::new(std::array::from_fn(|_| OfLink::unknown(area)));
        let (turn, writing) = Default::default();
        Self { area, chain, physical, links, turn, writing }
    }

    /// The place and the number of a segment.
    pub(crate) fn place_of(&self, segment: LogId) -> (usize, u64) {
        let number = u64::from(segment.0);
        (to_usize(number / self.area.segments), number % self.area.segments)
    }

    /// What the tables say of a segment.
    pub(crate) fn floor(&self, segment: LogId) -> Floor {
        let (place, index) = self.place_of(segment);
        let links = self.links.borrow();
        links.get(place).and_then(|of| of.floors.get(to_usize(index))).copied().unwrap_or_default()
    }

    fn set_floor(&self, segment: LogId, to: Floor) {
        let (place, index) = self.place_of(segment);
        let mut links = self.links.borrow_mut();
        if let Some(of) = links.get_mut(place).and_then(|of| of.floors.get_mut(to_usize(index))) {
            *of = to;
        }
    }

    /// Whether a summary of the segment with this last record counts.
    fn counts(&self, segment: LogId, last: RecordSequence) -> bool {
        matches!(self.floor(segment), Floor::Above(floor) if last > floor)
    }

    /// Whether all summaries of a segment that may count are known: none can that is not.
    pub(crate) fn is_known(&self, segment: LogId) -> bool {
        let (place, _) = self.place_of(segment);
        matches!(self.kept(place), Kept::On(_)) && self.floor(segment) != Floor::Unknown
    }

    fn kept(&self, place: usize) -> Kept {
        self.links.borrow().get(place).map(|of| of.kept).unwrap_or_default()
    }

    fn set_kept(&self, place: usize, kept: Kept) {
        if let Some(of) = self.links.borrow_mut().get_mut(place) {
            of.kept = kept;
        }
    }

    /// From now on nothing is known of the summaries of a link's segments.
    fn forget(&self, place: usize) {
        if let Some(of) = self.links.borrow_mut().get_mut(place) {
            *of = OfLink::unknown(self.area);
        }
    }

    /// There is another link in a place, that has no table and no summaries.
    pub(crate) fn replace(&self, place: usize) {
        for of in self.links.borrow_mut().iter_mut() {
            of.kept = match of.kept {
                Kept::On(keeper) if keeper == place => Kept::Unsure,
                Kept::Nowhere(Some(keeper)) if keeper == place => Kept::Nowhere(None),
                kept => kept,
            };
        }
        self.forget(place);
    }

    /// Takes what was read of a link: its mark, and the table on `keeper`.
    fn put(&self, place: usize, mark: Option<Mark>, (keeper, bytes): (usize, Option<&[u8]>)) {
        let floors = mark.and_then(|mark| self.area.decode(mark, bytes));
        if let Some(of) = self.links.borrow_mut().get_mut(place) {
            let kept = if floors.is_some() { Kept::On(keeper) } else { Kept::Unsure };
            let floors = floors.unwrap_or_else(|| OfLink::unknown(self.area).floors);
            *of = OfLink { mark, kept, floors };
        }
    }

    /// The write of a mark; `None` if the mark of that link is not known.
    fn mark_of(&self, place: usize) -> Option<(Extent, Payload)> {
        let mark = self.links.borrow().get(place)?.mark?;
        let [own, _] = self.area.mark_and_table();
        let extent = Extent { len: self.physical, ..own };
        Some((extent, mark.encode(self.chain, self.physical)))
    }

    /// The write of the part of a table that begins at `at`, or of all of it. What is unknown is
    /// written as no floor, so that no summary counts.
    fn table(&self, place: usize, part: Option<(Sectors, Sectors)>) -> Option<(Extent, Payload)> {
        let [_, table] = self.area.mark_and_table();
        let (at, len) = part.unwrap_or((Sectors(0), table.len));
        let links = self.links.borrow();
        let of = links.get(place)?;
        let bytes = Area::encode(of.mark?, (at, len), &of.floors);
        Some((Extent { start: table.start + at, len }, bytes))
    }
}

impl OfLink {
    fn unknown(area: Area) -> Self {
        let floors = vec![Floor::None; to_usize(area.segments)];
        Self { mark: None, kept: Kept::default(), floors }
    }
}
