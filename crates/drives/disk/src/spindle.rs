//! Angles on the platter and the spindle that turns them.

use manylogs_block::{Nanos, Time};

/// An angle on the platter in units of 2^-32 revolution; arithmetic wraps, as angles do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Angle(pub u32);

/// A sum of angles in units of 2^-32 revolution that may exceed one revolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rotation(pub u64);

/// One revolution.
pub const REVOLUTION: Rotation = Rotation(1 << 32);

/// An arrival that is late by up to this still catches its sector. This absorbs the rounding of
/// times to whole nanoseconds, and is far shorter than the gap in front of any sector.
const ARRIVAL_SLACK: Rotation = Rotation((1 << 32) / 100_000);

impl Angle {
    /// The angle `revolutions`, taken modulo one revolution.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in 0..=2^32")]
    pub fn from_revolutions(revolutions: f64) -> Self {
        Self((revolutions.rem_euclid(1.0) * 4_294_967_296.0).round() as u64 as u32)
    }

    /// The angle as a fraction of a revolution, in `0..1`.
    #[must_use]
    pub fn as_revolutions(self) -> f64 {
        f64::from(self.0) / 4_294_967_296.0
    }

    /// The angle from here on to `target` in the direction of rotation.
    #[must_use]
    pub const fn until(self, target: Self) -> Rotation {
        Rotation(target.0.wrapping_sub(self.0) as u64)
    }

    /// This angle advanced by `by`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "whole revolutions do not matter")]
    pub const fn plus(self, by: Rotation) -> Self {
        Self(self.0.wrapping_add(by.0 as u32))
    }
}

/// A spindle that turns at constant speed. At time zero angle zero is under the heads, unless
/// [`Spindle::turned_to`] set another.
///
/// The angle is the low half of a product of integers. So it is exact, and stays exact over years
/// of virtual time; in return the period is off by less than one part in 10^12.
#[derive(Clone, Copy, Debug)]
pub struct Spindle {
    /// Revolutions per nanosecond in units of 2^-64.
    rate: u64,
    /// Length of a revolution in units of 2^-16 ns.
    period_q16: u64,
    /// Angle under the heads at time zero.
    from: Angle,
}

impl Spindle {
    /// A spindle whose revolution takes `revolution_us` microseconds (100 us to 16.7 ms, which is
    /// 3,600 rpm).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, >= 0")]
    pub fn new(revolution_us: f64) -> Self {
        let period_ns = revolution_us.clamp(100.0, 16_700.0) * 1e3;
        Self {
            rate: (18_446_744_073_709_551_616.0 / period_ns).round() as u64,
            period_q16: (period_ns * 65_536.0).round() as u64,
            from: Angle(0),
        }
    }

    /// This spindle, with another angle under the heads at time zero.
    #[must_use]
    pub const fn turned_to(self, from: Angle) -> Self {
        Self { from, ..self }
    }

    /// Length of a revolution, rounded down to nanoseconds.
    #[must_use]
    pub const fn period(&self) -> Nanos {
        self.duration(REVOLUTION)
    }

    /// The angle under the heads at `at`.
    #[must_use]
    pub const fn angle(&self, at: Time) -> Angle {
        Angle(((at.0.wrapping_mul(self.rate) >> 32) as u32).wrapping_add(self.from.0))
    }

    /// The time it takes to rotate by `rotation` (up to 2^16 revolutions). Rounded down, so that
    /// the rounding errors of a chain of transfers do not make it miss a sector.
    #[must_use]
    pub const fn duration(&self, rotation: Rotation) -> Nanos {
        // Whole revolutions and the rest are multiplied apart, so that the products fit 64 bits.
        let whole = (rotation.0 >> 32) * self.period_q16;
        let part = ((rotation.0 & 0xffff_ffff) * (self.period_q16 >> 8)) >> 24;
        Nanos((whole + part) >> 16)
    }

    /// The time from `at` until `target` comes under the heads; zero if it came there just now.
    #[must_use]
    pub const fn wait(&self, at: Time, target: Angle) -> Nanos {
        let rotation = self.angle(at).until(target);
        if rotation.0 > REVOLUTION.0 - ARRIVAL_SLACK.0 {
            Nanos(0)
        } else {
            Nanos(self.duration(rotation).0 + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_angle_is_exact_after_a_year() {
        let spindle = Spindle::new(8000.0);
        let year = 365 * 86_400 * 1_000_000_000_u64;
        for revolutions in [0, 1, 2, 1_000_000, year / 8_000_000] {
            let at = Time(revolutions * 8_000_000 + 2_000_000);
            let error = spindle.angle(at).as_revolutions() - 0.25;
            assert!(error.abs() < 1e-3, "after {revolutions} revolutions off by {error}");
        }
    }

    #[test]
    fn durations_add_up_to_the_period() {
        let spindle = Spindle::new(3995.3365);
        assert_eq!(spindle.period(), Nanos(3_995_336));
        let quarter = spindle.duration(Rotation(REVOLUTION.0 / 4));
        assert_eq!(quarter, Nanos(998_834));
        assert!(quarter.0 * 4 <= spindle.period().0);
        assert_eq!(spindle.duration(Rotation(REVOLUTION.0 * 1000)), Nanos(3_995_336_500));
    }

    #[test]
    fn waiting_ends_at_the_target() {
        let spindle = Spindle::new(3995.3365);
        let target = Angle::from_revolutions(0.3);
        for at in (0..10_000_000_u64).step_by(12_347) {
            let wait = spindle.wait(Time(at), target);
            let reached = spindle.angle(Time(at) + wait).as_revolutions();
            assert!((reached - 0.3).abs() < 1e-5, "reached {reached} from {at}");
            assert!(wait.0 <= spindle.period().0 + 1);
            assert!(spindle.wait(Time(at) + wait, target) <= Nanos(1), "must not miss it");
        }
    }
}
