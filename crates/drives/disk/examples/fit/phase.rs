//! Rotation: the phase of completions gives the period, the phase origin and the time that follows
//! the last sector.
//!
//! A completion comes a constant time after the last sector has passed the head, so completion
//! time minus the angle of that sector's end, modulo one revolution, is the same for all
//! requests, if layout, skews and period are right.

use manylogs_block::Lba;
use manylogs_disk::{Geometry, Profile};

use crate::observed::{Observed, Request};

/// Times from the end of the last sector to the completion at the host.
#[derive(Debug)]
pub(crate) struct Ends {
    pub read_us_per_sector: f64,
    pub write_end_us: f64,
}

impl Ends {
    pub(crate) fn of(&self, request: &Request) -> f64 {
        if request.write {
            self.write_end_us
        } else {
            self.read_us_per_sector * request.extent.len.0 as f64
        }
    }
}

/// Angle at which the last sector of a request ends, in revolutions.
pub(crate) fn end_angle(geometry: &Geometry, request: &Request) -> f64 {
    let last = geometry.locate(Lba(request.extent.end().0 - 1));
    last.angle.as_revolutions() + 1.0 / f64::from(geometry.sectors_per_track(last.zone))
}

/// The difference of two angles, in -0.5..0.5 revolutions.
pub(crate) fn wrapped(revolutions: f64) -> f64 {
    (revolutions + 0.5).rem_euclid(1.0) - 0.5
}

/// Length and direction of the mean of unit vectors.
fn mean_direction(angles: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut x, mut y, mut n) = (0.0, 0.0, 0.0);
    for angle in angles {
        let (sin, cos) = (angle * std::f64::consts::TAU).sin_cos();
        (x, y, n) = (x + cos, y + sin, n + 1.0);
    }
    (x.hypot(y) / n, (y.atan2(x) / std::f64::consts::TAU).rem_euclid(1.0))
}

/// The period under which the phases agree best within each zone (slips not yet known, so zones
/// are compared with themselves only).
pub(crate) fn period_us(drive: &Profile, observed: &Observed) -> f64 {
    let geometry = Geometry::new(&drive.geometry);
    let zone_of = |r: &Request| geometry.locate(r.extent.start).zone as usize;
    let mut zones: Vec<Vec<(f64, f64)>> = vec![Vec::new(); drive.geometry.zones.len()];
    for request in observed.odd() {
        zones[zone_of(request)].push((request.completion_us, end_angle(&geometry, request)));
    }
    let coherence = |period: f64| -> f64 {
        zones.iter().map(|z| mean_direction(z.iter().map(|(t, a)| t / period - a)).0).sum()
    };
    let nominal = 60e6 / 15_020.0;
    let candidates = (0..8_000).map(|i| nominal * (1.0 + f64::from(i - 4_000) * 2.5e-7));
    candidates.max_by(|a, b| coherence(*a).total_cmp(&coherence(*b))).unwrap_or(nominal)
}

/// The phase at which slot 0 of every zone passes, in revolutions. Taken from writes near zone
/// starts, where no slot has slipped yet.
pub(crate) fn origin(drive: &Profile, observed: &Observed) -> f64 {
    let geometry = Geometry::new(&drive.geometry);
    let early = observed.odd().filter(|request| {
        let (zone, slot) = geometry.slot_of(request.extent.start);
        request.write && slot < geometry.sectors_per_track(zone) * 260
    });
    let period = drive.spindle.revolution_us;
    let (length, direction) =
        mean_direction(early.map(|r| r.completion_us / period - end_angle(&geometry, r)));
    println!("# phase at zone starts {direction:.3} rev, coherence {length:.3}");
    direction
}

/// Difference between measured and modelled phase of a completion, in microseconds.
pub(crate) fn residual_us(period: f64, geometry: &Geometry, origin: f64, request: &Request) -> f64 {
    wrapped(request.completion_us / period - end_angle(geometry, request) - origin) * period
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Time that follows the last sector: for reads a transfer in proportion to their size, for writes
/// a constant. The phase gives only the difference between the two.
pub(crate) fn ends(drive: &Profile, observed: &Observed, origin: f64) -> Ends {
    let geometry = Geometry::new(&drive.geometry);
    let period = drive.spindle.revolution_us;
    let of = |write: bool, sectors: u64| {
        let chosen = observed.odd().filter(|r| r.write == write && r.extent.len.0 == sectors);
        median(chosen.map(|r| residual_us(period, &geometry, origin, r)).collect())
    };
    let read_us_per_sector = (of(false, 24) - of(false, 8)) / 16.0;
    Ends {
        read_us_per_sector,
        write_end_us: of(true, 8) - (of(false, 8) - 8.0 * read_us_per_sector),
    }
}

/// Prints how well the phases agree once everything is fitted: the proof of layout, skews and
/// slips.
pub(crate) fn report(drive: &Profile, observed: &Observed, origin: f64, ends: &Ends) {
    let geometry = Geometry::new(&drive.geometry);
    let period = drive.spindle.revolution_us;
    for (parity, name) in [(1, "odd (fitted)"), (0, "even (not fitted)")] {
        let chosen = observed.requests.iter().filter(|r| r.number % 2 == parity);
        let mut off: Vec<f64> =
            chosen.map(|r| residual_us(period, &geometry, origin, r) - ends.of(r)).collect();
        let centre = median(off.clone());
        off.iter_mut().for_each(|us| *us = (*us - centre).abs());
        off.sort_by(f64::total_cmp);
        let at = |share: usize| off[off.len() * share / 100];
        println!(
            "# phase of {name} records: half within {:.0} us, 90 % within {:.0}, 99 % within {:.0}",
            at(50),
            at(90),
            at(99)
        );
    }
}
