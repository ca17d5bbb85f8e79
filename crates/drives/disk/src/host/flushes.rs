//! When flushes go to the drive: the rules of Linux' `block/blk-flush.c`.
//!
//! A command that needs a flush waits in one of two lines. One flush runs at a time, for the line
//! that was closed when it began. Commands that come meanwhile wait in the other line and share the
//! next flush. No flush begins while data of a write with forced unit access is on its way, so that
//! such writes share a flush, too. This delay has a limit.

use manylogs_block::{Nanos, Time};

#[cfg(test)]
use crate::planted::{Bug, is};

/// A flush waits this long at most for data under way: `FLUSH_PENDING_TIMEOUT`.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// The two lines. `T` identifies a waiting command.
#[derive(Clone, Debug)]
pub(super) struct Flushes<T> {
    lines: [Vec<T>; 2],
    /// Index of the open line; the other is empty, or its flush runs.
    open: usize,
    runs: bool,
    /// Writes that will need a flush and whose data is waiting or in the drive.
    data_under_way: usize,
    /// Time since which a command has waited in the open line.
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

    /// Data of such a write is in the drive, and the write waits for its flush. Returns whether a
    /// flush begins.
    pub(super) fn data_ended(&mut self, now: Time, waits: T) -> bool {
        self.data_under_way -= 1;
        self.wait(now, waits)
    }

    /// Adds a command that waits for a flush. Returns whether a flush begins.
    pub(super) fn wait(&mut self, now: Time, waits: T) -> bool {
        let line = &mut self.lines[self.open];
        if line.is_empty() {
            self.since = now;
        }
        line.push(waits);
        self.begin(now)
    }

    /// The flush has ended. Returns the commands that waited for it, and whether the next flush
    /// begins.
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
            // Each flush serves one command only.
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
