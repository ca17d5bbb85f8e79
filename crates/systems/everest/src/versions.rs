//! The versions that clients give their blocks.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::{DataSequence, ExtentMap, MapValue, Mapped};
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
pub(crate) struct Versions(ExtentMap<Stored>);

impl Versions {
    pub(crate) const fn new() -> Self {
        Self(ExtentMap::new())
    }

    pub(crate) fn insert(&mut self, extent: Extent, version: Version) {
        let mapped = Mapped { sequence: DataSequence(version.0), value: Stored };
        self.0.insert(extent, mapped, |_, _| ());
    }

    /// The parts of `extent` that have a version, each with its version.
    pub(crate) fn lookup(&self, extent: Extent) -> impl Iterator<Item = (Extent, Version)> + '_ {
        let parts = self.0.lookup(extent);
        parts.filter_map(|(part, found)| found.map(|found| (part, Version(found.sequence.0))))
    }

    /// All parts that have a version.
    pub(crate) fn ranges(&self) -> Vec<Range> {
        let range = |(extent, found): (Extent, Mapped<Stored>)| Range {
            extent,
            version: Version(found.sequence.0),
        };
        self.0.iter().map(range).collect()
    }

    /// Removes the versions of `extent` up to `version`. Returns their parts.
    pub(crate) fn remove(&mut self, extent: Extent, version: Version) -> Vec<Extent> {
        let mut gone = Vec::new();
        let all = plant::is(Bug::DeleteIgnoresVersion);
        let newer = DataSequence(if all { u64::MAX } else { version.0.saturating_add(1) });
        self.0.remove_older(extent, newer, |part, _| gone.push(part));
        gone
    }
}
