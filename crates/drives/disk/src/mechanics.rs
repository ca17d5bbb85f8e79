//! The moving parts: computes an access, from the position of the heads at an absolute time to the
//! end of the transfer.

use manylogs_block::{Extent, Lba, Nanos, Time};

use crate::geometry::{Geometry, Location};
#[cfg(test)]
use crate::planted::{Bug, is};
use crate::profile::Profile;
use crate::seek::{SeekCurve, corrected_knots, three_point_knots};
use crate::spindle::{Angle, REVOLUTION, Spindle};
use manylogs_block::Rng;

/// Which random terms are on. With all of them off the model is a function of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomTerms {
    /// Movements take a little more or less time than the curve says.
    pub seek_jitter: bool,
    /// Now and then an access needs an extra revolution.
    pub extra_revolutions: bool,
}

impl RandomTerms {
    /// As real drives behave: all random terms on.
    pub const ON: Self = Self { seek_jitter: true, extra_revolutions: true };
    /// Deterministic physics only: all random terms off.
    pub const OFF: Self = Self { seek_jitter: false, extra_revolutions: false };
}

/// The parts of one access to the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Movement: seek, head switch and write settle.
    pub seek: Nanos,
    /// Wait for the first sector, without extra revolutions.
    pub rotation: Nanos,
    /// Whole revolutions lost to a retry.
    pub extra_revolutions: Nanos,
    /// Wait for the next revolution: a write of partial physical sectors reads them first.
    pub rewrite: Nanos,
    /// From the start of the first sector to the end of the last.
    pub transfer: Nanos,
    /// Time at which the last sector has passed.
    pub end: Time,
}

impl Access {
    /// Adds up this access and the one that followed it.
    pub(crate) fn then(&self, next: &Self) -> Self {
        Self {
            seek: self.seek + next.seek,
            rotation: self.rotation + next.rotation,
            extra_revolutions: self.extra_revolutions + next.extra_revolutions,
            rewrite: self.rewrite + next.rewrite,
            transfer: self.transfer + next.transfer,
            end: next.end,
        }
    }
}

/// Location of the heads: the track of the last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPosition {
    /// Zone of the last sector accessed.
    pub zone: u32,
    /// Track within the zone.
    pub track: u32,
    /// Cylinder.
    pub cylinder: u32,
    /// Active head.
    pub head: u32,
}

/// The mechanism of one drive: layout, spindle, arm, and where the heads are.
#[derive(Clone, Debug)]
pub struct Mechanism {
    geometry: Geometry,
    spindle: Spindle,
    curve: SeekCurve,
    head_switch: Nanos,
    write_settle: Nanos,
    /// Time to change to the next track in address order; the skew leaves room for it.
    next_track: Nanos,
    /// Sectors that the medium writes as one.
    physical_sectors: u64,
    jitter_ns: f64,
    /// Chance of an extra revolution, read and write.
    retry: [f64; 2],
    position: HeadPosition,
    /// Sector behind the last one accessed.
    next_lba: Lba,
    terms: RandomTerms,
    rng: Rng,
}

impl Mechanism {
    /// The mechanism that `profile` describes, heads at LBA 0, randomness drawn from `seed`.
    #[must_use]
    pub fn new(profile: &Profile, terms: RandomTerms, seed: u64) -> Self {
        let geometry = Geometry::new(&profile.geometry);
        let spindle = Spindle::new(profile.spindle.revolution_us);
        let start = geometry.locate(Lba(0));
        let track_skew = Angle::from_revolutions(profile.geometry.track_skew_rev);
        let skew = spindle.duration(Angle(0).until(track_skew));
        let curve = SeekCurve::from_knots(&seek_knots(profile));
        Self {
            next_track: curve.time(1).min(skew),
            physical_sectors: u64::from(profile.geometry.physical_sector_bytes / 512),
            curve,
            head_switch: Nanos::from_secs_f64(profile.seek.head_switch_ms / 1e3),
            write_settle: Nanos::from_secs_f64(profile.seek.write_settle_ms / 1e3),
            jitter_ns: profile.seek.jitter_ms * 1e6,
            retry: [profile.retry.read_probability, profile.retry.write_probability],
            position: HeadPosition::on(&start),
            next_lba: Lba(0),
            geometry,
            spindle,
            terms,
            rng: Rng::new(seed),
        }
    }

    /// This mechanism, with another angle under the heads at time zero.
    #[must_use]
    pub fn turned_to(self, from: Angle) -> Self {
        Self { spindle: self.spindle.turned_to(from), ..self }
    }

    /// The layout.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The spindle.
    #[must_use]
    pub const fn spindle(&self) -> &Spindle {
        &self.spindle
    }

    /// Location of the heads.
    #[must_use]
    pub const fn position(&self) -> HeadPosition {
        self.position
    }

    /// The sector behind the last one accessed.
    #[must_use]
    pub const fn next_lba(&self) -> Lba {
        self.next_lba
    }

