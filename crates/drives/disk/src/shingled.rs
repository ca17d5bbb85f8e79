//! Shingled recording behind the interface of a conventional drive (drive-managed SMR).
//!
//! Tracks overlap, so that only whole *bands* can be written, from their first track to the guard
//! region behind the last. A translation layer in the drive hides that: writes go to a *persistent
//! cache*, a log with a journal of its own, and the band that they belong to becomes dirty. A dirty
//! band is cleaned by reading and writing all of it. Sequential streams bypass the cache.
//!
//! The layer decides where an access goes on the medium and when a band is cleaned; queue, buffer
//! and mechanism are those of every drive. It keeps no content. Sources: Aghayev and Desnoyers,
//! "Skylight: a window on shingled disk operation" (FAST 2015); Aghayev, Ts'o, Gibson and
//! Desnoyers, "Evolving ext4 for shingled disks" (FAST 2017), sections 2.1 and 4.3; and for logs
//! that are scattered over the drive "Manylogs", section III-I.3.

mod cache;
mod cleaner;
mod figures;
mod fill;
mod jobs;
mod layout;
mod log;
mod near;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};

use crate::geometry::Geometry;
use crate::profile::{BandCleaning, BandMapping, Profile, ShingledTable};

use cache::Cache;
pub(crate) use cache::Pieces;
use cleaner::{Job, Purpose};
use layout::{Band, Layout, Slot};
use log::Log;
pub(crate) use near::Head;
use near::{Chosen, NearLogs};
use stream::StreamDetector;

pub use figures::ShingledFigures;

/// Sectors of the longest journal entry: 2 MiB.
const ENTRY_SECTORS: u64 = 4096;

/// Which writes of a shingled drive go where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePlacement {
    /// Streams to their bands, all else to a single cache on the outermost tracks: drives as they
    /// are sold.
    #[default]
    Streams,
    /// Every write to the single cache ("SLSMR").
    Single,
    /// Every write to the log next to where the head last read, on a surface that is not shingled
    /// ("MLSMR").
    NearHead,
}

/// The translation layer of one drive.
#[derive(Clone, Debug)]
pub(crate) struct Shingled {
    table: ShingledTable,
    placement: CachePlacement,
    layout: Layout,
    cache: Cache,
    /// Bands that are not in the slot of their number, which comes behind the spare slots.
    moved: BTreeMap<Band, Slot>,
    /// Slots without a band. A static mapping has one, the scratch band.
    free: VecDeque<Slot>,
    streams: StreamDetector,
    near: NearLogs,
    job: Option<Job>,
    /// Whether there was no room for the last entry.
    refused: bool,
    /// A log that the head is at and that has no room left.
    full: Option<usize>,
    /// Time of the last command.
    last_command: Time,
    figures: ShingledFigures,
}

impl Shingled {
    /// The layer of the drive that `profile` describes; `None` if it is a conventional one.
    pub(crate) fn new(
        profile: &Profile,
        geometry: &Geometry,
        placement: CachePlacement,
    ) -> Option<Self> {
        let table = profile.shingled.as_ref()?.clone();
        let header = u64::from(profile.geometry.physical_sector_bytes / 512);
        let layout = Layout::new(&table, geometry, header, placement);
        let logs: Vec<Log> = layout.logs().iter().copied().map(Log::new).collect();
        let cache_sectors = layout.logs().iter().map(|log| log.len.0).sum();
        let near = NearLogs::new(&logs, geometry, table.near_logs as usize);
        let extents_max = table.cache_extents_max as usize;
        let least = if placement == CachePlacement::Streams { table.stream_sectors } else { 0 };
        let hold = Nanos::from_secs_f64(table.stream_hold_ms / 1e3);
        Some(Self {
            free: (0..table.spare_bands).map(Slot).collect(),
            cache: Cache::new(logs, table.band_sectors, header, extents_max),
            streams: StreamDetector::new(least, hold),
            near,
            placement,
            layout,
            moved: BTreeMap::new(),
            job: None,
            refused: false,
            full: None,
            last_command: Time(0),
            figures: ShingledFigures { cache: Sectors(cache_sectors), ..Default::default() },
            table,
        })
    }

    /// Whether writes go where the head is.
    pub(crate) fn writes_near_head(&self) -> bool {
        self.placement == CachePlacement::NearHead
    }

    /// What the host can address.
    pub(crate) fn capacity(&self) -> Sectors {
        let bands = u64::from(self.layout.slots().saturating_sub(self.table.spare_bands));
        Sectors(self.table.capacity_sectors.min(bands * self.table.band_sectors))
    }

    /// Counters, up to now.
    pub(crate) fn figures(&self) -> ShingledFigures {
        ShingledFigures {
            cache_used: Sectors(self.cache.used_sectors()),
            cached_extents: self.cache.extents() as u64,
            dirty_bands: self.cache.dirty_bands() as u64,
            ..self.figures.clone()
        }
    }

    /// A command arrives.
    pub(crate) const fn command_arrives(&mut self, now: Time) {
        self.last_command = now;
    }

    /// A write arrives.
    pub(crate) fn write_arrives(&mut self, now: Time, extent: Extent) {
        self.streams.arrives(now, extent);
    }

