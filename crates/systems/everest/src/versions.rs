//! The versions that clients give their blocks.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::{DataSequence, ExtentMap, MapValue, Mapped, Space};
use manylogs_plant::{self as plant, Bug};

/// A version of blocks, numbered by the client. The number grows with each write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// Bits of the count of an incarnation's writes.
const COUNT_BITS: u32 = 40;

impl Version {
    /// The `count`th version of an incarnation: newer than all of earlier incarnations. Two
    /// openings with the same incarnation can give the same version. The store tells such openings
    /// apart by their tokens when a session begins.
    #[must_use]
    pub const fn new(incarnation: u32, count: u64) -> Self {
        Self((incarnation as u64) << COUNT_BITS | count)
    }

    /// A version that is at least as new as all of an incarnation.
    pub(crate) const fn last_of(incarnation: u32) -> Self {
        Self::new(incarnation, (1 << COUNT_BITS) - 1)
    }

    /// The incarnation that gave the version.
    #[must_use]
    pub const fn incarnation(self) -> u64 {
        self.0 >> COUNT_BITS
    }

    /// Its number among the versions of that incarnation.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0 & ((1 << COUNT_BITS) - 1)
    }

    /// The version with the next smaller number.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// An opening beyond this would need more bits than a version has.
pub(crate) const INCARNATION_LAST: u32 = (1 << (64 - COUNT_BITS)) - 1;

/// A range that the store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The range, in addresses of the base volume.
    pub extent: Extent,
    /// The version that the owner gave it.
    pub version: Version,
}

/// Marks an extent that a store has a version of. The version's number is the sequence in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored;

impl MapValue for Stored {
    fn advance(self, _: Sectors) -> Self {
        self
    }

    fn pack(self) -> [u64; 2] {
        [0, 0]
    }

    fn unpack(_: [u64; 2]) -> Self {
        Self
    }
}

/// The owners' versions, by address.
#[derive(Debug)]
pub(crate) struct Versions {
    map: ExtentMap<Stored>,
    /// What is held in each space: a store looks at it for each write.
    held: BTreeMap<Space, Sectors>,
    /// How often something was inserted or removed.
    changes: u64,
}

impl Versions {
    pub(crate) const fn new() -> Self {
        Self { map: ExtentMap::new(), held: BTreeMap::new(), changes: 0 }
    }

    /// The newest version of each place in `ranges`.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range>) -> Self {
        let mut versions = Self::new();
        ranges.into_iter().for_each(|range| versions.insert(range.extent, range.version));
        versions
    }

    pub(crate) fn insert(&mut self, extent: Extent, version: Version) {
        let mapped = Mapped { sequence: DataSequence(version.0), value: Stored };
        // A part that has a newer version stays as it is: so what counts is the difference.
        let had = self.sectors(extent);
        self.map.insert(extent, mapped, |_, _| ());
        self.changes += 1;
        let has = self.sectors(extent);
        let held = self.held.entry(Space::of(extent).0).or_default();
        *held = Sectors(held.0 + has.0 - had.0);
    }

    /// A number that grows whenever something is inserted or removed.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// How much of `extent` has a version.
    pub(crate) fn sectors(&self, extent: Extent) -> Sectors {
        Sectors(self.lookup(extent).map(|(part, _)| part.len.0).sum())
    }

    /// How much of a space has a version, without looking at its extents.
    pub(crate) fn held(&self, space: Space) -> Sectors {
        self.held.get(&space).copied().unwrap_or_default()
    }

    /// The parts of `extent` that have a version, each with its version.
    pub(crate) fn lookup(&self, extent: Extent) -> impl Iterator<Item = (Extent, Version)> + '_ {
        let parts = self.map.lookup(extent);
        parts.filter_map(|(part, found)| found.map(|found| (part, Version(found.sequence.0))))
    }

    /// All parts that have a version.
    pub(crate) fn ranges(&self) -> Vec<Range> {
        let range = |(extent, found): (Extent, Mapped<Stored>)| Range {
            extent,
            version: Version(found.sequence.0),
        };
        self.map.iter().map(range).collect()
    }

    /// Removes the versions of `extent` up to `version`. Returns their parts.
    pub(crate) fn remove(&mut self, extent: Extent, version: Version) -> Vec<Extent> {
        let mut gone = Vec::new();
        let all = plant::is(Bug::DeleteIgnoresVersion);
        let newer = DataSequence(if all { u64::MAX } else { version.0.saturating_add(1) });
        self.map.remove_older(extent, newer, |part, _| gone.push(part));
        self.changes += u64::from(!gone.is_empty());
        let sectors: u64 = gone.iter().map(|part| part.len.0).sum();
        if let Some(held) = self.held.get_mut(&Space::of(extent).0) {
            held.0 -= sectors;
        }
        gone
    }
}
