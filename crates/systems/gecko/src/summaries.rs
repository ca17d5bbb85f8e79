//! A summary of every closed segment on another link, so that an opening after a crash need not
//! read the segment.
//!
//! Each link has a *table*, which says of each of its segments which summary counts: by the
//! sequence of the segment's last record, which nothing else has. The summary lies on the next
//! link. These rules hold, on all current halves of a link:
//!
//! 1. Before a segment is written, in a new epoch or behind what an opening found, the table
//!    durably names none.
//! 2. A table names a summary only if the segment takes no more records in its epoch, all its
//!    records are durable, and so is the summary.
//! 3. An opening believes a summary only if it is whole, of this chain and this segment, and the
//!    one that the table names.
//!
//! So a summary that is believed says exactly what the segment holds. One that is lost, torn, old,
//! or of another segment costs a read of the segment. The table lies with the segment, so that a
//! link that was away for a while cannot bring old summaries back.

use std::cell::RefCell;

use manylogs_block::{Extent, Sectors, to_usize};
use manylogs_logstore::{LogId, VolumeId};

use crate::roster::LINKS;

mod area;
mod found;
mod keep;
pub(crate) use area::{Area, Named};
pub(crate) use found::SummaryReader;
pub(crate) use keep::next_link;

/// What the tables of an open chain may say: see the module.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) area: Area,
    chain: VolumeId,
    physical: Sectors,
    /// By place. What is not [`Named::None`] may be on the disk.
    named: RefCell<[Vec<Named>; LINKS]>,
    /// Held while a table is changed.
    turn: manylogs_block::TaskLock,
}

impl Tables {
    /// Tables that name nothing.
    pub(crate) fn new(area: Area, chain: VolumeId, physical: Sectors) -> Self {
        let blank = |_| vec![Named::None; to_usize(area.segments)];
        let named = RefCell::new(std::array::from_fn(blank));
        Self { area, chain, physical, named, turn: manylogs_block::TaskLock::default() }
    }

    /// The place and the number of a segment.
    pub(crate) fn place_of(&self, segment: LogId) -> (usize, u64) {
        let number = u64::from(segment.0);
        (to_usize(number / self.area.segments), number % self.area.segments)
    }

    /// What the table says of a segment.
    pub(crate) fn of(&self, segment: LogId) -> Named {
        let (place, index) = self.place_of(segment);
        let named = self.named.borrow();
        named.get(place).and_then(|of| of.get(to_usize(index))).copied().unwrap_or_default()
    }

    fn set(&self, segment: LogId, to: Named) {
        let (place, index) = self.place_of(segment);
        let mut named = self.named.borrow_mut();
        if let Some(of) = named.get_mut(place).and_then(|of| of.get_mut(to_usize(index))) {
            *of = to;
        }
    }

    /// Takes what a table was found to say.
    pub(crate) fn put(&self, place: usize, found: Vec<Named>) {
        if let Some(of) = self.named.borrow_mut().get_mut(place) {
            *of = found;
        }
    }

    /// What was unknown of a link names no summary now.
    fn forget_unknown(&self, place: usize) {
        if let Some(of) = self.named.borrow_mut().get_mut(place) {
            of.iter_mut()
                .filter(|named| **named == Named::Unknown)
                .for_each(|it| *it = Named::None);
        }
    }

    /// The write of the part of a table that tells of a segment.
    fn part(&self, segment: LogId) -> (Extent, manylogs_block::Payload) {
        let (place, index) = self.place_of(segment);
        let (at, len) = Area::part(index, self.physical);
        let [own, _] = self.area.tables();
        let named = self.named.borrow();
        let of = named.get(place).map(Vec::as_slice).unwrap_or_default();
        (Extent { start: own.start + at, len }, Area::encode(self.chain, (at, len), of))
    }

    /// The write of a whole table. What is unknown is written as none, so that none counts.
    pub(crate) fn whole(&self, place: usize) -> (Extent, manylogs_block::Payload) {
        let [own, _] = self.area.tables();
        let named = self.named.borrow();
        let of = named.get(place).map(Vec::as_slice).unwrap_or_default();
        (own, Area::encode(self.chain, (Sectors(0), own.len), of))
    }
}
