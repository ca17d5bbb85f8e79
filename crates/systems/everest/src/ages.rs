//! The versions of each base volume in order of their age.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::store::Place;
use manylogs_logstore::{DataSequence, ExtentMap, MapValue, Mapped, Space};

use crate::versions::{Range, Version, Versions};

/// With fewer listed extents, tidying is not worth while.
const TIDY_LEAST: usize = 1024;

/// The extents that were written, by base volume and sequence. An extent whose version was
/// overwritten or deleted stays listed until [`Ages::oldest`] or [`Ages::tidy`] drops it.
///
/// Sequences are the addresses of these maps: so neighbours share the bytes that are alike.
#[derive(Debug, Default)]
pub(crate) struct Ages(BTreeMap<Space, ExtentMap<Aged>>);

/// The extent that was written with a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aged(Extent);

impl MapValue for Aged {
    fn advance(self, _: Sectors) -> Self {
        self
    }

    fn pack(self) -> [u64; 2] {
        [self.0.start.0, self.0.len.0]
    }

    fn unpack([start, len]: [u64; 2]) -> Self {
        Self(Extent::new(start, len))
    }
}

/// Where a sequence is in the map of its base volume.
const fn place_of(sequence: DataSequence) -> Extent {
    Extent::new(sequence.0, 1)
}

impl Ages {
    /// Notes that the version of `extent`, an address of the store, has this sequence.
    pub(crate) fn add(&mut self, sequence: DataSequence, extent: Extent) {
        let of_base = self.0.entry(Space::of(extent).0).or_default();
        let aged = Mapped { sequence: DataSequence(0), value: Aged(extent) };
        of_base.insert_where(place_of(sequence), aged, |_| true, |_, _| ());
    }

    /// Drops extents of which no version is left, if those are probably more than half of all.
    pub(crate) fn tidy(&mut self, map: &ExtentMap<Place>) {
        let listed: usize = self.0.values().map(ExtentMap::len).sum();
        if listed > 2 * map.len() + TIDY_LEAST {
            let is_of = |sequence: u64| {
                move |(_, mapped): (_, Option<Mapped<Place>>)| {
                    mapped.is_some_and(|mapped| mapped.sequence == DataSequence(sequence))
                }
            };
            self.0.retain(|_, of_base| {
                of_base.retain(|place, aged| map.lookup(aged.value.0).any(is_of(place.start.0)));
                !of_base.is_empty()
            });
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().map(ExtentMap::bytes).sum()
    }

    /// The oldest ranges of a base volume, `most` of them, the oldest first. Extents of which no
    /// version is left are dropped on the way.
    pub(crate) fn oldest(
        &mut self,
        base: Space,
        most: usize,
        map: &ExtentMap<Place>,
        versions: &Versions,
    ) -> Vec<Range> {
        let Some(ages) = self.0.get_mut(&base) else { return Vec::new() };
        let (mut ranges, mut gone) = (Vec::new(), Vec::new());
        for (place, aged) in ages.iter() {
            if ranges.len() >= most {
                break;
            }
            let (sequence, mut is_gone) = (DataSequence(place.start.0), true);
            for (part, mapped) in map.lookup(aged.value.0) {
                if mapped.is_some_and(|mapped| mapped.sequence == sequence) {
                    is_gone = false;
                    let named = versions.lookup(part);
                    ranges.extend(named.map(|(part, version)| range(part, version)));
                }
            }
            if is_gone {
                gone.push(place);
            }
        }
        for place in gone {
            ages.remove_where(place, |_| true, |_, _| ());
        }
        ranges.truncate(most);
        ranges
    }
}

fn range(part: Extent, version: Version) -> Range {
    Range { extent: Space::of(part).1, version }
}
