//! Idle work of the drive: it reads recent writes back to verify them.
//!
//! Because of this work a measured Cheetah's heads have moved after a pause: with two or more
//! unverified writes behind it, every second request misses the revolution that the last head
//! position alone would predict.

use std::collections::VecDeque;

use manylogs_block::{Extent, Nanos, Time};

use super::Drive;
use crate::profile::Profile;

/// Writes to be verified in idle time, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Verify {
    after: Nanos,
    writes_max: usize,
    writes: VecDeque<Extent>,
}

impl Verify {
    pub(super) fn new(profile: &Profile) -> Self {
        Self {
            after: Nanos::from_secs_f64(profile.idle.verify_after_ms / 1e3),
            writes_max: profile.idle.verify_writes_max as usize,
            writes: VecDeque::new(),
        }
    }

    /// Drops what is not verified yet.
    pub(super) fn forget(&mut self) {
        self.writes.clear();
    }

    pub(super) fn remember(&mut self, extent: Extent) {
        if self.writes_max == 0 {
            return;
        }
        if self.writes.len() >= self.writes_max {
            self.writes.pop_front();
        }
        self.writes.push_back(extent);
    }
}

impl Drive {
    /// Takes the heads from their idle work at `at` for a command or a cached write. A verification
    /// under way is completed first. Returns the time at which the heads are free to move.
    pub(super) fn leave(&mut self, at: Time) -> Time {
        let mut clock = self.free_at + self.verify.after;
        if clock >= at || self.verify.writes.is_empty() {
            self.reads.interrupt(at);
            return at;
        }
        self.reads.interrupt(clock);
        while clock < at {
            let Some(extent) = self.verify.writes.pop_front() else { break };
            let place = self.mechanism.geometry().locate(extent.start);
            clock = self.mechanism.access(clock, &place, extent, false).end;
            self.counters.verified += 1;
        }
        at.max(clock)
    }
}
