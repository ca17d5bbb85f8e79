//! Fits head movement, settle and idle behaviour of the drive, by maximum likelihood.
//!
//! With layout and phase known, a request's first sector passes the head at known moments, once a
//! revolution, and the recording tells at which of them the drive caught it. So the time before the
//! catch, less the seek, must lie between zero and one revolution. Where that border lies, and how
//! sharp it is, gives overheads, settle and jitter.

use manylogs_disk::seek::SeekCurve;
use manylogs_disk::{Geometry, Profile};

use crate::observed::Observed;

/// Longer idle times count as long ones (the recording has none between 0.1 and 7.6 ms).
const LONG_IDLE_US: f64 = 100.0;
/// Distances at which the correction of the seek curve is fitted, in cylinders.
const CORRECTED: [u32; 6] = [1, 1_000, 3_000, 12_000, 25_000, 45_000];
/// Share of the catches that a head at a random place explains by chance.
const CHANCE: f64 = 0.4;

/// What the likelihood needs to know about one request.
struct Case {
    write: bool,
    distance: u32,
    long_idle: bool,
    /// From issue until the first sector came under the head.
    positioning_us: f64,
    seek_us: f64,
    odd: bool,
}

/// Parameters: time before a read's seek, before a write's, jitter (all in us), the share of long
/// idle times after which the head is elsewhere, then the corrections.
type Parameters = [f64; 4 + CORRECTED.len()];

pub(crate) fn fit(drive: &Profile, observed: &Observed) {
    let cases = cases(drive, observed);
    let period = drive.spindle.revolution_us;
    let start: Parameters = [0.0, 350.0, 100.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let fitted = climb(start, |p| likelihood(&cases, p, period, true));
    println!("read_start_us = {:.0}, write settle {:.0} us", fitted[0], fitted[1] - fitted[0]);
    println!("jitter_ms = {:.3}", fitted[2] / 1e3);
    let corrections: Vec<String> = CORRECTED
        .iter()
        .zip(&fitted[4..])
        .map(|(distance, us)| format!("[{distance}, {:.3}]", us / 1e3))
        .collect();
    println!("correction_ms = [{}]", corrections.join(", "));
    println!("# share of long idle times with the head elsewhere {:.2}", fitted[3]);
    println!(
        "# log likelihood a record: odd {:.3}, even {:.3}",
        likelihood(&cases, &fitted, period, true),
        likelihood(&cases, &fitted, period, false)
    );
    retries(&cases, &fitted, period);
}

fn cases(drive: &Profile, observed: &Observed) -> Vec<Case> {
    let geometry = Geometry::new(&drive.geometry);
    let curve = SeekCurve::from_knots(&drive.seek.knots_ms);
    let case = |pair: &[crate::observed::Request]| {
        let (before, request) = (&pair[0], &pair[1]);
        let from = geometry.locate(manylogs_block::Lba(before.extent.end().0 - 1));
        let to = geometry.locate(request.extent.start);
        let distance = from.cylinder.abs_diff(to.cylinder);
        let turns = geometry.transfer(&to, request.extent).0 as f64 / 4_294_967_296.0;
        let transfer_us = turns * drive.spindle.revolution_us;
        Case {
            write: request.write,
            distance,
            long_idle: request.idle_us > LONG_IDLE_US,
            positioning_us: request.completion_us - transfer_us - request.issue_us,
            seek_us: curve.time(distance).as_micros_f64(),
            odd: request.number % 2 == 1,
        }
    };
    observed.requests.windows(2).map(case).collect()
}

fn correction_us(parameters: &Parameters, distance: u32) -> f64 {
    let values = &parameters[4..];
    let after = CORRECTED.partition_point(|d| *d < distance);
    if after == 0 || after == CORRECTED.len() {
        return values[after.min(CORRECTED.len() - 1)];
    }
    let (low, high) = (f64::from(CORRECTED[after - 1]), f64::from(CORRECTED[after]));
    let part = (f64::from(distance) - low) / (high - low);
    values[after - 1] + (values[after] - values[after - 1]) * part
}

/// Time to spare between the arrival of the head and that of the sector.
fn slack_us(case: &Case, parameters: &Parameters) -> f64 {
    let start = parameters[usize::from(case.write)];
    case.positioning_us - start - case.seek_us - correction_us(parameters, case.distance)
}

/// Mean log likelihood of the catches among the odd (or the even) records.
fn likelihood(cases: &[Case], parameters: &Parameters, period: f64, odd: bool) -> f64 {
    let jitter = parameters[2].max(10.0);
    let away = parameters[3].clamp(0.0, 0.9);
    let (mut sum, mut count) = (0.0, 0.0);
    for case in cases.iter().filter(|case| case.odd == odd) {
        let slack = slack_us(case, parameters);
        let caught = normal_cdf(slack / jitter) - normal_cdf((slack - period) / jitter);
        let probability = if case.long_idle {
            caught * (1.0 - away) + CHANCE * away
        } else {
            caught * 0.995 + 0.0025
        };
        sum += (probability + 1e-4).ln();
        count += 1.0;
    }
    sum / count
}

/// Logistic approximation of the normal distribution function, off by at most 0.01.
fn normal_cdf(x: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * x).exp())
}

/// Coordinate ascent with steps that halve: robust, and quick enough for ten parameters.
fn climb(mut at: Parameters, score: impl Fn(&Parameters) -> f64) -> Parameters {
    let mut steps: Parameters = [40.0; 4 + CORRECTED.len()];
    steps[3] = 0.1;
    let mut best = score(&at);
    for _ in 0..60 {
        let mut moved = false;
        for index in 0..at.len() {
            // The time before a read and a common shift of the corrections are one parameter.
            if index == 0 {
                continue;
            }
            for direction in [-1.0, 1.0] {
                let mut next = at;
                next[index] += direction * steps[index];
                let value = score(&next);
                if value > best {
                    (at, best, moved) = (next, value, true);
                }
            }
        }
        if !moved {
            steps.iter_mut().for_each(|step| *step /= 2.0);
        }
    }
    at
}

/// Prints the misses of requests that had plenty of time, after short idle times: these are
/// retries.
fn retries(cases: &[Case], parameters: &Parameters, period: f64) {
    for write in [false, true] {
        let slack = |case: &Case| slack_us(case, parameters);
        let chosen = cases.iter().filter(|case| case.odd && !case.long_idle && case.write == write);
        let clear: Vec<f64> = chosen
            .map(slack)
            .filter(|s| (300.0..period - 300.0).contains(&s.rem_euclid(period)))
            .collect();
        let missed = clear.iter().filter(|s| **s > period).count();
        let name = if write { "write" } else { "read" };
        println!("# {name}s with time to spare that missed: {missed} of {}", clear.len());
    }
}
