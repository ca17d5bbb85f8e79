//! Cached writes: acknowledged from the buffer, and brought to the medium later.

use std::collections::{BTreeMap, BTreeSet};

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};
use smallvec::SmallVec;

use crate::mechanics::Mechanism;

/// Number of cached writes that are compared when the next one is chosen.
const WINDOW: usize = 16;
/// Consecutive cached writes are brought to the medium in one access up to this size.
const MERGED_SECTORS: u64 = 4096;

/// Tags of the writes whose data one cached extent holds.
pub(crate) type Tags = SmallVec<[u64; 2]>;

#[derive(Clone, Debug)]
struct Dirty {
    len: u64,
    /// Sequence of the oldest write in the extent.
    oldest: u64,
    tags: Tags,
}

/// An extent on its way to the medium.
#[derive(Clone, Debug)]
pub(crate) struct Destage {
    pub(crate) extent: Extent,
    pub(crate) tags: Tags,
    oldest: SmallVec<[u64; 2]>,
}

/// The writes that are in the buffer and not yet on the medium.
#[derive(Clone, Debug)]
pub(crate) struct WriteCache {
    capacity: u64,
    /// Sectors held, including those on their way to the medium.
    held: u64,
    dirty: BTreeMap<u64, Dirty>,
    /// Sequences of the oldest writes of all extents, including those on their way.
    oldest: BTreeSet<u64>,
    next_sequence: u64,
}

