//! A log of the persistent cache: a stretch of the medium that takes journal entries.
//!
//! An entry is a header, which describes the content, and the sectors. Entries follow each other
//! through the stretch, again and again, wherever there is room. The room of an entry is free again
//! once none of its sectors is the newest of its address.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Lba};
use smallvec::SmallVec;

/// The extents of addresses that one journal entry holds.
pub(super) type Places = SmallVec<[Extent; 2]>;

/// The most gaps that are tried for an entry.
const GAPS_MAX: usize = 1024;

#[derive(Clone, Debug)]
struct Entry {
    /// Its extent on the medium, header included.
    at: Extent,
    /// Number of sectors that are still the newest of their address.
    live: u64,
    places: Places,
}

/// One log.
#[derive(Clone, Debug)]
pub(super) struct Log {
    medium: Extent,
    /// Gaps: first sector and length.
    free: BTreeMap<u64, u64>,
    free_sectors: u64,
    /// Where the search for room begins: at the end of the last entry.
    cursor: u64,
    /// By the number of the entry, so that the oldest comes first.
    entries: BTreeMap<u64, Entry>,
}

impl Log {
    pub(super) fn new(medium: Extent) -> Self {
        Self {
            medium,
            free: BTreeMap::from([(medium.start.0, medium.len.0)]),
            free_sectors: medium.len.0,
            cursor: medium.start.0,
            entries: BTreeMap::new(),
        }
    }

    pub(super) const fn medium(&self) -> Extent {
        self.medium
    }

    /// Sectors that entries take up.
    pub(super) const fn used(&self) -> u64 {
        self.medium.len.0 - self.free_sectors
    }

    /// Where on the medium the next entry goes if there is room right there.
    pub(super) const fn position(&self) -> Lba {
        Lba(self.cursor)
    }

    /// The place for an entry of `len` sectors: the first gap from the cursor on.
    pub(super) fn room(&self, len: u64) -> Option<Lba> {
        if len > self.free_sectors {
            return None;
        }
        let ahead = self.free.range(self.cursor..);
        let mut gaps = ahead.chain(self.free.range(..self.cursor)).take(GAPS_MAX);
        gaps.find(|(_, gap)| **gap >= len).map(|(start, _)| Lba(*start))
    }

    /// Writes an entry of `len` sectors at `at`, which [`Log::room`] returned. `live` of them
    /// belong to `places`.
    pub(super) fn append(&mut self, number: u64, at: Lba, len: u64, live: u64, places: Places) {
        if let Some(gap) = self.free.remove(&at.0)
            && gap > len
        {
            self.free.insert(at.0 + len, gap - len);
        }
        self.free_sectors -= len;
        self.cursor = at.0 + len;
        self.entries.insert(number, Entry { at: Extent::new(at.0, len), live, places });
    }

    /// Records that `sectors` of an entry are no longer the newest of their address.
    pub(super) fn release(&mut self, number: u64, sectors: u64) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.live -= sectors;
        if entry.live == 0
            && let Some(entry) = self.entries.remove(&number)
        {
            self.give_back(entry.at);
        }
    }

    fn give_back(&mut self, gap: Extent) {
        self.free_sectors += gap.len.0;
        let (mut start, mut len) = (gap.start.0, gap.len.0);
        if let Some((&before, &its)) = self.free.range(..start).next_back()
            && before + its == start
        {
            self.free.remove(&before);
            (start, len) = (before, its + len);
        }
        if let Some(behind) = self.free.remove(&(start + len)) {
            len += behind;
        }
        self.free.insert(start, len);
    }

    /// Number and places of the oldest entry.
    pub(super) fn oldest(&self) -> Option<(u64, &[Extent])> {
        self.entries.first_key_value().map(|(number, entry)| (*number, entry.places.as_slice()))
    }
}
