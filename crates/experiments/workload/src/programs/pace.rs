//! The rate that an instance's threads share.

use std::cell::Cell;

use manylogs_block::{Handle, Nanos, Time};

/// Lets operations begin at a rate.
#[derive(Debug)]
pub struct Pace {
    interval: Nanos,
    next: Cell<Time>,
    made_up: Nanos,
}

impl Pace {
    /// A pace of `per_second` operations a second, the first one at `from`. Time in which no
    /// operation was ready is not made up for.
    #[must_use]
    pub fn new(per_second: f64, from: Time) -> Self {
        let interval = Nanos::from_secs_f64(1.0 / per_second);
        Self { interval, next: Cell::new(from), made_up: Nanos(0) }
    }

    /// The same pace, in which up to `span` without an operation is made up for: so the rate is
    /// reached on average, even if operations are not always ready.
    #[must_use]
    pub fn making_up(self, span: Nanos) -> Self {
        Self { made_up: span, ..self }
    }

    /// Resolves when the next operation may begin; returns when that was.
    pub async fn turn(&self, runtime: &Handle) -> Time {
        let now = runtime.now();
        let at = self.next.get().max(Time(now.0.saturating_sub(self.made_up.0)));
        self.next.set(at + self.interval);
        let at = at.max(now);
        runtime.sleep_until(at).await;
        at
    }
}
