//! Recognises a run: requests of one stream, without other clients' requests between them.

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};

use crate::Class;
use crate::state::State;
use manylogs_plant::{self as plant, Bug};

/// A run may go on behind a gap of this length, where a log lies in its way.
const GAP: Sectors = Sectors(32_768);
/// This many small requests beside a run are a burst, which is better put in order.
const FEW: usize = 4;
/// A run up to this length, 1 MiB, takes a drive about as long as one or two seeks.
const SHORT: Sectors = Sectors(2048);

/// Streams have the device alone if clients have asked for nothing small for this long.
const ALONE: Nanos = Nanos::from_secs(1);

/// Tracks whether all requests of clients form one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// End of the last request.
    end: Lba,
    /// Whether all requests since the last time that no client waited form one run.
    only: bool,
    /// Total length of these requests.
    len: Sectors,
}

impl Run {
    /// Notes that a stream asks for `extent`. `alone`: no other request of a client is in the
    /// scheduler. Returns whether `extent` begins exactly where the last request ended.
    pub(crate) fn asked(&mut self, extent: Extent, alone: bool) -> bool {
        let goes_on = extent.start == self.end;
        let near = extent.start >= self.end && extent.start.0 - self.end.0 <= GAP.0;
        self.only = alone || self.only && near;
        self.len = if alone { extent.len } else { self.len + extent.len };
        self.end = extent.end();
        goes_on
    }

    /// Notes that a client asks for a small read or write while `others` of them wait. A few do not
    /// end a run: they may be parts of the run that lie in a log, and need little ordering.
    pub(crate) const fn small_asked(&mut self, others: usize) {
        self.only = self.only && others < FEW;
    }

    /// Whether clients ask for a single run, and for so much of it that a record should not wait.
    /// There is nothing to order then, so the drive needs none of it ahead of time.
    pub(crate) fn is_all(&self) -> bool {
        self.only && self.len > SHORT
    }
}

impl State {
    /// Whether clients wait for a single run, and the device has time to hold it back. That pays
    /// only for rare records, because each costs the run a seek and back.
    pub(crate) fn is_a_run(&self, now: Time) -> bool {
        let run = self.run.is_all() && self.client_waits() && !plant::is(Bug::RunsPass);
        let rare =
            !self.syncs.are_frequent(now, &self.bounds) || plant::is(Bug::RunHeldBackForFrequent);
        let time = self.slack.is_there() && !self.is_overdue(now);
        run && rare && (time || plant::is(Bug::RunHeldBackForEver))
    }

    /// Whether lasting streams, and no other requests, compete with records for the device. If
    /// clients asked for small reads within a second, they count as well: next they wait for their
    /// commits.
    pub(crate) fn serves_stream(&self, now: Time) -> bool {
        let there = self.queues.waits(Class::Stream) || self.in_device.streams > 0;
        let lately = now.since(self.stream_sent) < self.bounds.latency;
        let alone = now.since(self.small_asked) >= ALONE || self.small_asked == Time(0);
        (there || lately) && alone && self.holds_back(now)
    }

    /// Whether a request of a client is in the scheduler or in the device.
    pub(crate) fn client_waits(&self) -> bool {
        let waits = self.queues.waits(Class::Small) || self.queues.waits(Class::Stream);
        waits || self.in_device.clients() > 0
    }

    /// Whether a stream's request has waited in the scheduler for too long.
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
