//! Geometry: zone, track, cylinder, head and angle of sectors.
//!
//! Sectors are numbered along a serpentine: a zone is cut into bands of cylinders, a band is
//! written head by head, the first head inwards, the second outwards, and so on; the next band
//! takes the heads in reverse order. Defective sectors are slipped, so that the position within a
//! zone (the *slot*) runs ahead of the sector number by the slips up to there.

mod build;

use std::cmp::Ordering;

use manylogs_block::{Extent, Lba};

use crate::spindle::{Angle, Rotation};

/// Position of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index of the zone.
    pub zone: u32,
    /// Number of the track within its zone, in the order of the sector numbers.
    pub track: u32,
    /// Slot on the track, from the track's first.
    pub sector: u32,
    /// Cylinder, counted from the outside.
    pub cylinder: u32,
    /// Head (recording surface).
    pub head: u32,
    /// Angle at which the sector begins.
    pub angle: Angle,
}

/// The layout of a drive.
#[derive(Clone, Debug)]
pub struct Geometry {
    zones: Vec<Zone>,
    segments: Vec<Segment>,
    /// For each stretch of 2^`stretch_bits` sectors, the segment that holds its first sector.
    stretches: Vec<u16>,
    stretch_bits: u32,
    heads: u32,
    cylinders: u32,
    capacity: u64,
    skew: Skew,
}

/// Angles between the ends and starts of consecutive tracks.
#[derive(Clone, Copy, Debug)]
struct Skew {
    track: Angle,
    head: Angle,
    band: Angle,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_cylinder: u32,
    band_cylinders: u32,
    /// Cylinders of the last band, which takes up the remainder.
    last_band_cylinders: u32,
    bands: u32,
    first_lba: u64,
    sectors: u32,
    sectors_per_track: u32,
    /// Angle of one sector in units of 2^-48 revolution.
    sector_angle_q48: u64,
    /// Sum of the skews over one full band, up to the start of the next.
    band_angle: Angle,
    /// Sum of the skews over one head's run in a full band, up to the next head's start.
    run_angle: Angle,
    /// As `run_angle`, in the last band.
    last_run_angle: Angle,
}

/// A stretch of a zone over which slips grow evenly.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first_lba: u64,
    zone: u32,
    /// Slot of the first sector, counted from the zone's start, in units of 2^-20.
    slot_q20: u64,
    /// Slots per sector beyond one, in units of 2^-40.
    slip_rate_q40: u64,
}

/// A track: where it is and at which angle its first slot begins.
#[derive(Clone, Copy, Debug)]
struct Track {
    cylinder: u32,
    head: u32,
    start: Angle,
}

impl Geometry {
    /// Number of sectors.
    #[must_use]
    pub const fn capacity_sectors(&self) -> u64 {
        self.capacity
    }

    /// Number of cylinders that carry data.
    #[must_use]
    pub const fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Number of recording surfaces.
    #[must_use]
    pub const fn heads(&self) -> u32 {
        self.heads
    }

