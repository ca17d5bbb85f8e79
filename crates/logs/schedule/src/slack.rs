//! Whether clients leave the device idle at times. Holding back a run costs bandwidth. Idle time of
//! the device pays for it; if clients never pause, it would slow them down.

use manylogs_block::{Nanos, Time};

/// Length of the spans for which the idle share is computed.
const SPAN: Nanos = Nanos::from_secs(1);
/// Clients leave the device idle if they pause for at least one part in this many of a span.
const IDLE_SHARE: u64 = 32;

/// Idle time of the device, and whether it was enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slack {
    /// Beginning of the present span.
    began: Time,
    /// Idle time in the present span.
    idle: Nanos,
    /// Whether the device was idle enough in an earlier span, and no request that was held back has
    /// waited too long since.
    there: bool,
}

impl Slack {
    /// Without known idle time at `now`.
    pub(crate) const fn new(now: Time) -> Self {
        Self { began: now, idle: Nanos(0), there: false }
    }

    /// Notes that a client asks for something after no client has for `pause`.
    pub(crate) fn arrived(&mut self, now: Time, pause: Nanos) {
        let span = now.since(self.began);
        self.idle += pause.min(span);
        if span < SPAN {
            return;
        }
        self.there |= self.idle.0 >= span.0 / IDLE_SHARE;
        (self.began, self.idle) = (now, Nanos(0));
    }

    /// Notes requests that pass uncounted: the time up to `now` shows nothing.
    pub(crate) fn unseen(&mut self, now: Time) {
        (self.began, self.idle) = (now, Nanos(0));
    }

    /// Notes that a request that is held back has waited too long: requests come faster than they
    /// go.
    pub(crate) fn used_up(&mut self, now: Time) {
        if self.there {
            *self = Self::new(now);
        }
    }

    /// Whether there is idle time that pays for holding back.
    pub(crate) const fn is_there(&self) -> bool {
        self.there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_comes_with_idle_time_and_goes_when_it_is_used_up() {
        let mut slack = Slack::new(Time(0));
        let mut now = Time(0);
        let mut ask = |slack: &mut Slack, seconds: u64, pause_ms: u64| {
            for _ in 0..seconds * 10 {
                now = now + Nanos::from_millis(100);
                slack.arrived(now, Nanos::from_millis(pause_ms));
            }
            (now, slack.is_there())
        };
        assert!(!ask(&mut slack, 5, 2).1, "a fiftieth is too little");
        assert!(ask(&mut slack, 2, 4).1);
        let (now, there) = ask(&mut slack, 5, 0);
        assert!(there, "what is held back does not wait for too long");
        slack.used_up(now);
        assert!(!ask(&mut slack, 5, 2).1);
        slack.unseen(now + Nanos::from_secs(60));
        assert!(!slack.is_there(), "what is not seen says nothing");
        assert!(ask(&mut slack, 62, 4).1);
    }
}
