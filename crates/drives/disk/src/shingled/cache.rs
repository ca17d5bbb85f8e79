//! The persistent cache: its logs, and the map to the newest data of each address in them.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Lba};
use smallvec::SmallVec;

use super::layout::Band;
use super::log::{Log, Places};

/// Stretches in one journal entry when the content of a log is moved.
const MOVED_STRETCHES: usize = 128;

/// The places of an access on the medium, piece by piece.
pub(crate) type Pieces = SmallVec<[Extent; 4]>;

/// A stretch of addresses whose newest content is in the cache.
#[derive(Clone, Copy, Debug)]
struct Cached {
    len: u64,
    /// Its place on the medium.
    at: u64,
    log: u32,
    /// Number of its journal entry, counted over all logs.
    entry: u64,
}

/// Memory that the table needs for one stretch.
const STRETCH_BYTES: u64 = size_of::<(u64, Cached)>() as u64;

/// The logs and the map.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    band_sectors: u64,
    header_sectors: u64,
    /// Number of stretches that the drive's table has room for.
    extents_max: usize,
    logs: Vec<Log>,
    map: BTreeMap<u64, Cached>,
    /// Sectors of each band that are in the cache.
    dirty: BTreeMap<Band, u64>,
    used: u64,
    /// Number of the next journal entry.
    next_entry: u64,
}

impl Cache {
    pub(super) fn new(logs: Vec<Log>, band: u64, header: u64, extents_max: usize) -> Self {
        Self {
            band_sectors: band,
            header_sectors: header,
            extents_max,
            logs,
            map: BTreeMap::new(),
            dirty: BTreeMap::new(),
            used: 0,
            next_entry: 0,
        }
    }

    pub(super) fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// Sectors of the logs that are in use.
    pub(super) const fn used_sectors(&self) -> u64 {
        self.used
    }

    /// Number of stretches in the table.
    pub(super) fn extents(&self) -> usize {
        self.map.len()
    }

    /// Memory that the table takes.
    pub(super) fn table_bytes(&self) -> u64 {
        self.map.len() as u64 * STRETCH_BYTES
    }

    pub(super) const fn extents_max(&self) -> usize {
        self.extents_max
    }

    /// Number of the next journal entry, counted over all logs.
    pub(super) const fn next_entry(&self) -> u64 {
        self.next_entry
    }

    pub(super) fn dirty_bands(&self) -> usize {
        self.dirty.len()
    }

    /// Length of a journal entry with this number of sectors of content, header included.
    pub(super) fn entry_sectors(&self, sectors: u64) -> u64 {
        self.header_sectors + sectors.next_multiple_of(self.header_sectors)
    }

    /// Whether the table has room for an entry with this number of stretches.
    pub(super) fn has_entries(&self, stretches: usize) -> bool {
        // Each stretch may lie in two bands, and cut an older one in two.
        self.map.len() + 3 * stretches <= self.extents_max
    }

    /// Where a log has room for an entry with this number of sectors of content.
    pub(super) fn room(&self, log: usize, sectors: u64) -> Option<Lba> {
        self.logs[log].room(self.entry_sectors(sectors))
    }

    /// Writes a journal entry with these places at `at`, which [`Cache::room`] returned. Returns
    /// the extent of the entry on the medium.
    pub(super) fn append(&mut self, log: usize, at: Lba, places: &[Extent]) -> Extent {
        let live: u64 = places.iter().map(|place| place.len.0).sum();
        let (len, entry) = (self.entry_sectors(live), self.next_entry);
        self.next_entry += 1;
        self.logs[log].append(entry, at, len, live, Places::from_slice(places));
        self.used += len;
        let mut next = at.0 + self.header_sectors;
        for place in places {
            self.forget(*place);
            for part in self.by_band(*place) {
                let len = part.len.0;
                #[expect(clippy::cast_possible_truncation, reason = "there are fewer logs")]
                let cached = Cached { len, at: next, log: log as u32, entry };
                self.map.insert(part.start.0, cached);
                *self.dirty.entry(self.band_of(part.start)).or_default() += len;
                next += len;
            }
        }
        Extent::new(at.0, len)
    }

    /// Drops the cached data of `extent`, which is no longer the newest.
    pub(super) fn forget(&mut self, extent: Extent) {
        self.forget_before(extent, u64::MAX);
    }

