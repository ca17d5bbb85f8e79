//! Versions that lie around another one in its log: what one read of the log brings.

use manylogs_block::{Extent, Sectors};
use manylogs_plant::{self as plant, Bug};

use super::{Place, Store};
use crate::{DataSequence, ExtentMap, LogId, LogOffset, MapValue, Mapped};

/// The address of a version, found by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address(u64);

impl MapValue for Address {
    fn advance(self, by: Sectors) -> Self {
        Self(self.0 + by.0)
    }

    fn pack(self) -> [u64; 2] {
        [self.0, 0]
    }

    fn unpack([address, _]: [u64; 2]) -> Self {
        Self(address)
    }
}

/// The addresses of versions of metadata in logs, by their places. Nothing before the first
/// question, so that those who never ask pay nothing.
///
/// It may name versions that are dead or have moved: whoever asks compares with the table. So
/// nothing but new places has to be noted.
#[derive(Debug, Default)]
pub(super) struct ByPlace(Option<ExtentMap<Address>>);

/// A part of a log as an extent: the log's number above the offsets.
fn in_log(log: LogId, offset: u64, len: Sectors) -> Extent {
    Extent::new((u64::from(log.0) << LogOffset::BITS) + offset, len.0)
}

impl ByPlace {
    /// Notes that a version is at `place` from now on, if it is metadata.
    pub(super) fn note(&mut self, extent: Extent, place: Place) {
        let Place::Log { log, offset, .. } = place else { return };
        if !place.is_metadata() {
            return;
        }
        if let Some(known) = &mut self.0 {
            let mapped = Mapped { sequence: DataSequence(0), value: Address(extent.start.0) };
            let place = in_log(log, offset.0.into(), extent.len);
            known.insert_where(place, mapped, |_| true, |_, _| ());
        }
    }

    /// Begins to know the places, with those of the table.
    fn learn(&mut self, map: &ExtentMap<Place>) {
        if self.0.is_none() {
            self.0 = Some(ExtentMap::new());
            map.iter().for_each(|(extent, mapped)| self.note(extent, mapped.value));
        }
    }

    /// Forgets what lay in a log that begins anew.
    pub(super) fn forget(&mut self, log: LogId) {
        if let Some(known) = &mut self.0 {
            known.remove_where(in_log(log, 0, Sectors(1 << LogOffset::BITS)), |_| true, |_, _| ());
        }
    }

    /// The extents of which versions were noted in a part of a log, each with its offset there.
    fn within(&self, log: LogId, part: Extent) -> Vec<(Extent, LogOffset)> {
        let Some(known) = &self.0 else { return Vec::new() };
        let start = in_log(log, 0, Sectors(0)).start;
        let found = known.lookup(in_log(log, part.start.0, part.len));
        let named = found.filter_map(|(at, mapped)| {
            let Address(address) = mapped?.value;
            let offset = LogOffset(manylogs_block::narrow(at.start.0 - start.0));
            Some((Extent::new(address, at.len.0), offset))
        });
        named.collect()
    }

    /// Bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, ExtentMap::bytes)
    }
}

/// Versions that lie near each other in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// The log.
    pub log: LogId,
    /// The part of the log from the first of them to the last.
    pub span: Extent,
    /// The extents, each with the offset of its version, in the order of the log.
    pub parts: Vec<(Extent, LogOffset)>,
}

impl Store {
    /// The metadata that lies around the version of `wanted` in its log: newest versions of whole
    /// units as long as `wanted`, which begin in that one of the log's parts of `len` that has it.
    /// `None` if `wanted` is not metadata that lies in a log in one piece.
    ///
    /// The first call takes time that grows with the table; from then on the table takes more
    /// memory ([`Store::table_bytes`]).
    pub fn around(&mut self, wanted: Extent, len: Sectors) -> Option<Around> {
        let (log, at) = self.metadata_at(wanted)?;
        self.by_place.learn(&self.map);
        let unit = wanted.len;
        let start = u64::from(at.0) / len.0 * len.0;
        // A unit that begins before the end may reach beyond it.
        let part = Extent::new(start, len.0 + unit.0 - 1);
        let mut parts: Vec<(Extent, LogOffset)> = Vec::new();
        for (named, offset) in self.by_place.within(log, part) {
            for (extent, offset) in self.still_at(named, (log, offset)) {
                let whole = extent.narrowed_to(unit);
                let skip = manylogs_block::narrow::<_, u32>(whole.start.0 - extent.start.0);
                if !whole.is_empty() {
                    parts.push((whole, LogOffset(offset.0 + skip)));
                }
            }
        }
        let ((_, first), (last, end)) = parts.first().zip(parts.last()).map(|(a, b)| (*a, *b))?;
        let has_wanted = parts.iter().any(|(extent, _)| extent.contains(wanted));
        let span = Extent::new(first.0.into(), u64::from(end.0 - first.0) + last.len.0);
        has_wanted.then_some(Around { log, span, parts })
    }

    /// The log and the offset of the newest version of `wanted`, if that is metadata in one piece.
    #[must_use]
    pub fn metadata_at(&self, wanted: Extent) -> Option<(LogId, LogOffset)> {
        let [(_, Some(place))] = self.parts(wanted)[..] else { return None };
        let Place::Log { log, offset, .. } = place else { return None };
        place.is_metadata().then_some((log, offset))
    }

    /// The parts of `named` of which the table has metadata where it was noted.
    fn still_at(
        &self,
        named: Extent,
        (log, offset): (LogId, LogOffset),
    ) -> impl Iterator<Item = (Extent, LogOffset)> {
        self.map.lookup(named).filter_map(move |(part, mapped)| {
            let skip = manylogs_block::narrow::<_, u32>(part.start.0 - named.start.0);
            let noted = LogOffset(offset.0 + skip);
            let is_there = mapped.is_some_and(|mapped| match mapped.value {
                Place::Log { log: of, offset, .. } => (of, offset) == (log, noted),
                _ => false,
            });
            let is_metadata = mapped.is_some_and(|mapped| mapped.value.is_metadata());
            let counts = is_metadata && is_there || plant::is(Bug::AroundNotCompared);
            counts.then_some((part, noted))
        })
    }
}