    /// The time to move the arm by this number of cylinders.
    pub(crate) fn seek_time(&self, cylinders: u32) -> Nanos {
        self.curve.time(cylinders)
    }

    /// The expected time from `at` until the first sector of an access at `target` comes under its
    /// head: movement and rotation, no random terms. A sector that would be reached with less than
    /// `margin` to spare counts as missed.
    #[must_use]
    #[inline]
    pub fn positioning(&self, at: Time, target: &Location, write: bool, margin: Nanos) -> Nanos {
        let seek = self.movement(target, write) + margin;
        seek + self.spindle.wait(at + seek, target.angle)
    }

    /// Accesses `extent`, whose first sector is at `first`, beginning at `start`. Leaves the heads
    /// behind its last sector.
    pub fn access(&mut self, start: Time, first: &Location, extent: Extent, write: bool) -> Access {
        let streams = self.continues(first, extent.start, start);
        let seek = if streams { Nanos(0) } else { self.jittered(self.movement(first, write)) };
        let arrival = start + seek;
        let rotation = self.spindle.wait(arrival, first.angle);
        #[cfg(test)]
        let rotation = if is(Bug::FrozenRotation) { Nanos(0) } else { rotation };
        let extra_revolutions = self.retries(write);
        let (passed, last) = self.geometry.pass(first, extent);
        let transfer = self.spindle.duration(passed);
        let rewrite = if write && self.cuts_physical_sector(extent) {
            self.spindle.period()
        } else {
            Nanos(0)
        };
        let end = arrival + rotation + extra_revolutions + rewrite + transfer;
        self.position = HeadPosition::on(&last);
        self.next_lba = extent.end();
        Access { seek, rotation, extra_revolutions, rewrite, transfer, end }
    }

    const fn cuts_physical_sector(&self, extent: Extent) -> bool {
        let (start, end) = (extent.start.0, extent.end().0);
        !start.is_multiple_of(self.physical_sectors) || !end.is_multiple_of(self.physical_sectors)
    }

    /// Moves the heads to `lba`, up to which the drive has read ahead.
    pub(crate) fn passed(&mut self, lba: Lba) {
        let last = Lba(lba.0.saturating_sub(1));
        self.position = HeadPosition::on(&self.geometry.locate(last));
        self.next_lba = lba;
    }

    /// The time to bring the head to `target`'s track and settle there.
    fn movement(&self, target: &Location, write: bool) -> Nanos {
        let here = self.position;
        if here.zone == target.zone && here.track == target.track {
            return Nanos(0);
        }
        if here.zone == target.zone && here.track + 1 == target.track {
            // The skew leaves room to change to the next track, reading or writing.
            return self.next_track;
        }
        let distance = here.cylinder.abs_diff(target.cylinder);
        #[cfg(test)]
        let distance =
            if is(Bug::SeekByAddress) { here.track.abs_diff(target.track) } else { distance };
        let mut time = self.curve.time(distance);
        #[cfg(test)]
        if is(Bug::NoHeadSwitch) {
            return time;
        }
        #[cfg(test)]
        let write = write && !is(Bug::NoWriteSettle);
        if here.head != target.head {
            time = time.max(self.head_switch);
        }
        if write { time + self.write_settle } else { time }
    }

    /// Whether the access continues exactly where and when the last one ended.
    fn continues(&self, first: &Location, start: Lba, at: Time) -> bool {
        start == self.next_lba
            && self.position.zone == first.zone
            && self.position.track == first.track
            && self.spindle.wait(at, first.angle) == Nanos(0)
    }

    fn jittered(&mut self, seek: Nanos) -> Nanos {
        if !self.terms.seek_jitter || seek == Nanos(0) || self.jitter_ns == 0.0 {
            return seek;
        }
        #[expect(clippy::cast_possible_truncation, reason = "jitter is far below a second")]
        let offset_ns = (self.rng.bell() * self.jitter_ns) as i64;
        Nanos(seek.0.saturating_add_signed(offset_ns))
    }

    fn retries(&mut self, write: bool) -> Nanos {
        let probability = self.retry[usize::from(write)];
        if self.terms.extra_revolutions && probability > 0.0 && self.rng.unit() < probability {
            self.spindle.duration(REVOLUTION)
        } else {
            Nanos(0)
        }
    }
}

impl HeadPosition {
    fn on(location: &Location) -> Self {
        Self {
            zone: location.zone,
            track: location.track,
            cylinder: location.cylinder,
            head: location.head,
        }
    }
}

/// The knots of the seek curve: from the measured and corrected curve, or from the three published
/// figures.
fn seek_knots(profile: &Profile) -> Vec<(u32, f64)> {
    let seek = &profile.seek;
    let figures = (seek.track_to_track_ms, seek.average_ms, seek.full_stroke_ms);
    if let (Some(one), Some(mean), Some(full)) = figures {
        return three_point_knots(profile.geometry.cylinders, one, mean, full);
    }
    corrected_knots(&seek.knots_ms, &seek.correction_ms)
}

#[cfg(test)]
mod tests;
