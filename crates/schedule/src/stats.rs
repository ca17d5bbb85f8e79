//! Counters of the scheduler.

use manylogs_block::Nanos;

use crate::Class;

/// Monotonic counters by class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    requests: [u64; 4],
    held: [u64; 4],
    held_ns: [u64; 4],
    held_max_ns: [u64; 4],
}

/// One class of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Requests or pieces that went to the device while records were expected.
    pub requests: u64,
    /// Requests or pieces that were held back.
    pub held: u64,
    /// Total time for which they were held back, in nanoseconds.
    pub held_ns: u64,
    /// Longest time for which one was held back, in nanoseconds.
    pub held_max_ns: u64,
    /// Requests that are waiting now.
    pub waiting: u64,
}

/// Statistics of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleStats {
    /// Counters by class, in the order of [`Class::ALL`].
    pub classes: [ClassStats; 4],
    /// Number of small reads that may be in the device while records are expected.
    pub small_depth: u64,
    /// Time for which other requests are held back after a record, in nanoseconds.
    pub grace_ns: u64,
}

impl Counters {
    /// Counts a request of `class`, or a piece of one, that was held back for `held`.
    pub(crate) fn sent(&mut self, class: Class, held: Nanos) {
        let index = class as usize;
        self.requests[index] += 1;
        if held > Nanos(0) {
            self.held[index] += 1;
            self.held_ns[index] += held.0;
            self.held_max_ns[index] = self.held_max_ns[index].max(held.0);
        }
    }

    pub(crate) fn stats(&self, waiting: [u64; 4], small_depth: u64, grace: Nanos) -> ScheduleStats {
        let classes = std::array::from_fn(|index| ClassStats {
            requests: self.requests[index],
            held: self.held[index],
            held_ns: self.held_ns[index],
            held_max_ns: self.held_max_ns[index],
            waiting: waiting[index],
        });
        ScheduleStats { classes, small_depth, grace_ns: grace.0 }
    }
}
