//! Decides when another try of a checkpoint is worthwhile.

use manylogs_block::{Nanos, Time};

/// The wait after a pass that made no room. It doubles with each such pass.
const BACKOFF_LEAST: Nanos = Nanos::from_millis(10);
/// The longest wait between two passes while a write waits for room.
const BACKOFF_STARVED: Nanos = Nanos::from_secs(2);
/// The longest wait between two passes while no write waits for room.
const BACKOFF_MOST: Nanos = Nanos::from_secs(60);
/// Passes and time after which waiting writes are refused, if no pass made room. The time is longer
/// than [`super::suspect::CONFIRM_AFTER`], so that suspected damage is decided by then.
const PATIENCE_PASSES: u32 = 3;
const PATIENCE: Nanos = Nanos::from_secs(120);

/// Result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It made room, or it moved versions and no request waits.
    Useful,
    /// All versions logged when it began are home, but the waiting requests do not find room yet:
    /// the logs hold newer versions, or a read still needs a log. That will end, so these requests
    /// are never refused.
    Home {
        /// Whether the pass moved versions: then the next one should follow soon.
        moved: bool,
    },
    /// Some versions could not be brought home.
    Kept,
}

/// Results of recent passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Futility {
    /// Number of passes in a row that moved no version or made no room.
    passes: u32,
    /// No pass begins on its own before this time.
    not_before: Time,
    /// Whether writes waited for room when the last pass ended.
    starved: bool,
    /// Time since which writes have waited for room while passes failed to bring versions home.
    in_vain_since: Option<Time>,
}

impl Futility {
    /// Whether another pass may begin. For a write that has just begun to wait for room, an earlier
    /// pause does not count.
    pub(crate) fn allows(&self, now: Time, starved: bool) -> bool {
        now >= self.not_before || (starved && !self.starved)
    }

    /// Earliest time of the next pass.
    pub(crate) const fn not_before(&self) -> Time {
        self.not_before
    }

    /// Whether the last pass left versions to try again.
    pub(crate) const fn has_failed(&self) -> bool {
        self.passes > 0
    }

    /// Notes the end of a pass. `starved`: writes still wait for room. Returns whether they have
    /// waited long enough to be refused.
    pub(crate) fn note(&mut self, now: Time, outcome: Outcome, starved: bool) -> bool {
        if outcome == Outcome::Useful {
            *self = Self::default();
            return false;
        }
        self.starved = starved;
        if outcome == (Outcome::Home { moved: true }) {
            self.passes = 0;
        }
        let most = if starved { BACKOFF_STARVED } else { BACKOFF_MOST };
        let doubled = BACKOFF_LEAST.0.saturating_mul(1 << self.passes.min(20));
        self.passes = self.passes.saturating_add(1);
        self.not_before = now + Nanos(doubled.min(most.0));
        let in_vain = starved && outcome == Outcome::Kept;
        self.in_vain_since = in_vain.then(|| self.in_vain_since.unwrap_or(now));
        let waited = self.in_vain_since.map_or(Nanos(0), |since| now.since(since));
        self.passes >= PATIENCE_PASSES && waited >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_in_vain_wait_longer_and_longer_and_then_end_the_patience() {
        let mut futility = Futility::default();
        let (mut now, mut passes, mut waits) = (Time(0), 0, Vec::new());
        while !futility.note(now, Outcome::Kept, true) {
            passes += 1;
            waits.push(futility.not_before().since(now));
            assert!(!futility.allows(now, true));
            now = futility.not_before();
            assert!(futility.allows(now, true));
        }
        assert!(waits.is_sorted());
        assert_eq!((waits[0], waits[passes - 1]), (BACKOFF_LEAST, BACKOFF_STARVED));
        assert!(now.0 >= PATIENCE.0 && now.0 <= PATIENCE.0 + BACKOFF_STARVED.0);
        assert!(!futility.note(now, Outcome::Useful, true));
        assert!(futility.allows(now, true), "a pass that made room ends the waiting");
    }

    #[test]
    fn nobody_waits_so_nobody_is_refused() {
        let mut futility = Futility::default();
        let day = Time(Nanos::from_secs(86_400).0);
        for _ in 0..100 {
            assert!(!futility.note(day, Outcome::Kept, false));
        }
        assert_eq!(futility.not_before().since(day), BACKOFF_MOST);
        assert!(!futility.allows(day, false));
        assert!(futility.allows(day, true), "for a write that begins to wait");
        assert!(!futility.note(day, Outcome::Kept, true), "the time counts from here");
        assert!(!futility.allows(day, true));
    }

    #[test]
    fn who_waits_behind_newer_versions_is_never_refused() {
        let mut futility = Futility::default();
        let mut now = Time(0);
        for _ in 0..1000 {
            assert!(!futility.note(now, Outcome::Home { moved: true }, true));
            assert_eq!(futility.not_before().since(now), BACKOFF_LEAST);
            now = now + Nanos::from_secs(1);
        }
        for _ in 0..1000 {
            assert!(!futility.note(now, Outcome::Home { moved: false }, true));
            now = futility.not_before();
        }
        assert!(!futility.note(now, Outcome::Kept, true), "the time counts from here");
    }
}
