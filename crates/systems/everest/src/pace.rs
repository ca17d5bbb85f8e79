//! How long a store itself takes for a write, as its client measures it.

use std::cell::Cell;

use manylogs_block::{Nanos, Time};

/// Weight of the mean: each new write counts for one part in this number.
const MEAN_OF: u64 = 8;
/// After such a time without a write what was measured counts for half: a store that was slow is
/// tried again.
const HALVED_AFTER: Nanos = Nanos::from_secs(10);

/// The time that a store takes for a write besides the wait that it tells. A store that is slow and
/// idle looks as good by its wait as one that is fast and idle.
#[derive(Default)]
pub(crate) struct Pace {
    mean: Cell<Nanos>,
    at: Cell<Time>,
}

impl Pace {
    /// Notes that a write took `took` at a store that had told a wait of `told`.
    pub(crate) fn measured(&self, now: Time, took: Nanos, told: Nanos) {
        let own = took.0.saturating_sub(told.0);
        let mean = match self.mean.get().0 {
            0 => own,
            mean => mean - mean / MEAN_OF + own / MEAN_OF,
        };
        self.mean.set(Nanos(mean));
        self.at.set(now);
    }

    /// The mean; zero if nothing was measured for long: then the store is worth a try.
    pub(crate) fn mean(&self, now: Time) -> Nanos {
        let halvings = now.since(self.at.get()).0 / HALVED_AFTER.0;
        let shift = u32::try_from(halvings).unwrap_or(u32::MAX);
        Nanos(self.mean.get().0.checked_shr(shift).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_follows_what_is_measured_and_is_forgotten_in_time() {
        let (pace, second) = (Pace::default(), 1_000_000_000);
        assert_eq!(pace.mean(Time(5)), Nanos(0));
        pace.measured(Time(second), Nanos(900), Nanos(100));
        assert_eq!(pace.mean(Time(second)), Nanos(800), "the first counts alone");
        (0..100).for_each(|_| pace.measured(Time(second), Nanos(90), Nanos(10)));
        let mean = pace.mean(Time(second)).0;
        assert!((80..96).contains(&mean), "{mean}");
        pace.measured(Time(second), Nanos(5), Nanos(10));
        assert!(pace.mean(Time(second)).0 < mean, "it was done sooner than told");
        let before = pace.mean(Time(second));
        assert_eq!(pace.mean(Time(11 * second)), Nanos(before.0 / 2));
        assert_eq!(pace.mean(Time(4000 * second)), Nanos(0));
    }
}
