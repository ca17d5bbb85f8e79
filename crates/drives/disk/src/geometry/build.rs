//! Turns a profile's geometry table into a form that is fast to look up.

use super::{Geometry, Segment, Skew, Zone};
use crate::profile::GeometryTable;
use crate::spindle::Angle;

/// The address space is cut into up to 2^`STRETCHES_BITS` stretches.
const STRETCHES_BITS: u32 = 12;

impl Geometry {
    /// The layout that a (checked) profile describes.
    #[must_use]
    pub fn new(table: &GeometryTable) -> Self {
        let skew = Skew {
            track: Angle::from_revolutions(table.track_skew_rev),
            head: Angle::from_revolutions(table.head_skew_rev),
            band: Angle::from_revolutions(table.band_skew_rev),
        };
        #[cfg(test)]
        let skew = if crate::planted::is(crate::planted::Bug::NoSkew) {
            Skew { track: Angle(0), head: Angle(0), band: Angle(0) }
        } else {
            skew
        };
        let zones: Vec<Zone> =
            (0..table.zones.len()).map(|index| zone(table, index, skew)).collect();
        let segments: Vec<Segment> =
            (0..table.zones.len()).flat_map(|i| segments(table, i)).collect();
        let bits = u64::BITS - table.capacity_sectors.leading_zeros();
        let stretch_bits = bits.saturating_sub(STRETCHES_BITS);
        Self {
            zones,
            stretches: stretches(&segments, table.capacity_sectors, stretch_bits),
            segments,
            stretch_bits,
            heads: table.heads,
            cylinders: table.cylinders,
            capacity: table.capacity_sectors,
            skew,
        }
    }
}

/// The segment that holds the first sector of each stretch.
fn stretches(segments: &[Segment], capacity: u64, bits: u32) -> Vec<u16> {
    let holding = |stretch: u64| {
        let first = stretch << bits;
        let index = segments.partition_point(|segment| segment.first_lba <= first) - 1;
        // Profiles have a few hundred segments; a lower index is only slower, never wrong.
        u16::try_from(index).unwrap_or(u16::MAX)
    };
    (0..=(capacity >> bits)).map(holding).collect()
}

/// Cylinder and sector behind the end of zone `index`.
fn zone_end(table: &GeometryTable, index: usize) -> (u32, u64) {
    let next = table.zones.get(index + 1);
    next.map_or((table.cylinders, table.capacity_sectors), |zone| (zone.0, zone.2))
}

#[expect(clippy::cast_possible_truncation, reason = "checked with the profile: below 2^32")]
fn zone(table: &GeometryTable, index: usize, skew: Skew) -> Zone {
    let (first_cylinder, sectors_per_track, first_lba) = table.zones[index];
    let (end_cylinder, end_lba) = zone_end(table, index);
    let cylinders = end_cylinder - first_cylinder;
    let band_cylinders = table.band_cylinders.min(cylinders);
    let remainder = cylinders % band_cylinders;
    let joins_last = remainder <= table.band_remainder_max;
    let bands = cylinders / band_cylinders + u32::from(!joins_last);
    let run_angle =
        |length: u32| Angle(skew.track.0.wrapping_mul(length - 1).wrapping_add(skew.head.0));
    let band_angle = (run_angle(band_cylinders).0.wrapping_mul(table.heads))
        .wrapping_sub(skew.head.0)
        .wrapping_add(skew.band.0);
    let last_band_cylinders = cylinders - (bands - 1) * band_cylinders;
    Zone {
        first_cylinder,
        band_cylinders,
        last_band_cylinders,
        bands,
        first_lba,
        sectors: (end_lba - first_lba) as u32,
        sectors_per_track,
        sector_angle_q48: (1 << 48) / u64::from(sectors_per_track),
        band_angle: Angle(band_angle),
        run_angle: run_angle(band_cylinders),
        last_run_angle: run_angle(last_band_cylinders),
    }
}

/// The segments of zone `index`: in each the slips grow evenly.
fn segments(table: &GeometryTable, index: usize) -> Vec<Segment> {
    let first_lba = table.zones[index].2;
    let sectors = zone_end(table, index).1 - first_lba;
    let listed = table.slips.iter().filter(|slip| slip.0 as usize == index);
    let mut points = vec![(0, 0.0)];
    points.extend(listed.map(|slip| (slip.1, slip.2)).filter(|p| p.0 > 0 && p.0 <= sectors));
    let last = points[points.len() - 1];
    if last.0 < sectors {
        points.push((sectors, last.1));
    }
    let segment = |pair: &[(u64, f64)]| {
        let (from, to) = (pair[0], pair[1]);
        let rate = (to.1 - from.1) / (to.0 - from.0) as f64;
        Segment {
            first_lba: first_lba + from.0,
            zone: u32::try_from(index).unwrap_or(u32::MAX),
            slot_q20: (from.0 << 20) + fixed(from.1, 20),
            slip_rate_q40: fixed(rate, 40),
        }
    };
    points.windows(2).map(segment).collect()
}

/// A non-negative number in fixed point with `bits` bits behind the point, rounded down, so that
/// a segment never ends behind the start of the next.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and >= 0")]
fn fixed(value: f64, bits: u32) -> u64 {
    (value * 2_f64.powi(bits.cast_signed())) as u64
}
