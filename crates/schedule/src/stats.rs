//! What the scheduler counts.

use manylogs_block::Nanos;

use crate::Class;

/// Counters that only grow, by class.
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
    /// Requests, or pieces of such, that went to the device while records were expected.
    pub requests: u64,
    /// Those that did not go when they arrived.
    pub held: u64,
    /// What they waited for their turn, all together, in nanoseconds.
    pub held_ns: u64,
    /// The longest that one waited, in nanoseconds.
    pub held_max_ns: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

/// What the scheduler did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleStats {
    /// By class, in the order of [`Class::ALL`].
    pub classes: [ClassStats; 4],
    /// Small reads that may lie in the device while records are expected.
    pub small_depth: u64,
    /// How long others are held back after a record, in nanoseconds.
    pub grace_ns: u64,
}

impl Counters {
    /// A request of `class`, or a piece of one, went after it was held for `held`.
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