impl WriteCache {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            held: 0,
            dirty: BTreeMap::new(),
            oldest: BTreeSet::new(),
            next_sequence: 0,
        }
    }

    /// Whether the buffer is large enough for a write of `len` at all.
    pub(crate) fn could_hold(&self, len: Sectors) -> bool {
        len.0 <= self.capacity
    }

    pub(crate) fn has_room(&self, len: Sectors) -> bool {
        self.held + len.0 <= self.capacity
    }

    /// Whether the buffer is so full that cached writes should not wait for an idle moment.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.held * 4 >= self.capacity * 3
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Sectors that a power cut would lose.
    pub(crate) fn volatile_sectors(&self) -> Sectors {
        Sectors(self.held)
    }

    /// The sequence that the next write will get: a flush has to wait for all smaller ones.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Whether every write with a sequence below `sequence` is on the medium.
    pub(crate) fn is_durable_before(&self, sequence: u64) -> bool {
        self.oldest.first().is_none_or(|oldest| *oldest >= sequence)
    }

    /// Whether the buffer holds all of `extent`.
    pub(crate) fn covers(&self, extent: Extent) -> bool {
        let below = self.dirty.range(..=extent.start.0).next_back();
        below.is_some_and(|(start, dirty)| start + dirty.len >= extent.end().0)
    }

    /// Adds a write. If it overlaps older writes, one extent then holds the newest data of all of
    /// them, so that no older version can reach the medium later.
    pub(crate) fn insert(&mut self, extent: Extent, tag: u64) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let (extent, mut tags, oldest) = self.absorb(extent);
        tags.push(tag);
        let oldest = oldest.into_iter().fold(sequence, u64::min);
        self.held += extent.len.0;
        self.oldest.insert(oldest);
        self.dirty.insert(extent.start.0, Dirty { len: extent.len.0, oldest, tags });
    }

    /// Removes the cached writes that overlap a write of `extent` that goes straight to the medium.
    /// That write has to cover the returned extent.
    pub(crate) fn take_overlaps(&mut self, extent: Extent) -> Destage {
        let (union, tags, oldest) = self.absorb(extent);
        for sequence in &oldest {
            self.oldest.insert(*sequence);
        }
        // The data stays in the buffer until the write has reached the medium.
        self.held += union.len.0;
        Destage { extent: union, tags, oldest }
    }

    /// Takes the cached write that goes to the medium next: the fastest to reach among those that
    /// follow the head in address order. This order is a sweep, so that each write goes eventually.
    pub(crate) fn take_next(&mut self, at: Time, mechanism: &Mechanism) -> Option<Destage> {
        let here = mechanism.next_lba().0;
        let mut best = (Nanos(u64::MAX), None);
        for (&start, _) in self.dirty.range(here..).chain(self.dirty.range(..here)).take(WINDOW) {
            let place = mechanism.geometry().locate(Lba(start));
            let time = mechanism.positioning(at, &place, true, Nanos(0));
            if time < best.0 {
                best = (time, Some(start));
            }
        }
        let start = best.1?;
        let mut destage =
            Destage { extent: Extent::new(start, 0), tags: Tags::new(), oldest: SmallVec::new() };
        self.extend(&mut destage);
        Some(destage)
    }

    /// Whether all cached writes lie in `extent`.
    pub(crate) fn lies_in(&self, extent: Extent) -> bool {
        let first = self.dirty.first_key_value();
        let last = self.dirty.last_key_value();
        first.is_none_or(|(start, _)| *start >= extent.start.0)
            && last.is_none_or(|(start, dirty)| start + dirty.len <= extent.end().0)
    }

    /// Takes the first run of adjacent cached writes that begins within `range`.
    pub(crate) fn take_within(&mut self, range: Extent) -> Option<Destage> {
        let (&start, _) = self.dirty.range(range.start.0..range.end().0).next()?;
        let mut destage =
            Destage { extent: Extent::new(start, 0), tags: Tags::new(), oldest: SmallVec::new() };
        self.extend(&mut destage);
        Some(destage)
    }

    /// The cached writes outside `others`, from the lowest address on. `others` must be sorted by
    /// address.
    pub(crate) fn batch(
        &self,
        others: &[Extent],
        writes_max: usize,
        sectors_max: u64,
    ) -> Option<Vec<Extent>> {
        let end = Extent::new(u64::MAX, 0);
        let gaps = others.iter().chain([&end]).scan(0, |from, other| {
            let gap = *from..other.start.0;
            *from = other.end().0;
            Some(gap)
        });
        let outside = gaps.flat_map(|gap| self.dirty.range(gap));
        let mut sectors = 0;
        let fits = |(_, dirty): &(&u64, &Dirty)| {
            let first = sectors == 0;
            sectors += dirty.len;
            first || sectors <= sectors_max
        };
        let batch: Vec<_> = outside
            .take(writes_max)
            .take_while(fits)
            .map(|(start, dirty)| Extent::new(*start, dirty.len))
            .collect();
        (!batch.is_empty()).then_some(batch)
    }

    /// Takes the cached write at `place`, which [`WriteCache::batch`] returned.
    pub(crate) fn take_at(&mut self, place: Extent) -> Destage {
        let dirty = self.dirty.remove(&place.start.0);
        let (tags, oldest) = dirty.map(|dirty| (dirty.tags, dirty.oldest)).unzip();
        Destage {
            extent: place,
            tags: tags.unwrap_or_default(),
            oldest: oldest.into_iter().collect(),
        }
    }

    /// Appends the cached writes that follow `destage` without a gap.
    fn extend(&mut self, destage: &mut Destage) {
        while destage.extent.len.0 < MERGED_SECTORS {
            let Some(next) = self.dirty.remove(&destage.extent.end().0) else { break };
            destage.extent.len.0 += next.len;
            destage.tags.extend(next.tags);
            destage.oldest.push(next.oldest);
        }
    }

    /// Records that `destage` is on the medium: its room is free.
    pub(crate) fn written(&mut self, destage: &Destage) {
        self.held -= destage.extent.len.0;
        for sequence in &destage.oldest {
            self.oldest.remove(sequence);
        }
    }

    /// Removes the extents that overlap `extent`. Returns their union with it, and their tags and
    /// sequences.
    fn absorb(&mut self, extent: Extent) -> (Extent, Tags, SmallVec<[u64; 2]>) {
        let (mut start, mut end) = (extent.start.0, extent.end().0);
        let (mut tags, mut sequences) = (Tags::new(), SmallVec::new());
        loop {
            let below = self.dirty.range(..end).next_back();
            let Some((&from, dirty)) = below.filter(|(from, d)| *from + d.len > start) else {
                break;
            };
            (start, end) = (start.min(from), end.max(from + dirty.len));
            if let Some(dirty) = self.dirty.remove(&from) {
                self.held -= dirty.len;
                self.oldest.remove(&dirty.oldest);
                tags.extend(dirty.tags);
                sequences.push(dirty.oldest);
            }
        }
        (Extent::between(Lba(start), Lba(end)), tags, sequences)
    }
}
