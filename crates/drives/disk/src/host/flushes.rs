//! Which flush goes when: the rules of Linux' `block/blk-flush.c`.
//!
//! Whoever needs a flush waits in one of two lines. One flush runs at a time, for the line that was
//! closed when it began; those that come meanwhile wait in the other line, and share the next.
//! While data of a write with forced unit access is on its way, no flush begins, so that such
//! writes share one, too; but not for ever.

use manylogs_block::{Nanos, Time};

#[cfg(test)]
use crate::planted::{Bug, is};

/// Flushes wait no longer than this for data under way: `FLUSH_PENDING_TIMEOUT`.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// The two lines. `T` is what waits.
#[derive(Clone, Debug)]
pub(super) struct Flushes<T> {
    lines: [Vec<T>; 2],
    /// The line that is open; the other is empty, or its flush runs.
    open: usize,
    runs: bool,
    /// Writes that will need a flush and whose data is waiting or in the drive.
    data_under_way: usize,
    /// Since when somebody waits in the open line.
    since: Time,
}

impl<T> Default for Flushes<T> {
    fn default() -> Self {
        Self {
            lines: [Vec::new(), Vec::new()],
            open: 0,
            runs: false,
            data_under_way: 0,
            since: Time(0),
        }
    }
}

impl<T> Flushes<T> {
    /// A write that will need a flush arrives.
    pub(super) const fn data_begins(&mut self) {
        self.data_under_way += 1;
    }

    /// That write's data is in the drive; the write waits for its flush. Whether a flush begins.
    pub(super) fn data_ended(&mut self, now: Time, waits: T) -> bool {
        self.data_under_way -= 1;
        self.wait(now, waits)
    }

    /// Somebody waits for a flush. Whether one begins.
    pub(super) fn wait(&mut self, now: Time, waits: T) -> bool {
        let line = &mut self.lines[self.open];
        if line.is_empty() {
            self.since = now;
        }
        line.push(waits);
        self.begin(now)
    }

    /// The flush has ended: who waited for it, and whether the next one begins.
    pub(super) fn ended(&mut self, now: Time) -> (Vec<T>, bool) {
        self.runs = false;
        let served = std::mem::take(&mut self.lines[1 - self.open]);
        (served, self.begin(now))
    }

    fn begin(&mut self, now: Time) -> bool {
        let line = &mut self.lines[self.open];
        let patient = self.data_under_way > 0 && now.since(self.since) < PATIENCE;
        if self.runs || line.is_empty() || patient {
            return false;
        }
        self.runs = true;
        self.open = 1 - self.open;
        #[cfg(test)]
        if is(Bug::FlushNotShared) {
            // Each flush serves one.
            let rest = self.lines[1 - self.open].split_off(1);
            self.lines[self.open] = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_come_while_a_flush_runs_share_the_next() {
        let mut flushes = Flushes::default();
        assert!(flushes.wait(Time(0), 1));
        assert!(!flushes.wait(Time(1), 2) && !flushes.wait(Time(2), 3));
        assert_eq!(flushes.ended(Time(3)), (vec![1], true));
        assert!(!flushes.wait(Time(4), 4));
        assert_eq!(flushes.ended(Time(5)), (vec![2, 3], true));
        assert_eq!(flushes.ended(Time(6)), (vec![4], false));
    }

    #[test]
    fn a_flush_waits_for_data_under_way_but_not_for_ever() {
        let mut flushes = Flushes::default();
        flushes.data_begins();
        flushes.data_begins();
        assert!(!flushes.wait(Time(0), 1));
        assert!(!flushes.data_ended(Time(10), 2), "other data is under way");
        assert!(flushes.data_ended(Time(20), 3));
        assert_eq!(flushes.ended(Time(30)), (vec![1, 2, 3], false));
        flushes.data_begins();
        assert!(!flushes.wait(Time(40), 4));
        let late = Time(40) + PATIENCE;
        assert!(flushes.wait(late, 5), "data under way for five seconds");
        assert_eq!(flushes.ended(late), (vec![4, 5], false));
    }
}