    /// First and last sector of each zone, from the outside in.
    pub fn zones(&self) -> impl Iterator<Item = Extent> + '_ {
        self.zones.iter().map(|zone| Extent::new(zone.first_lba, u64::from(zone.sectors)))
    }

    /// The runs of consecutive sectors that `head` passes, from the outside in. Valid only for a
    /// drive without slipped defects.
    pub fn runs_of_head(&self, head: u32) -> impl Iterator<Item = Extent> + '_ {
        self.zones.iter().flat_map(move |zone| {
            let tracks = zone.band_cylinders * self.heads;
            (0..zone.bands).map(move |band| {
                let (cylinders, _) = zone.run_of(band);
                let run = if band.is_multiple_of(2) { head } else { self.heads - 1 - head };
                let first = u64::from(band * tracks + run * cylinders);
                let spt = u64::from(zone.sectors_per_track);
                let end = (first + u64::from(cylinders)) * spt;
                let within = |slot: u64| Lba(zone.first_lba + slot.min(u64::from(zone.sectors)));
                Extent::between(within(first * spt), within(end))
            })
        })
    }

    /// Sectors on each track of `zone`.
    #[must_use]
    pub fn sectors_per_track(&self, zone: u32) -> u32 {
        self.zones[zone as usize].sectors_per_track
    }

    /// Location of sector `lba`. An address beyond the end gives the last sector's location.
    #[must_use]
    pub fn locate(&self, lba: Lba) -> Location {
        let (zone, slot) = self.slot(lba);
        self.locate_slot(zone, slot)
    }

    /// Zone and slot (position within the zone, slipped defects counted) of a sector.
    #[must_use]
    pub fn slot_of(&self, lba: Lba) -> (u32, u32) {
        self.slot(lba)
    }

    /// Location of slot `slot` of `zone`.
    #[must_use]
    pub fn locate_slot(&self, zone: u32, slot: u32) -> Location {
        let entry = &self.zones[zone as usize];
        let number = slot / entry.sectors_per_track;
        let sector = slot % entry.sectors_per_track;
        let track = entry.track(number, self.heads, self.skew);
        Location {
            zone,
            track: number,
            sector,
            cylinder: track.cylinder,
            head: track.head,
            angle: track.start.plus(entry.angle_of(sector)),
        }
    }

    /// The sector at a slot; `None` where the slot is a slipped defect or lies behind the end of
    /// the zone.
    ///
    /// A search rather than a formula: meant for tools and tests.
    #[must_use]
    pub fn sector_at(&self, zone: u32, track: u32, sector: u32) -> Option<Lba> {
        let entry = self.zones.get(zone as usize)?;
        let slot = track.checked_mul(entry.sectors_per_track)?.checked_add(sector)?;
        let (mut low, mut high) = (entry.first_lba, entry.first_lba + u64::from(entry.sectors));
        while low < high {
            let middle = u64::midpoint(low, high);
            match self.slot(Lba(middle)).1.cmp(&slot) {
                Ordering::Equal => return Some(Lba(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The rotation from the start of an extent's first sector to the end of its last one. Tracks
    /// and heads are changed on the way without missing a revolution: the skews are made for that.
    ///
    /// `first` is the location of `extent.start`.
    #[must_use]
    pub fn transfer(&self, first: &Location, extent: Extent) -> Rotation {
        self.pass(first, extent).0
    }

    /// As [`Geometry::transfer`]; also returns the location of the last sector.
    #[must_use]
    pub fn pass(&self, first: &Location, extent: Extent) -> (Rotation, Location) {
        if extent.is_empty() {
            return (Rotation(0), *first);
        }
        let zone = &self.zones[first.zone as usize];
        let last = extent.end().0.min(self.capacity) - 1;
        let (last_zone, last_slot) = self.slot(Lba(last));
        if last_zone != first.zone {
            return self.pass_over_zones(first, extent);
        }
        let last_track = last_slot / zone.sectors_per_track;
        let first_slot = first.track * zone.sectors_per_track + first.sector;
        let slots = last_slot.saturating_sub(first_slot) + 1;
        let mut rotation = Rotation((u64::from(slots) * zone.sector_angle_q48) >> 16);
        if last_track == first.track {
            let sector = first.sector + slots - 1;
            let angle = first.angle.plus(zone.angle_of(slots - 1));
            return (rotation, Location { sector, angle, ..*first });
        }
        for crossed in first.track..last_track {
            rotation.0 += u64::from(zone.skew_behind(crossed, self.heads, self.skew).0);
        }
        (rotation, self.locate_slot(last_zone, last_slot))
    }

    /// A transfer that leaves its first zone: the part in each zone, and between them the wait
    /// until the next zone's first sector comes round.
    #[cold]
    fn pass_over_zones(&self, first: &Location, extent: Extent) -> (Rotation, Location) {
        let zone = &self.zones[first.zone as usize];
        let border = zone.first_lba + u64::from(zone.sectors);
        let (outer, _) = self.pass(first, Extent::between(extent.start, Lba(border)));
        let next = self.locate(Lba(border));
        let rest = Extent::between(Lba(border), Lba(extent.end().0.min(self.capacity)));
        let (inner, last) = self.pass(&next, rest);
        // The head needs about as long as for a change of band. A target that passes sooner is
        // missed.
        let reached = first.angle.plus(outer).plus(Rotation(u64::from(self.skew.band.0)));
        let wait = u64::from(self.skew.band.0) + reached.until(next.angle).0;
        (Rotation(outer.0 + wait + inner.0), last)
    }

    /// Zone and slot (within the zone) of a sector.
    #[expect(clippy::cast_possible_truncation, reason = "zones hold fewer than 2^32 slots")]
    fn slot(&self, lba: Lba) -> (u32, u32) {
        let lba = lba.0.min(self.capacity - 1);
        // A stretch rarely holds more than one border, so this takes one step or none.
        let mut index = usize::from(self.stretches[(lba >> self.stretch_bits) as usize]);
        while self.segments.get(index + 1).is_some_and(|next| next.first_lba <= lba) {
            index += 1;
        }
        let segment = &self.segments[index];
        let offset = lba - segment.first_lba;
        let slipped_q20 = (offset * segment.slip_rate_q40) >> 20;
        (segment.zone, ((segment.slot_q20 + (offset << 20) + slipped_q20) >> 20) as u32)
    }
}

impl Zone {
    /// The angle of `sectors` slots.
    fn angle_of(&self, sectors: u32) -> Rotation {
        Rotation((u64::from(sectors) * self.sector_angle_q48) >> 16)
    }

    /// Band of a track and the track's number within it.
    fn band_of(&self, track: u32, heads: u32) -> (u32, u32) {
        let tracks = self.band_cylinders * heads;
        let band = (track / tracks).min(self.bands - 1);
        (band, track - band * tracks)
    }

    /// Cylinders of `band` and the skew sum of one of its runs.
    fn run_of(&self, band: u32) -> (u32, Angle) {
        if band + 1 == self.bands {
            (self.last_band_cylinders, self.last_run_angle)
        } else {
            (self.band_cylinders, self.run_angle)
        }
    }

    fn track(&self, number: u32, heads: u32, skew: Skew) -> Track {
        let (band, in_band) = self.band_of(number, heads);
        let (cylinders, run_angle) = self.run_of(band);
        let (run, step) = (in_band / cylinders, in_band % cylinders);
        let outwards = run % 2 == 1;
        let within = if outwards { cylinders - 1 - step } else { step };
        let skews = (self.band_angle.0.wrapping_mul(band))
            .wrapping_add(run_angle.0.wrapping_mul(run))
            .wrapping_add(skew.track.0.wrapping_mul(step));
        Track {
            cylinder: self.first_cylinder + band * self.band_cylinders + within,
            head: if band.is_multiple_of(2) { run } else { heads - 1 - run },
            start: Angle(skews),
        }
    }

    /// The skew between track `number` and the next.
    fn skew_behind(&self, number: u32, heads: u32, skew: Skew) -> Angle {
        let (band, in_band) = self.band_of(number, heads);
        let (cylinders, _) = self.run_of(band);
        if !(in_band + 1).is_multiple_of(cylinders) {
            skew.track
        } else if (in_band + 1) / cylinders < heads {
            skew.head
        } else {
            skew.band
        }
    }
}

#[cfg(test)]
mod tests;
