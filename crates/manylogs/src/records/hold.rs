//! When records go, and those that wait for others to share them (`hold=`).

use manylogs_block::{Nanos, Time};

/// What arrives within this time of the first belongs to the same sync.
const ONE_SYNC: Nanos = Nanos::from_millis(1);
/// A wait in so many counts in the gain.
const RECENT: f64 = 8.0;
/// Waiting is worth it if at least this share of waits is shared.
const WORTH: f64 = 0.2;
/// Where it isn't, every so many records one waits all the same, to see whether it is now.
const PROBE: u32 = 16;

/// When the committer may do what it does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    /// When it submitted its last record.
    pub(crate) last_append: Time,
    /// A timer is set for the next.
    pub(crate) stagger_armed: bool,
    /// When placement last asked for a log to be marked.
    pub(crate) last_mark: Time,
    /// Whether the next record waits for others to share it.
    pub(crate) hold: Hold,
    /// The timer that is set for that.
    pub(crate) hold_armed: Option<Time>,
}

/// Whether the next record waits, and whether waiting has paid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// When the wait began, and who waited by then.
    since: Option<(Time, usize)>,
    /// Somebody else came meanwhile.
    joined: bool,
    /// Share of waits that somebody joined.
    gain: f64,
    /// Records since the last that waited.
    passed: u32,
}

impl Default for Hold {
    fn default() -> Self {
        Self { since: None, joined: false, gain: 1.0, passed: 0 }
    }
}

impl Hold {
    /// Until when the record that is due waits, if it does: `waiters` is how many wait for it.
    pub(crate) fn until(&mut self, now: Time, hold: Nanos, waiters: usize) -> Option<Time> {
        if hold == Nanos(0) || (self.gain < WORTH && self.passed < PROBE) {
            return None;
        }
        let (since, first) = *self.since.get_or_insert((now, waiters));
        if now.since(since) <= ONE_SYNC {
            self.since = Some((since, waiters.max(first)));
        } else {
            self.joined |= waiters > first;
        }
        (now < since + hold).then_some(since + hold)
    }

    /// The record goes.
    pub(crate) fn goes(&mut self) {
        self.passed = self.passed.saturating_add(1);
        if self.since.take().is_some() {
            self.passed = 0;
            let joined = std::mem::take(&mut self.joined);
            self.gain += (f64::from(joined) - self.gain) / RECENT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Nanos = Nanos::from_millis(60);

    fn at(ms: u64) -> Time {
        Time(0) + Nanos::from_millis(ms)
    }

    #[test]
    fn a_record_waits_no_longer_than_said() {
        let mut hold = Hold::default();
        assert_eq!(hold.until(at(100), HOLD, 1), Some(at(160)));
        assert_eq!(hold.until(at(130), HOLD, 2), Some(at(160)));
        assert_eq!(hold.until(at(160), HOLD, 2), None);
        assert_eq!(Hold::default().until(at(5), Nanos(0), 1), None);
    }

    #[test]
    fn waiting_that_nobody_joins_ends_and_is_tried_again() {
        let mut hold = Hold::default();
        let mut waited = Vec::new();
        for sync in 0..200 {
            let began = at(sync * 100);
            waited.push(hold.until(began, HOLD, 20).is_some());
            hold.until(began + HOLD, HOLD, 20);
            hold.goes();
        }
        assert!(waited[..8].iter().all(|waits| *waits));
        let later = waited[40..].iter().filter(|waits| **waits).count();
        assert!((5..15).contains(&later), "{later} of 160");
        // Others come: each wait is joined, and all records wait again.
        for sync in 0..200 {
            let began = at(100_000 + sync * 100);
            if hold.until(began, HOLD, 1).is_some() {
                hold.until(began + Nanos::from_millis(20), HOLD, 2);
            }
            hold.goes();
        }
        assert!(hold.until(at(200_000), HOLD, 1).is_some());
    }
}
