//! The rate that an instance's threads share.

use std::cell::Cell;

use manylogs_block::{Handle, Nanos, Time};

/// Lets operations begin at a rate. Time in which no operation was ready is not made up for.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Nanos,
    next: Cell<Time>,
}

impl Pace {
    /// A pace of `per_second` operations a second, the first one at `from`.
    pub(super) fn new(per_second: f64, from: Time) -> Self {
        Self { interval: Nanos::from_secs_f64(1.0 / per_second), next: Cell::new(from) }
    }

    /// Resolves when the next operation may begin; returns when that was.
    pub(super) async fn turn(&self, runtime: &Handle) -> Time {
        let at = self.next.get().max(runtime.now());
        self.next.set(at + self.interval);
        runtime.sleep_until(at).await;
        at
    }
}
