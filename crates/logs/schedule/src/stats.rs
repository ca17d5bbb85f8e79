//! Counters of the scheduler.

use manylogs_block::{Nanos, Time};

use crate::Class;

/// What held-back requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A record that is under way, or another that may follow one at once.
    Record,
    /// Room in the device: it holds as much work as a record may find ahead of it.
    Room,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 2] = [Self::Record, Self::Room];

    /// Its name for people and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Room => "room",
        }
    }
}

/// Time for which requests waited, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    now: Option<(Cause, Time)>,
    ns: [u64; 2],
}

impl Waits {
    /// Notes that from `now` on the next request waits for `cause`, or that none waits.
    pub(crate) fn note(&mut self, cause: Option<Cause>, now: Time) {
        self.ns = self.until(now);
        self.now = cause.map(|cause| (cause, now));
    }

    /// The present cause, and the sums up to `now`.
    pub(crate) fn at(&self, now: Time) -> (Option<Cause>, [u64; 2]) {
        (self.now.map(|(cause, _)| cause), self.until(now))
    }

    fn until(&self, now: Time) -> [u64; 2] {
        let mut ns = self.ns;
        if let Some((cause, since)) = self.now {
            ns[cause as usize] += now.since(since).0;
        }
        ns
    }
}

/// A request that goes this soon after its arrival was not held back.
const SAME_TURN: Nanos = Nanos(100_000);

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
    /// The cause for which the next request waits, if one waits.
    pub waits_for: Option<Cause>,
    /// Time for which requests waited, in nanoseconds, by the cause for which the next one waited,
    /// in the order of [`Cause::ALL`].
    pub waited_ns: [u64; 2],
}

impl ScheduleStats {
    /// The sum of two schedulers' statistics. If requests wait in both, the first one's cause
    /// counts.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let both = self.classes.into_iter().zip(other.classes);
        let mut classes = both.map(|(a, b)| ClassStats {
            requests: a.requests + b.requests,
            held: a.held + b.held,
            held_ns: a.held_ns + b.held_ns,
            held_max_ns: a.held_max_ns.max(b.held_max_ns),
            waiting: a.waiting + b.waiting,
        });
        Self {
            classes: std::array::from_fn(|_| classes.next().unwrap_or_default()),
            small_depth: self.small_depth + other.small_depth,
            grace_ns: self.grace_ns.max(other.grace_ns),
            waits_for: self.waits_for.or(other.waits_for),
            waited_ns: std::array::from_fn(|cause| self.waited_ns[cause] + other.waited_ns[cause]),
        }
    }
}

impl Counters {
    /// Counts a request of `class`, or a piece of one, that was held back for `held`.
    pub(crate) fn sent(&mut self, class: Class, held: Nanos) {
        let index = class as usize;
        self.requests[index] += 1;
        if held > SAME_TURN {
            self.held[index] += 1;
            self.held_ns[index] += held.0;
            self.held_max_ns[index] = self.held_max_ns[index].max(held.0);
        }
    }

    /// Statistics of each class; `waiting` holds the numbers of waiting requests.
    pub(crate) fn classes(&self, waiting: [u64; 4]) -> [ClassStats; 4] {
        std::array::from_fn(|index| ClassStats {
            requests: self.requests[index],
            held: self.held[index],
            held_ns: self.held_ns[index],
            held_max_ns: self.held_max_ns[index],
            waiting: waiting[index],
        })
    }
}
