//! Finds the rate of arrivals at which the plain drive reaches a given utilisation.

use std::sync::Arc;

use manylogs_block::Nanos;

use super::policies::NamedPolicy;
use super::pump::Progress;
use super::run::{Outcome, Plan, ReplayError, run};

/// Largest number of probes. Each probe replays the trace once without logging.
const PROBES_MAX: u32 = 12;
/// A probe within this distance of the target ends the search.
const TOLERANCE: f64 = 0.01;

/// Factor by which a rate is reduced that is too high with one of the seeds.
const STEP_BACK: f64 = 0.95;

/// A drive is congested if the median latency reaches this time, even if it is idle between bursts.
const CONGESTED: Nanos = Nanos::from_millis(100);

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateFound {
    /// Factor by which arrivals are faster than recorded.
    pub factor: f64,
    /// Utilisation of the drive at this rate without logging, 0 to 1.
    pub utilisation: f64,
}

/// Searches the rate at which the drive is busy for `target` (0 to 1) of the time without logging,
/// or the highest rate below it that does not congest the drive in bursts.
///
/// # Errors
/// Those of the replay.
pub fn find_rate(
    plan: &Plan,
    target: f64,
    progress: &Arc<Progress>,
) -> Result<RateFound, ReplayError> {
    find_rate_by(target, &mut |factor| {
        let plan = Plan { rate: factor, checkpoint_after: false, ..plan.clone() };
        Ok(Probe::of(&run(&plan, &NamedPolicy::nologging(), progress)?).congested())
    })
}

/// Like [`find_rate`], but `probe` does the replays of the plain drive.
///
/// # Errors
/// Those of `probe`.
pub(crate) fn find_rate_by<E>(
    target: f64,
    probe: &mut impl FnMut(f64) -> Result<Probe, E>,
) -> Result<RateFound, E> {
    search(target, Begin { factor: 1.0, too_fast: None }, probe)
}

/// Searches roughly the highest rate at which a drive keeps up with a load, below `rate`, at which
/// it does not. `probe` replays at a factor, with the first, second, ... of `seeds` seeds. The
/// drive must keep up with all seeds.
///
/// # Errors
/// Those of `probe`.
pub(crate) fn highest_rate_by<E>(
    rate: f64,
    seeds: u32,
    probe: &mut impl FnMut(f64, u32) -> Result<Probe, E>,
) -> Result<RateFound, E> {
    let begin = Begin { factor: four_digits(rate / 4.0), too_fast: Some(rate) };
    let mut found = search(1.0, begin, &mut |factor| probe(factor, 0))?;
    for nth in 1..seeds {
        while probe(found.factor, nth)?.overloaded && found.factor > rate / 1e6 {
            found.factor = four_digits(found.factor * STEP_BACK);
        }
    }
    Ok(found)
}

/// Result of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Share of the time in which the drive works.
    pub(crate) utilisation: f64,
    /// Whether the load is too much.
    pub(crate) overloaded: bool,
    /// Median latency.
    pub(crate) median: Nanos,
}

impl Probe {
    /// The probe from a replay's outcome.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let times = [outcome.drive_busy, outcome.simulated, outcome.median()];
        Self::of_times(times, outcome.overloaded)
    }

    /// The probe from the drive's busy time, the replay's duration, and the median latency.
    pub(crate) fn of_times([busy, simulated, median]: [Nanos; 3], overloaded: bool) -> Self {
        let utilisation = busy.as_secs_f64() / simulated.as_secs_f64().max(1e-9);
        Self { utilisation, overloaded, median }
    }

    /// The probe with bursts that congest the drive counted as overload, too.
    pub(crate) fn congested(self) -> Self {
        Self { overloaded: self.overloaded || self.median > CONGESTED, ..self }
    }
}

/// Where a search begins.
#[derive(Clone, Copy, Debug)]
struct Begin {
    factor: f64,
    /// A factor that is known to be too high.
    too_fast: Option<f64>,
}

/// A secant search on a logarithmic scale, kept between the bounds known so far.
fn search<E>(
    target: f64,
    begin: Begin,
    probe: &mut impl FnMut(f64) -> Result<Probe, E>,
) -> Result<RateFound, E> {
    let (mut low, mut high) = (None::<f64>, begin.too_fast);
    let mut best = RateFound { factor: 0.0, utilisation: 0.0 };
    let mut factor = begin.factor;
    for _ in 0..PROBES_MAX {
        let Probe { utilisation, overloaded, .. } = probe(factor)?;
        let too_fast = overloaded || utilisation > target + TOLERANCE;
        if !too_fast && factor > best.factor {
            best = RateFound { factor, utilisation };
        }
        if !overloaded && (utilisation - target).abs() <= TOLERANCE {
            break;
        }
        if too_fast {
            high = Some(factor);
        } else {
            low = Some(factor);
        }
        // While the drive is not saturated, its work grows nearly in proportion to the rate.
        let proportional = factor * (target / utilisation.max(1e-6)).clamp(0.02, 50.0);
        factor = match (low, high) {
            (Some(low), Some(high)) if high / low < 1.02 => break,
            (Some(low), Some(high)) if proportional <= low || proportional >= high => {
                (low * high).sqrt()
            }
            (None, Some(_)) if overloaded => (factor / 4.0).min(proportional),
            _ => proportional,
        };
        // The factor is rounded, so that a user can give it by hand and gets the same replay.
        factor = four_digits(factor);
    }
    Ok(if best.factor > 0.0 { best } else { RateFound { factor, utilisation: target } })
}

fn four_digits(value: f64) -> f64 {
    let unit = 10_f64.powf((3.0 - value.log10().floor()).clamp(-12.0, 12.0));
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that saturates at `capacity` times the recorded rate.
    fn found(capacity: f64, target: f64) -> RateFound {
        let mut probes = 0;
        let mut probe = |factor: f64| -> Result<Probe, ()> {
            probes += 1;
            // Seeks get shorter as the queue grows, so the growth is not quite linear.
            let utilisation = (factor / capacity).powf(0.9).min(1.0);
            Ok(Probe { utilisation, overloaded: utilisation > 0.9, median: Nanos(0) })
        };
        let found = search(target, Begin { factor: 1.0, too_fast: None }, &mut probe).unwrap();
        assert!(probes <= PROBES_MAX);
        found
    }

    #[test]
    fn the_highest_rate_is_just_below_what_is_too_much() {
        for most in [0.000_9, 0.2, 0.99, 6.0] {
            let asked = most * 7.3;
            let mut probe = |factor: f64| -> Result<Probe, ()> {
                let utilisation = (0.9 * factor / most).min(1.0);
                Ok(Probe { utilisation, overloaded: factor > most, median: Nanos(0) })
            };
            let begin = Begin { factor: four_digits(asked / 4.0), too_fast: Some(asked) };
            let found = search(1.0, begin, &mut probe).unwrap();
            assert!((0.97..=1.0).contains(&(found.factor / most)), "{most}: {found:?}");
        }
    }

    #[test]
    fn the_target_is_met_from_idle_and_from_overloaded_traces() {
        for capacity in [0.003, 0.2, 1.0, 7.0, 400.0] {
            for target in [0.3, 0.5, 0.8] {
                let found = found(capacity, target);
                let error = (found.utilisation - target).abs();
                assert!(error <= 0.02, "capacity {capacity}, target {target}: {found:?}");
            }
        }
    }

    #[test]
    fn factors_have_four_digits() {
        assert!((four_digits(0.012_345_678) - 0.01235).abs() < 1e-12);
        assert!((four_digits(12_345.678) - 12_350.0).abs() < 1e-9);
    }
}
