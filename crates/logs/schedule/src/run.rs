//! Recognises a run: requests of one stream, with nobody else's between them.

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};

use crate::Class;
use crate::state::State;
use manylogs_plant::{self as plant, Bug};

/// A run goes on behind a gap of this length: a log that lies in its way.
const GAP: Sectors = Sectors(32_768);
/// So many small requests beside a run are a burst, which has an order.
const FEW: usize = 4;
/// What is no longer than this, 1 MiB, takes a drive no longer than a movement or two.
const SHORT: Sectors = Sectors(2048);

/// Streams that nobody asks for something small beside, for this long, have the device alone.
const ALONE: Nanos = Nanos::from_secs(1);

/// What clients ask for, as far as it is one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// End of the last request.
    end: Lba,
    /// Whether all requests since nobody waited are of one run.
    only: bool,
    /// Their length together.
    len: Sectors,
}

impl Run {
    /// A stream asks for `extent`. `alone`: no other request of a client is in the scheduler.
    /// Returns whether it goes on exactly where the last one ended.
    pub(crate) fn asked(&mut self, extent: Extent, alone: bool) -> bool {
        let goes_on = extent.start == self.end;
        let near = extent.start >= self.end && extent.start.0 - self.end.0 <= GAP.0;
        self.only = alone || self.only && near;
        self.len = if alone { extent.len } else { self.len + extent.len };
        self.end = extent.end();
        goes_on
    }

    /// A client asks for a small read or write, while `others` of them wait. A few leave a run what
    /// it is: they may be parts of the run that lie in a log, and have little order.
    pub(crate) const fn small_asked(&mut self, others: usize) {
        self.only = self.only && others < FEW;
    }

    /// Whether clients ask for one run alone, and for more of it than a record can wait for. There
    /// is nothing to order, so that a drive needs none of it ahead of time.
    pub(crate) fn is_all(&self) -> bool {
        self.only && self.len > SHORT
    }
}

impl State {
    /// Whether clients wait for one run alone, and the device has the time to hold it back: for
    /// records that are rare, as each costs it a movement and back.
    pub(crate) fn is_a_run(&self, now: Time) -> bool {
        let run = self.run.is_all() && self.client_waits() && !plant::is(Bug::RunsPass);
        let rare =
            !self.syncs.are_frequent(now, &self.bounds) || plant::is(Bug::RunHeldBackForFrequent);
        let time = self.slack.is_there() && !self.is_overdue(now);
        run && rare && (time || plant::is(Bug::RunHeldBackForEver))
    }

    /// Whether streams that last compete with records for the device, and nobody else does. Where
    /// clients asked for small reads within a second, their commits are what they wait for next.
    pub(crate) fn serves_stream(&self, now: Time) -> bool {
        let there = self.queues.waits(Class::Stream) || self.in_device.streams > 0;
        let lately = now.since(self.stream_sent) < self.bounds.latency;
        let alone = now.since(self.small_asked) >= ALONE || self.small_asked == Time(0);
        (there || lately) && alone && self.holds_back(now)
    }

    /// Whether a request of a stream has waited here for too long.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        let oldest = self.queues.oldest(Class::Stream);
        oldest.is_some_and(|oldest| now.since(oldest) >= self.bounds.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_what_lies_elsewhere_and_not_with_a_log_in_its_way() {
        let mut run = Run::default();
        let mut asked = |start, alone| {
            let goes_on = run.asked(Extent::new(start, 2048), alone);
            (goes_on, run.is_all())
        };
        assert_eq!(asked(100_000, true), (false, false), "too short");
        assert_eq!(asked(102_048, false), (true, true));
        assert_eq!(asked(104_096 + 20_480, false), (false, true), "behind a log of 10 MiB");
        assert_eq!(asked(1_000_000, false), (false, false), "another stream");
        assert_eq!(asked(1_002_048, false), (true, false), "it is still there");
        assert_eq!(asked(1_004_096, true), (true, false), "the other has ended");
        assert_eq!(asked(1_006_144, false), (true, true));
        run.small_asked(3);
        assert!(run.is_all(), "a part of it in a log");
        run.small_asked(4);
        assert!(!run.is_all(), "several small reads need to be ordered");
    }
}
