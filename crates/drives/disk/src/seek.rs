//! The seek curve: time to move the heads by a number of cylinders.

use manylogs_block::Nanos;

/// Distances below this have their own entry; longer ones are interpolated.
const DIRECT: u32 = 1024;
/// Entries per doubling of the distance from [`DIRECT`] on.
const PER_OCTAVE_BITS: u32 = 6;

/// Seek time by distance in cylinders, in a table that is read in constant time.
#[derive(Clone, Debug)]
pub struct SeekCurve {
    /// Times in ns: [`DIRECT`] entries, then 2^[`PER_OCTAVE_BITS`] an octave.
    table: Vec<u32>,
}

impl SeekCurve {
    /// The curve through `knots` (distance in cylinders, time in ms), linear between them, constant
    /// outside, zero at distance zero. Knots must rise in distance.
    #[must_use]
    pub fn from_knots(knots: &[(u32, f64)]) -> Self {
        let longest = knots.last().map_or(0, |knot| knot.0);
        let mut table: Vec<u32> = (0..DIRECT).map(|d| interpolate_ns(knots, d)).collect();
        let mut octave = DIRECT;
        while octave <= longest && octave < 1 << 30 {
            let step = octave >> PER_OCTAVE_BITS;
            table.extend(
                (0..1 << PER_OCTAVE_BITS).map(|i| interpolate_ns(knots, octave + i * step)),
            );
            octave *= 2;
        }
        table.push(interpolate_ns(knots, octave));
        Self { table }
    }

    /// The time to move by `cylinders`.
    #[must_use]
    #[inline]
    pub fn time(&self, cylinders: u32) -> Nanos {
        if cylinders < DIRECT {
            return Nanos(u64::from(self.table[cylinders as usize]));
        }
        let octave = cylinders.ilog2() - DIRECT.ilog2();
        let shift = DIRECT.ilog2() - PER_OCTAVE_BITS + octave;
        let slot = (cylinders >> shift) - (1 << PER_OCTAVE_BITS);
        let index = (DIRECT + (octave << PER_OCTAVE_BITS) + slot) as usize;
        let last = self.table.len() - 1;
        let (low, high) = (self.table[index.min(last)], self.table[(index + 1).min(last)]);
        let part = u64::from(cylinders & ((1 << shift) - 1));
        // The curve may fall a little between knots, hence the wrapping difference.
        let rise = i64::from(high) - i64::from(low);
        let ns = i64::from(low) + ((rise * part.cast_signed()) >> shift);
        Nanos(ns.unsigned_abs())
    }
}

/// The curve `a + b sqrt(d) + c d` for a drive with only three published figures: the times for one
/// cylinder, for the mean over uniformly random pairs, and for the full stroke.
///
/// Returns knots for [`SeekCurve::from_knots`].
#[must_use]
pub fn three_point_knots(
    cylinders: u32,
    track_to_track_ms: f64,
    average_ms: f64,
    full_stroke_ms: f64,
) -> Vec<(u32, f64)> {
    // With x = distance / stroke, uniform pairs have mean x = 1/3 and mean sqrt(x) = 8/15.
    let rise = full_stroke_ms - track_to_track_ms;
    let root = (average_ms - track_to_track_ms - rise / 3.0) / (8.0 / 15.0 - 1.0 / 3.0);
    let stroke = f64::from(cylinders.max(3) - 2);
    let time = |d: u32| {
        let x = f64::from(d - 1) / stroke;
        track_to_track_ms + root * x.sqrt() + (rise - root) * x
    };
    let mut knots = vec![(1, time(1))];
    let mut distance = 2_u32;
    while distance < cylinders - 1 {
        knots.push((distance, time(distance)));
        distance += (distance / 16).max(1);
    }
    knots.push((cylinders - 1, time(cylinders - 1)));
    knots
}

/// Adds a correction to `knots` that is itself linear between its own knots.
///
/// Returns knots for [`SeekCurve::from_knots`].
#[must_use]
pub fn corrected_knots(knots: &[(u32, f64)], correction: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let both = knots.iter().chain(correction).map(|knot| knot.0);
    let mut distances: Vec<u32> = both.collect();
    distances.sort_unstable();
    distances.dedup();
    let corrected = |d| (d, interpolate(knots, d) + interpolate(correction, d));
    distances.into_iter().map(corrected).collect()
}

/// Linear interpolation between `knots` at `distance`, constant outside them; zero without knots.
fn interpolate(knots: &[(u32, f64)], distance: u32) -> f64 {
    let after = knots.partition_point(|knot| knot.0 < distance);
    match (after.checked_sub(1).map(|before| knots[before]), knots.get(after)) {
        (Some(low), Some(high)) => {
            let part = f64::from(distance - low.0) / f64::from(high.0 - low.0);
            low.1 + (high.1 - low.1) * part
        }
        (Some(edge), None) => edge.1,
        (None, Some(edge)) => edge.1,
        (None, None) => 0.0,
    }
}

/// The value of the curve at `distance`, in ns; zero at distance zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seeks are ms, >= 0")]
fn interpolate_ns(knots: &[(u32, f64)], distance: u32) -> u32 {
    if distance == 0 { 0 } else { (interpolate(knots, distance) * 1e6).round() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_follows_its_knots() {
        let knots = [(1, 0.5), (100, 0.8), (2000, 2.0), (5000, 2.6), (60_000, 6.5)];
        let curve = SeekCurve::from_knots(&knots);
        assert_eq!(curve.time(0), Nanos(0));
        for distance in 1..60_000 {
            let exact = i64::from(interpolate_ns(&knots, distance));
            let error = curve.time(distance).0.cast_signed() - exact;
            assert!(error.abs() < 8_000, "{distance} cylinders: {error} ns off");
        }
        assert_eq!(curve.time(200_000), Nanos(6_500_000));
    }

    #[test]
    fn three_points_give_their_mean() {
        let cylinders = 100_000;
        let curve = SeekCurve::from_knots(&three_point_knots(cylinders, 0.8, 8.5, 18.0));
        // Uniform pairs: density of distance d is 2 (n - d) / n^2.
        let n = f64::from(cylinders);
        let mean_ms: f64 = (1..cylinders)
            .map(|d| 2.0 * (n - f64::from(d)) / (n * n) * curve.time(d).0 as f64 / 1e6)
            .sum();
        assert!((mean_ms - 8.5).abs() < 0.02, "{mean_ms}");
        assert_eq!(curve.time(1), Nanos(800_000));
        assert!(curve.time(cylinders - 1).0.abs_diff(18_000_000) < 60_000);
    }
}
