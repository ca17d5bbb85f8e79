//! The places of bands and logs on the medium.

use manylogs_block::{Extent, Lba};

use crate::geometry::Geometry;
use crate::profile::ShingledTable;

use super::CachePlacement;

/// Number of a band, in the order of the host's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Band(pub(super) u32);

impl Band {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the profile's check allows fewer than 2^31"
    )]
    pub(super) const fn of(lba: Lba, band_sectors: u64) -> Self {
        Self((lba.0 / band_sectors) as u32)
    }

    /// The addresses of the band.
    pub(super) fn extent(self, band_sectors: u64) -> Extent {
        Extent::new(u64::from(self.0) * band_sectors, band_sectors)
    }
}

/// Room for one band on the medium, with the guard region behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(pub(super) u32);

/// A stretch of shingled tracks.
#[derive(Clone, Copy, Debug)]
struct Area {
    first: u32,
    start: u64,
}

/// The parts of the medium.
#[derive(Clone, Debug)]
pub(super) struct BandLayout {
    band: u64,
    /// Sectors of a band with its guard region.
    pitch: u64,
    /// Sectors of a physical sector.
    align: u64,
    areas: Vec<Area>,
    slots: u32,
    logs: Vec<Extent>,
}

impl BandLayout {
    /// The layout of a drive. A single cache lies on the outermost tracks. Scattered logs lie on
    /// the first surface, which is not shingled.
    pub(super) fn new(
        table: &ShingledTable,
        geometry: &Geometry,
        align: u64,
        placement: CachePlacement,
    ) -> Self {
        let mut layout = Self {
            band: table.band_sectors,
            pitch: table.band_sectors + table.guard_sectors,
            align,
            areas: Vec::new(),
            slots: 0,
            logs: Vec::new(),
        };
        let capacity = geometry.capacity_sectors();
        if placement == CachePlacement::NearHead {
            layout.scatter(geometry, table.log_sectors);
        } else {
            layout.logs.push(Extent::new(0, table.cache_sectors));
            layout.add_area(table.cache_sectors, capacity);
        }
        layout
    }

    fn scatter(&mut self, geometry: &Geometry, log_sectors: u64) {
        let mut at = 0;
        for run in geometry.runs_of_head(0).filter(|run| !run.is_empty()) {
            self.add_area(at, run.start.0);
            at = run.end().0;
            // Logs and bands begin at the start of a physical sector.
            let start = run.start.0.next_multiple_of(self.align);
            let len = run.end().0.saturating_sub(start);
            let logs = (len / log_sectors).max(1);
            let each = len / logs / self.align * self.align;
            if each >= log_sectors / 2 {
                self.logs.extend((0..logs).map(|log| Extent::new(start + log * each, each)));
            }
        }
        self.add_area(at, geometry.capacity_sectors());
    }

    fn add_area(&mut self, start: u64, end: u64) {
        let start = start.next_multiple_of(self.align);
        let room = end.saturating_sub(start) / self.pitch;
        if room == 0 {
            return;
        }
        self.areas.push(Area { first: self.slots, start });
        self.slots += u32::try_from(room).unwrap_or(u32::MAX - self.slots);
    }

    pub(super) const fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn logs(&self) -> &[Extent] {
        &self.logs
    }

    /// The place of a slot's band on the medium.
    pub(super) fn extent(&self, slot: Slot) -> Extent {
        let index = self.areas.partition_point(|area| area.first <= slot.0).saturating_sub(1);
        let area = self.areas[index];
        Extent::new(area.start + u64::from(slot.0 - area.first) * self.pitch, self.band)
    }
}
