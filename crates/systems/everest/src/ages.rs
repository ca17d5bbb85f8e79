//! The versions of each base volume in order of their age.

use std::collections::BTreeMap;

use manylogs_block::Extent;
use manylogs_logstore::store::Place;
use manylogs_logstore::{DataSequence, ExtentMap, Mapped, Space};

use crate::versions::{Range, Version, Versions};

/// With fewer listed extents, tidying is not worth while.
const TIDY_LEAST: usize = 1024;

/// The extents that were written, by base volume and sequence. An extent whose version was
/// overwritten or deleted stays listed until [`Ages::oldest`] or [`Ages::tidy`] drops it.
#[derive(Debug, Default)]
pub(crate) struct Ages(BTreeMap<(Space, DataSequence), Extent>);

impl Ages {
    /// Notes that the version of `extent`, an address of the store, has this sequence.
    pub(crate) fn add(&mut self, sequence: DataSequence, extent: Extent) {
        self.0.insert((Space::of(extent).0, sequence), extent);
    }

    /// Drops extents of which no version is left, if those are probably more than half of all.
    pub(crate) fn tidy(&mut self, map: &ExtentMap<Place>) {
        if self.0.len() > 2 * map.len() + TIDY_LEAST {
            let is_of = |sequence| {
                move |(_, mapped): (_, Option<Mapped<Place>>)| {
                    mapped.is_some_and(|mapped| mapped.sequence == sequence)
                }
            };
            self.0.retain(|(_, sequence), extent| map.lookup(*extent).any(is_of(*sequence)));
        }
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
        let (mut ranges, mut gone) = (Vec::new(), Vec::new());
        let ages = (base, DataSequence(0))..=(base, DataSequence(u64::MAX));
        for (&(_, sequence), &extent) in self.0.range(ages) {
            if ranges.len() >= most {
                break;
            }
            let mut is_gone = true;
            for (part, mapped) in map.lookup(extent) {
                if mapped.is_some_and(|mapped| mapped.sequence == sequence) {
                    is_gone = false;
                    let named = versions.lookup(part);
                    ranges.extend(named.map(|(part, version)| range(part, version)));
                }
            }
            if is_gone {
                gone.push((base, sequence));
            }
        }
        for age in gone {
            self.0.remove(&age);
        }
        ranges.truncate(most);
        ranges
    }
}

fn range(part: Extent, version: Version) -> Range {
    Range { extent: Space::of(part).1, version }
}
