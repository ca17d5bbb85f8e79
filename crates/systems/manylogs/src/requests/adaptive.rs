//! The adaptive threshold, which falls while logs fill too fast (the Manylogs paper, section VI).
//!
//! Every logged byte must be written home later. If more is logged than a checkpoint could write
//! home, the room must be kept for small writes, and longer ones, which gain less from logging, go
//! home at once. An allowance decides: it grows by what a checkpoint could empty, and shrinks by
//! what is logged.

use manylogs_block::{Extent, Nanos, Sectors, Time};

use crate::records::own::OwnWrite;
use crate::state::{Inner, State};

/// Sectors a second that a checkpoint writes home: 20 MiB/s, about what the modelled drives do
/// (docs/results/replays.md).
const EMPTIED_PER_S: f64 = 40_960.0;
/// The threshold does not fall below 32 KiB, the paper's value for file systems: shorter writes
/// gain most.
const FLOOR: Sectors = Sectors(64);
/// Share of the free room that a burst may take before the threshold falls.
const BURST_SHARE: f64 = 1.0 / 64.0;

/// Room of the logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogRoom {
    /// Sectors of all logs.
    pub(crate) all: Sectors,
    /// Share of them that is in use.
    pub(crate) occupancy: f64,
}

impl LogRoom {
    fn free(&self) -> f64 {
        self.all.0 as f64 * (1.0 - self.occupancy).max(0.0)
    }
}

/// Sectors that may be logged before the threshold falls further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Sectors left. Infinite before the first write: then the share of a burst is available.
    left: f64,
    at: Time,
}

impl Allowance {
    /// A full allowance at `now`.
    pub(crate) const fn new(now: Time) -> Self {
        Self { left: f64::INFINITY, at: now }
    }

    /// The longest write to be logged now, at most `set`. It halves each time that half of the
    /// allowance is used up.
    pub(crate) fn threshold(&mut self, now: Time, set: Sectors, room: LogRoom) -> Sectors {
        let most = room.free() * BURST_SHARE;
        let since_s = now.since(self.at).0 as f64 / Nanos::from_secs(1).0 as f64;
        let emptied = EMPTIED_PER_S * (1.0 - room.occupancy) * since_s;
        self.left = (self.left + emptied).min(most);
        self.at = now;
        let (mut threshold, mut enough) = (set, most / 2.0);
        while threshold > FLOOR && self.left <= enough {
            threshold = Sectors(threshold.0 / 2).max(FLOOR);
            enough /= 2.0;
        }
        threshold
    }

    /// Subtracts sectors that are logged.
    pub(crate) fn take(&mut self, logged: Sectors) {
        self.left = (self.left - logged.0 as f64).max(0.0);
    }
}

impl Inner {
    /// Whether a write of this length is logged now.
    pub(crate) fn is_small(&self, len: Sectors) -> bool {
        let config = self.config();
        if len > config.threshold {
            return false;
        }
        let mut state = self.engine.state.borrow_mut();
        let Some((allowance, threshold)) = self.allowed(&state) else { return true };
        state.allowance = allowance;
        let small = len <= threshold;
        if small {
            state.allowance.take(len);
        } else {
            state.counters.sent_home_writes += 1;
        }
        small
    }

    /// Whether this write is logged: if it is small. An owner's policy may decide otherwise for
    /// writes up to the threshold.
    pub(crate) fn is_logged(&self, extent: Extent, fua: bool) -> bool {
        match self.own.get() {
            Some(own) if extent.len <= self.config().threshold => {
                own.logs(&OwnWrite { extent, fua, head: self.device.head() })
            }
            Some(_) => false,
            None => self.is_small(extent.len),
        }
    }

    /// The longest write that is logged now.
    pub(crate) fn threshold_now(&self, state: &State) -> Sectors {
        self.allowed(state).map_or(self.config().threshold, |(_, threshold)| threshold)
    }

    /// The present allowance and the longest write that it allows. `None` if all writes up to the
    /// set threshold are logged.
    fn allowed(&self, state: &State) -> Option<(Allowance, Sectors)> {
        let config = self.config();
        if !config.adaptive || config.threshold <= FLOOR {
            return None;
        }
        let room =
            LogRoom { all: self.layout.log_sectors(), occupancy: state.store.logs().occupancy() };
        let mut allowance = state.allowance;
        let threshold = allowance.threshold(self.engine.runtime.now(), config.threshold, room);
        Some((allowance, threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: Sectors = Sectors(512);
    /// 4 GiB, of which a burst may take 64 MiB.
    const ALL: Sectors = Sectors(8 << 20);
    const EMPTY: LogRoom = LogRoom { all: ALL, occupancy: 0.0 };

    /// Sectors that a checkpoint empties in a tenth of a second.
    const EMPTIED: u64 = 4096;

    /// Offers this many sectors in each tenth of a second; returns the threshold in each.
    fn load(allowance: &mut Allowance, from: Time, seconds: u64, offered: u64) -> Vec<u64> {
        let tenth = Nanos::from_millis(100);
        let mut now = from;
        let mut seen = Vec::new();
        for _ in 0..seconds * 10 {
            now = now + tenth;
            let threshold = allowance.threshold(now, SET, EMPTY);
            // If sizes are equally frequent on a logarithmic scale, half of the threshold logs half
            // of the bytes.
            allowance.take(Sectors(offered * threshold.0 / SET.0));
            seen.push(threshold.0);
        }
        seen
    }

    #[test]
    fn what_a_checkpoint_can_empty_leaves_the_threshold_alone() {
        let mut allowance = Allowance::new(Time(0));
        let seen = load(&mut allowance, Time(0), 600, EMPTIED * 19 / 20);
        assert!(seen.iter().all(|&threshold| threshold == SET.0));
    }

    #[test]
    fn a_burst_is_logged_as_it_is_and_a_flood_is_not() {
        let mut allowance = Allowance::new(Time(0));
        // 40 MiB within a second.
        assert!(load(&mut allowance, Time(0), 1, 2 * EMPTIED).iter().all(|&t| t == SET.0));
        // 160 MiB/s: eight times what a checkpoint empties. The threshold settles at a value that
        // logs an eighth.
        let flood = load(&mut allowance, Time(1_000_000_000), 30, 8 * EMPTIED);
        assert_eq!(flood[0], SET.0);
        assert!(flood.is_sorted_by(|a, b| a >= b), "falls and does not swing: {flood:?}");
        assert_eq!(flood.last(), Some(&FLOOR.0));
        // Half of the share of a burst is back after 1.6 s, and so is the threshold.
        let quiet = load(&mut allowance, Time(31_000_000_000), 2, 0);
        assert!(quiet.is_sorted(), "{quiet:?}");
        assert_eq!((quiet[0], quiet.last()), (FLOOR.0, Some(&SET.0)));
    }

    #[test]
    fn full_logs_take_the_smallest_only_and_a_low_threshold_stays() {
        let mut allowance = Allowance::new(Time(0));
        let full = LogRoom { all: ALL, occupancy: 1.0 };
        assert_eq!(allowance.threshold(Time(1), SET, full), FLOOR);
        let crowded = LogRoom { all: ALL, occupancy: 0.99 };
        allowance.threshold(Time(1), SET, crowded);
        allowance.take(ALL);
        assert_eq!(allowance.threshold(Time(2), SET, crowded), FLOOR);
        assert_eq!(allowance.threshold(Time(3), FLOOR, crowded), FLOOR);
    }
}
