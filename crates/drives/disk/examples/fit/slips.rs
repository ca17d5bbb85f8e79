//! Defect slips: how far slots run ahead of sector numbers, from the phase of completions.

use manylogs_block::Lba;
use manylogs_disk::{Geometry, Profile};

use crate::observed::{Observed, Request};
use crate::phase::wrapped;

/// Candidates are this many slots apart.
const STEP: u32 = 4;
/// Larger phase errors cost no more than this: such a request carries no information.
const ERROR_CAP: f64 = 4.0;
/// Phase error that costs 1, in revolutions.
const ERROR_UNIT: f64 = 0.01;
/// Cost of a change: slips occur in few places.
const CHANGE: f64 = 0.3;
/// Knots may stray this far from the path, in slots.
const TOLERANCE: f64 = 6.0;

/// Slips of every zone as the profile holds them: zone, sector offset, slots.
pub(crate) fn fit(drive: &Profile, observed: &Observed, origin: f64) -> Vec<(u32, u64, f64)> {
    let geometry = Geometry::new(&drive.geometry);
    let mut slips = Vec::new();
    for (zone, extent) in (0_u32..).zip(geometry.zones()) {
        let inside = |r: &&Request| extent.contains(r.extent);
        let mut requests: Vec<&Request> = observed.odd().filter(inside).collect();
        requests.sort_by_key(|r| r.extent.start);
        let path = path(drive, &geometry, zone, &requests, origin);
        let offset = |r: &Request| r.extent.end().0 - 1 - extent.start.0;
        let points: Vec<(u64, f64)> = requests.iter().map(|r| offset(r)).zip(path).collect();
        slips.extend(thinned(&points).into_iter().map(|(at, slots)| (zone, at, slots)));
    }
    slips
}

/// The most likely slips at the requests of one zone: they never fall, and the phases agree best
/// (dynamic programming over candidate slips).
fn path(
    drive: &Profile,
    geometry: &Geometry,
    zone: u32,
    requests: &[&Request],
    origin: f64,
) -> Vec<f64> {
    let candidates = geometry.sectors_per_track(zone) / 2 / STEP;
    let mut cost = vec![0.0_f64; candidates as usize];
    let mut origins: Vec<Vec<usize>> = Vec::with_capacity(requests.len());
    for request in requests {
        let mut from = Vec::with_capacity(cost.len());
        let mut best = 0;
        let mut next = Vec::with_capacity(cost.len());
        for candidate in 0..cost.len() {
            // Either the slip stays, or it rises from the cheapest smaller one.
            let rises = cost[best] + CHANGE < cost[candidate];
            let source = if rises { best } else { candidate };
            let change = if rises { CHANGE } else { 0.0 };
            let slots = u32::try_from(candidate).unwrap_or(0) * STEP;
            let error = phase_error(drive, geometry, request, slots, origin);
            next.push(cost[source] + change + (error / ERROR_UNIT).min(ERROR_CAP));
            from.push(source);
            if cost[candidate] < cost[best] {
                best = candidate;
            }
        }
        origins.push(from);
        cost = next;
    }
    let cheapest = (0..cost.len()).min_by(|a, b| cost[*a].total_cmp(&cost[*b])).unwrap_or(0);
    let mut path = Vec::with_capacity(requests.len());
    let mut at = cheapest;
    for from in origins.iter().rev() {
        path.push(at as f64 * f64::from(STEP));
        at = from[at];
    }
    path.reverse();
    path
}

/// Phase error of a completion, in revolutions, if `slots` slots have slipped before it.
fn phase_error(
    drive: &Profile,
    geometry: &Geometry,
    request: &Request,
    slots: u32,
    origin: f64,
) -> f64 {
    let (zone, slot) = geometry.slot_of(Lba(request.extent.end().0 - 1));
    let place = geometry.locate_slot(zone, slot + slots);
    let end = place.angle.as_revolutions() + 1.0 / f64::from(geometry.sectors_per_track(zone));
    // Reads complete about 5 us per sector later than writes; half of that is near enough here.
    let transfer_us = if request.write { 0.0 } else { 5.3 * request.extent.len.0 as f64 - 52.0 };
    let measured = (request.completion_us - transfer_us) / drive.spindle.revolution_us;
    wrapped(measured - end - origin).abs()
}

/// Chooses a few knots whose linear interpolation stays within the tolerance of all points.
fn thinned(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let Some(&last) = points.last() else { return Vec::new() };
    let mut knots = vec![points[0]];
    let mut start = 0;
    while start + 1 < points.len() {
        let fits = |end: usize| {
            let (a, b) = (points[start], points[end]);
            let slope = (b.1 - a.1) / (b.0 - a.0).max(1) as f64;
            let off = |p: &(u64, f64)| (a.1 + slope * (p.0 - a.0) as f64 - p.1).abs();
            points[start..end].iter().all(|p| off(p) <= TOLERANCE)
        };
        let end = (start + 1..points.len()).take_while(|&end| fits(end)).last();
        start = end.unwrap_or(start + 1);
        knots.push(points[start]);
    }
    if knots.last() != Some(&last) {
        knots.push(last);
    }
    knots.dedup_by_key(|knot| knot.0);
    knots
}

/// Prints slips as the profile holds them.
pub(crate) fn print(slips: &[(u32, u64, f64)]) {
    println!("slips = [");
    for row in slips.chunks(5) {
        let cells: Vec<String> =
            row.iter().map(|(zone, at, slots)| format!("[{zone}, {at}, {slots:.1}]")).collect();
        println!("    {},", cells.join(", "));
    }
    println!("]");
}
