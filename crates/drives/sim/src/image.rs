//! The content of a crashing disk: its medium, its volatile cache, and past writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use manylogs_block::{Extent, Lba, Payload, Rng, Sector, Sectors, Time, to_usize};

use crate::ledger::Ledger;
use crate::plane::{Plane, Stored, mix, read_with};

/// The most past writes that an image remembers.
const PAST: usize = 96;
/// The most sectors that a physical sector has.
const PHYSICAL_MAX: u64 = 64;

/// Which unflushed sectors are found after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Survival {
    /// No sector.
    Nothing,
    /// The newest version of each, requests in flight included.
    Everything,
    /// For each physical sector a random version of those since it was last durable. A physical
    /// sector that was written in part may be lost as a whole: the drive reads, changes and
    /// rewrites it.
    Random,
}

/// Content of a disk that is not in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskImage {
    /// Durable content.
    durable: Plane,
    /// Versions that a power cut may lose, by the first sector of the physical sector, oldest
    /// first.
    volatile: BTreeMap<u64, Vec<Version>>,
    /// Sectors that cannot be read until they are written.
    unreadable: BTreeSet<u64>,
    /// The last writes, oldest first, if the disk was told to remember them.
    past: VecDeque<Rc<PastWrite>>,
    ledger: Ledger,
}

/// Part of a write in one physical sector: the sectors that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The order in which writes took effect in the cache.
    pub(crate) applied: u64,
    /// Whether the version covers less than the whole physical sector.
    partial: bool,
    sectors: Rc<[(u64, Stored)]>,
    hash: u64,
}

/// A write that took effect, and what it replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastWrite {
    /// Extent of the write.
    pub extent: Extent,
    /// Written content, sector by sector.
    pub after: Vec<Stored>,
    /// Content before the write.
    pub before: Vec<Stored>,
}

impl DiskImage {
    /// Content of one sector of the medium. The cache is ignored.
    #[must_use]
    pub fn durable(&self, lba: Lba) -> Sector {
        self.durable.get(lba.0)
    }

    /// Content that a user of the disk reads, cache included. Read errors are ignored.
    #[must_use]
    pub fn read(&self, extent: Extent) -> Payload {
        if self.volatile.is_empty() {
            return self.durable.read(extent);
        }
        let cached = self.cached(extent);
        read_with(extent, |lba| cached.get(&lba).copied().or_else(|| self.durable.stored(lba)))
    }

    /// The newest content of those sectors of the extent that are in the cache.
    fn cached(&self, extent: Extent) -> BTreeMap<u64, &Stored> {
        let mut newest = BTreeMap::new();
        let from = extent.start.0.saturating_sub(PHYSICAL_MAX);
        for (_, versions) in self.volatile.range(from..extent.end().0) {
            let sectors = versions.iter().flat_map(|version| version.sectors.iter());
            newest.extend(sectors.map(|(lba, stored)| (*lba, stored)));
        }
        newest
    }

