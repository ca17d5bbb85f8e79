//! Shingled recording behind the interface of a conventional drive (drive-managed SMR).
//!
//! Tracks overlap, so only whole *bands* can be written, from their first track to the guard region
//! behind the last. A translation layer in the drive hides that. Writes go to a *persistent cache*,
//! a log with a journal of its own, and their band becomes dirty. A dirty band is cleaned by
//! reading and writing all of it. Sequential streams bypass the cache.
//!
//! The layer decides where an access goes on the medium and when a band is cleaned. Queue, buffer
//! and mechanism are those of every drive. The layer keeps no content. Sources: Aghayev and
//! Desnoyers, "Skylight: a window on shingled disk operation" (FAST 2015); Aghayev, Ts'o, Gibson
//! and Desnoyers, "Evolving ext4 for shingled disks" (FAST 2017), sections 2.1 and 4.3; and, for
//! logs scattered over the drive, "Manylogs", section III-I.3.

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
use layout::{Band, BandLayout, Slot};
use log::Log;
pub(crate) use near::Head;
use near::{Chosen, NearLogs};
use stream::StreamDetector;

pub use figures::ShingledFigures;

/// Sectors of the longest journal entry: 2 MiB.
const ENTRY_SECTORS: u64 = 4096;

/// Where a shingled drive puts which writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePlacement {
    /// Streams go to their bands, all other writes to a single cache on the outermost tracks:
    /// drives as they are sold.
    #[default]
    Streams,
    /// Every write to the single cache ("SLSMR").
    Single,
    /// Every write goes to the log near the head's last read, on a surface that is not shingled
    /// ("MLSMR").
    NearHead,
}

/// The translation layer of one drive.
#[derive(Clone, Debug)]
pub(crate) struct Shingled {
    table: ShingledTable,
    placement: CachePlacement,
    layout: BandLayout,
    cache: Cache,
    /// Bands that were moved. The others lie in the slot of their number, counted behind the spare
    /// slots.
    moved: BTreeMap<Band, Slot>,
    /// Slots without a band. A static mapping has one, the scratch band.
    free: VecDeque<Slot>,
    streams: StreamDetector,
    near: NearLogs,
    job: Option<Job>,
    /// Whether there was no room for the last journal entry.
    refused: bool,
    /// A log that is near the head and nearly full.
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
        let layout = BandLayout::new(&table, geometry, header, placement);
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

    /// Whether writes go to a log near the head.
    pub(crate) fn writes_near_head(&self) -> bool {
        self.placement == CachePlacement::NearHead
    }

    /// Number of sectors that the host can address.
    pub(crate) fn capacity(&self) -> Sectors {
        let bands = u64::from(self.layout.slots().saturating_sub(self.table.spare_bands));
        Sectors(self.table.capacity_sectors.min(bands * self.table.band_sectors))
    }

    /// The counters at this moment.
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

    /// The addresses of the last streams, in order. Buffered writes to them go to the bands.
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

    /// Where `extent` lies on the medium: its pieces, in order of address.
    pub(crate) fn pieces(&self, extent: Extent) -> Pieces {
        let mut pieces = Pieces::new();
        self.cache.parts(extent, &mut |part, cached| match cached {
            Some(at) => join(&mut pieces, Extent { start: at, len: part.len }),
            None => self.in_bands(part, &mut pieces),
        });
        pieces
    }

    /// Adds the places of `extent` in its bands on the medium.
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

    /// Where on the medium the next write to the cache begins, if it has this number of sectors.
    pub(crate) fn next_write(&self, sectors: Sectors, head: &Head<'_>) -> Lba {
        let several = self.writes_near_head();
        let chosen = several.then(|| self.near.choose(&self.cache, sectors.0, head)).flatten();
        let nearest = || self.cache.logs()[self.near.nearest()].position();
        chosen.map_or_else(nearest, |chosen| chosen.at)
    }

    /// A stream's write goes to its bands; cached data of it is dropped as old. Returns the places
    /// on the medium, in order.
    pub(crate) fn stream_write(&mut self, extent: Extent) -> Pieces {
        self.cache.forget(extent);
        self.abandon(extent);
        self.figures.streamed_sectors.0 += extent.len.0;
        let mut pieces = Pieces::new();
        self.in_bands(extent, &mut pieces);
        pieces
    }

    /// Writes `extent` to the cache; returns the places. A long extent is cut into several journal
    /// entries, which follow each other while the log has room. `None` if there is no room.
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

    /// Writes all `places` to the cache as one journal entry; returns its place. `None` if there is
    /// no room.
    pub(crate) fn cache_entry(&mut self, places: &[Extent], head: &Head<'_>) -> Option<Extent> {
        let chosen = self.place_for(places, None, head)?;
        Some(self.write_entry(places, chosen))
    }

    /// Chooses the place for an entry: behind the last one in `log` if that has room.
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

    /// Notes the cylinder of a read.
    pub(crate) const fn read_at(&mut self, cylinder: u32) {
        self.near.read_at(cylinder);
    }
}

/// Adds a piece, or extends the last one if the piece follows it.
fn join(pieces: &mut Pieces, piece: Extent) {
    match pieces.last_mut() {
        Some(last) if last.end() == piece.start => last.len.0 += piece.len.0,
        _ => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests;