    /// As [`Cache::forget`], but only for entries older than `entry`.
    pub(super) fn forget_before(&mut self, extent: Extent, entry: u64) {
        let (start, end) = (extent.start.0, extent.end().0);
        let mut from = end;
        while let Some((&first, &cached)) = self.map.range(..from).next_back() {
            if first + cached.len <= start {
                break;
            }
            from = first;
            if cached.entry < entry {
                self.cut(first, cached, start, end);
            }
        }
    }

    /// Removes [`start`, `end`) from the stretch at `first`.
    fn cut(&mut self, first: u64, cached: Cached, start: u64, end: u64) {
        let (from, to) = (first.max(start), (first + cached.len).min(end));
        self.map.remove(&first);
        if first < from {
            self.map.insert(first, Cached { len: from - first, ..cached });
        }
        if to < first + cached.len {
            let (len, at) = (first + cached.len - to, cached.at + (to - first));
            self.map.insert(to, Cached { len, at, ..cached });
        }
        let band = self.band_of(Lba(first));
        let left = self.dirty.get_mut(&band).map_or(0, |sectors| {
            *sectors -= to - from;
            *sectors
        });
        if left == 0 {
            self.dirty.remove(&band);
        }
        let log = &mut self.logs[cached.log as usize];
        let before = log.used();
        log.release(cached.entry, to - from);
        self.used -= before - log.used();
    }

    /// Moves the data that log `from` got before `entry` to log `to`, as far as that has room.
    pub(super) fn move_log(&mut self, from: usize, to: usize, entry: u64) {
        let there = |cached: &Cached| cached.log as usize == from && cached.entry < entry;
        let stretches = self.map.iter().filter(|(_, cached)| there(cached));
        let places: Places =
            stretches.map(|(first, cached)| Extent::new(*first, cached.len)).collect();
        for batch in places.chunks(MOVED_STRETCHES) {
            let sectors = batch.iter().map(|place| place.len.0).sum();
            let Some(at) = self.room(to, sectors) else { return };
            self.append(to, at, batch);
        }
    }

    /// Calls `each` for the parts of `extent`, with their place on the medium if they are cached.
    pub(super) fn parts(&self, extent: Extent, each: &mut impl FnMut(Extent, Option<Lba>)) {
        let (mut at, end) = (extent.start.0, extent.end().0);
        let before = self.map.range(..at).next_back();
        let before = before.filter(|(first, cached)| **first + cached.len > at);
        for (&first, cached) in before.into_iter().chain(self.map.range(at..end)) {
            if at < first {
                each(Extent::between(Lba(at), Lba(first)), None);
                at = first;
            }
            let to = (first + cached.len).min(end);
            each(Extent::between(Lba(at), Lba(to)), Some(Lba(cached.at + (at - first))));
            at = to;
        }
        if at < end {
            each(Extent::between(Lba(at), Lba(end)), None);
        }
    }

    /// The band that the oldest live entry of a log belongs to.
    pub(super) fn oldest_band(&self, log: usize) -> Option<Band> {
        let (entry, places) = self.logs[log].oldest()?;
        let mut found = None;
        for place in places {
            let before = self.map.range(..place.start.0).next_back();
            let stretches = self.map.range(place.start.0..place.end().0).chain(before);
            for (first, cached) in stretches {
                let is_it = cached.log as usize == log && cached.entry == entry;
                if is_it && first + cached.len > place.start.0 {
                    found = Some(self.band_of(Lba(*first)));
                }
            }
        }
        found
    }

    /// The band with the most sectors in the cache.
    pub(super) fn fullest_band(&self) -> Option<Band> {
        self.dirty.iter().max_by_key(|(band, sectors)| (**sectors, **band)).map(|(band, _)| *band)
    }

    const fn band_of(&self, lba: Lba) -> Band {
        Band::of(lba, self.band_sectors)
    }

    /// `extent`, cut at the borders of bands.
    fn by_band(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let band = self.band_sectors;
        let mut at = extent.start.0;
        std::iter::from_fn(move || {
            let to = (at / band * band + band).min(extent.end().0);
            let part = (at < to).then(|| Extent::between(Lba(at), Lba(to)))?;
            at = to;
            Some(part)
        })
    }
}