    /// The addresses of the last streams, in order: what the buffer has of them goes to the bands.
    pub(crate) fn stream_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.streams.streams()
    }

    /// Whether a write is part of a stream.
    pub(crate) fn streams(&self, extent: Extent) -> bool {
        self.streams.holds(extent)
    }

    /// Addresses whose writes stay in the buffer, and until when: they may become a stream.
    pub(crate) fn held_back(&self) -> Option<(Extent, Time)> {
        self.streams.candidate()
    }

    /// Where `extent` is on the medium, in the order of its addresses.
    pub(crate) fn pieces(&self, extent: Extent) -> Pieces {
        let mut pieces = Pieces::new();
        self.cache.parts(extent, &mut |part, cached| match cached {
            Some(at) => join(&mut pieces, Extent { start: at, len: part.len }),
            None => self.in_bands(part, &mut pieces),
        });
        pieces
    }

    /// Where the bands of `extent` are on the medium.
    fn in_bands(&self, extent: Extent, pieces: &mut Pieces) {
        let band_sectors = self.table.band_sectors;
        let mut at = extent.start;
        while at < extent.end() {
            let band = Band::of(at, band_sectors);
            let of_band = band.extent(band_sectors);
            let len = extent.end().min(of_band.end()).0 - at.0;
            let start = self.layout.extent(self.slot_of(band)).start.0 + (at.0 - of_band.start.0);
            join(pieces, Extent::new(start, len));
            at.0 += len;
        }
    }

    fn slot_of(&self, band: Band) -> Slot {
        self.moved.get(&band).copied().unwrap_or(Slot(self.table.spare_bands + band.0))
    }

    /// Where a read of `start` begins on the medium.
    pub(crate) fn place_of(&self, start: Lba) -> Lba {
        self.pieces(Extent { start, len: Sectors(1) }).first().map_or(start, |piece| piece.start)
    }

    /// Where the next write to the cache, one of `sectors`, begins on the medium.
    pub(crate) fn next_write(&self, sectors: Sectors, head: &Head<'_>) -> Lba {
        let several = self.writes_near_head();
        let chosen = several.then(|| self.near.choose(&self.cache, sectors.0, head)).flatten();
        let nearest = || self.cache.logs()[self.near.nearest()].position();
        chosen.map_or_else(nearest, |chosen| chosen.at)
    }

    /// A stream's write goes to its bands: the parts, in order. What the cache had is no longer
    /// the newest.
    pub(crate) fn stream_write(&mut self, extent: Extent) -> Pieces {
        self.cache.forget(extent);
        self.abandon(extent);
        self.figures.streamed_sectors.0 += extent.len.0;
        let mut pieces = Pieces::new();
        self.in_bands(extent, &mut pieces);
        pieces
    }

    /// A write goes to the cache, a long one in several entries of its journal, which follow each
    /// other while the log has room: where. `None` if there is no room.
    pub(crate) fn cache_write(&mut self, extent: Extent, head: &Head<'_>) -> Option<Pieces> {
        let mut pieces = Pieces::new();
        let (mut at, mut log) = (extent.start.0, None);
        while at < extent.end().0 {
            let part = Extent::new(at, (extent.end().0 - at).min(ENTRY_SECTORS));
            let chosen = self.place_for(&[part], log, head)?;
            join(&mut pieces, self.write_entry(&[part], chosen));
            (at, log) = (part.end().0, Some(chosen.log));
        }
        Some(pieces)
    }

    /// Writes go to the cache as one entry of its journal: where. `None` if there is no room.
    pub(crate) fn cache_entry(&mut self, places: &[Extent], head: &Head<'_>) -> Option<Extent> {
        let chosen = self.place_for(places, None, head)?;
        Some(self.write_entry(places, chosen))
    }

    /// The place for an entry, behind the last one in `log` if that has room.
    fn place_for(
        &mut self,
        places: &[Extent],
        log: Option<usize>,
        head: &Head<'_>,
    ) -> Option<Chosen> {
        let sectors = places.iter().map(|place| place.len.0).sum();
        let behind = log.and_then(|log| Some(Chosen { log, at: self.cache.room(log, sectors)? }));
        let has_entries = self.cache.has_entries(places.len());
        let choose = || behind.or_else(|| self.near.choose(&self.cache, sectors, head));
        let chosen = has_entries.then(choose).flatten();
        self.refused = chosen.is_none();
        self.figures.refused_entries += u64::from(self.refused);
        chosen
    }

    fn write_entry(&mut self, places: &[Extent], chosen: Chosen) -> Extent {
        self.figures.cached_sectors.0 += places.iter().map(|place| place.len.0).sum::<u64>();
        let written = self.cache.append(chosen.log, chosen.at, places);
        self.figures.table_bytes_max = self.figures.table_bytes_max.max(self.cache.table_bytes());
        if self.writes_near_head() {
            self.note_full(self.near.nearest());
        }
        written
    }

    /// The head was there for a read.
    pub(crate) const fn read_at(&mut self, cylinder: u32) {
        self.near.read_at(cylinder);
    }
}

/// Adds a piece, or makes the last one longer.
fn join(pieces: &mut Pieces, piece: Extent) {
    match pieces.last_mut() {
        Some(last) if last.end() == piece.start => last.len.0 += piece.len.0,
        _ => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests;