    /// A hash of medium and cache: equal contents have equal hashes, and other contents different
    /// ones, except by rare chance.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = self.durable.hash();
        for (first, versions) in &self.volatile {
            for (version, age) in versions.iter().zip(1..) {
                hash = hash.wrapping_add(mix(version.hash ^ mix(first.wrapping_add(age << 40))));
            }
        }
        let unreadable = self.unreadable.iter().map(|lba| mix(lba | 1 << 63));
        unreadable.fold(hash, u64::wrapping_add)
    }

    /// Damages one sector of the medium: it reads as `content` from now on.
    pub fn corrupt(&mut self, at: Lba, content: impl Into<Stored>) {
        self.durable.set(at.0, content.into());
    }

    /// Makes one sector unreadable until it is written.
    pub fn make_unreadable(&mut self, at: Lba) {
        self.unreadable.insert(at.0);
    }

    /// Whether every sector of the extent can be read.
    #[must_use]
    pub fn is_readable(&self, extent: Extent) -> bool {
        self.unreadable.is_empty() || self.unreadable.range(extent.range()).next().is_none()
    }

    /// The writes that the image remembers, oldest first; see
    /// [`crate::CrashDisk::remember_writes`].
    pub fn past(&self) -> impl DoubleEndedIterator<Item = &PastWrite> + ExactSizeIterator {
        self.past.iter().map(Rc::as_ref)
    }

    /// Makes durable all that is in the cache.
    pub fn settle(&mut self) {
        self.settle_up_to(u64::MAX);
    }

    /// All writes of all runs in which the disk was told to remember them.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Begins a run of a disk that holds this image.
    pub(crate) fn begin_run(&mut self) {
        self.ledger.begin_run();
    }

    pub(crate) fn note_submitted(&mut self, id: u64, extent: Extent, payload: &Payload, at: Time) {
        self.ledger.submitted(id, extent, payload, at);
    }

    pub(crate) fn note_durable(&mut self, id: u64, at: Time) {
        self.ledger.durable(id, at);
    }

    pub(crate) fn newest_applied(&self) -> u64 {
        self.volatile.values().flatten().map(|version| version.applied).max().unwrap_or(0)
    }

    /// Adds a write that takes effect in the cache to the past writes.
    pub(crate) fn remember(&mut self, extent: Extent, payload: &Payload) {
        let cached = self.cached(extent);
        let now = |lba| cached.get(&lba).copied().or_else(|| self.durable.stored(lba));
        let before = extent.range().map(|lba| now(lba).cloned().unwrap_or_default()).collect();
        let after = payload.sectors().map(|sector| sector.unwrap_or_default().into()).collect();
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(Rc::new(PastWrite { extent, after, before }));
    }

    pub(crate) fn push(&mut self, first: u64, version: Version) {
        if !self.unreadable.is_empty() {
            for (lba, _) in version.sectors.iter() {
                self.unreadable.remove(lba);
            }
        }
        self.volatile.entry(first).or_default().push(version);
    }

    /// Cuts the power: `survival` says which cached versions become durable.
    pub(crate) fn cut(&mut self, survival: Survival, physical: Sectors, rng: &mut Rng) {
        for (first, versions) in std::mem::take(&mut self.volatile) {
            let kept = match survival {
                Survival::Nothing => 0,
                Survival::Everything => versions.len(),
                Survival::Random => to_usize(rng.below(versions.len() as u64 + 1)),
            };
            let torn = survival == Survival::Random
                && versions.iter().any(|version| version.partial)
                && rng.one_in(2);
            for version in versions.into_iter().take(kept) {
                self.make_durable(&version);
            }
            if torn {
                for lba in first..first + physical.0 {
                    self.corrupt(Lba(lba), Sector::Tag(rng.next_u64() | 1 << 63));
                }
            }
        }
    }

    fn make_durable(&mut self, version: &Version) {
        for (lba, stored) in version.sectors.iter() {
            self.durable.set(*lba, stored.clone());
        }
    }

    pub(crate) fn settle_up_to(&mut self, applied: u64) {
        let firsts: Vec<u64> = self.volatile.keys().copied().collect();
        for first in firsts {
            self.settle_sector(first, applied);
        }
    }

    pub(crate) fn settle_sector(&mut self, first: u64, applied: u64) {
        let Some(versions) = self.volatile.get_mut(&first) else { return };
        let old = versions.iter().take_while(|version| version.applied <= applied).count();
        let settled: Vec<Version> = versions.drain(..old).collect();
        if versions.is_empty() {
            self.volatile.remove(&first);
        }
        settled.iter().for_each(|version| self.make_durable(version));
    }
}

/// Splits a write by physical sector.
pub(crate) fn versions(
    extent: Extent,
    payload: &Payload,
    applied: u64,
    physical: Sectors,
) -> Vec<(u64, Version)> {
    let mut out: Vec<(u64, Vec<(u64, Stored)>)> = Vec::new();
    for (lba, sector) in extent.range().zip(payload.sectors()) {
        let Some(sector) = sector else { continue };
        let first = lba / physical.0 * physical.0;
        let stored = (lba, Stored::from(sector));
        match out.last_mut() {
            Some((last, sectors)) if *last == first => sectors.push(stored),
            _ => out.push((first, vec![stored])),
        }
    }
    let version = |sectors: Vec<(u64, Stored)>| {
        let hash = |(lba, stored): &(u64, Stored)| mix(stored.hash_at(*lba) ^ mix(!lba));
        Version {
            applied,
            partial: (sectors.len() as u64) < physical.0,
            hash: sectors.iter().map(hash).fold(0, u64::wrapping_add),
            sectors: sectors.into(),
        }
    };
    out.into_iter().map(|(first, sectors)| (first, version(sectors))).collect()
}
