//! Detects contention: clients keep the device busy without a pause, as a neighbour's stream does.
//!
//! Holding requests back pays only under contention. In a burst the device needs all requests at
//! once to order them well. Beside requests with pauses between them, records are fast anyway.

use manylogs_block::{Nanos, Time};

/// Shorter pauses do not count, because a client needs time to send its next request.
pub(crate) const NO_PAUSE: Nanos = Nanos::from_millis(1);
/// A client that continues its stream may pause for longer: a reader through the page cache asks
/// for the next requests after it has copied the last ones (2 to 6 ms for 2.5 MiB, measured) ...
const OWN_PAUSE: Nanos = Nanos::from_millis(20);
/// ... as long as such pauses take at most one part in this many of the time after which contention
/// is assumed.
const OWN_SHARE: u64 = 4;
/// Up to this number of requests in flight are not a burst, however the number changes.
const FEW: usize = 16;
/// The number of requests in flight is steady if it changes by at most this fraction of itself.
/// Clients that wait for answers keep a steady number in flight. Bursts grow and shrink.
const STEADY: usize = 8;
/// A change by at most this number is steady too: a request counts twice if a log lies between its
/// parts.
const IN_PARTS: usize = 4;
/// Clients that wait for answers keep at most this number in flight. A larger number is a backlog,
/// which the device finishes soonest if it can order all of it.
const BACKLOG: usize = 512;

/// Recent activity of clients, in spans of the time after which contention is assumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention {
    /// Time for which the device must have been busy.
    after: Nanos,
    /// Columns of an array, of which a request has a part on each; 1 for a drive.
    columns: usize,
    /// Number of clients' requests in flight.
    under_way: usize,
    last_end: Time,
    /// Length of the pauses in the current span after which a client continued its stream.
    paused: Nanos,
    /// Beginning of the current span.
    began: Time,
    /// Largest number of requests in flight in the current span and in each of the two before. Zero
    /// for spans before the last pause.
    most: [usize; 3],
}

impl Contention {
    /// A detector that reports contention after the device was busy for `after`.
    pub(crate) const fn new(after: Nanos) -> Self {
        Self::of_columns(after, 1)
    }

    /// As [`Contention::new`], for an array of `columns` columns.
    pub(crate) const fn of_columns(after: Nanos, columns: usize) -> Self {
        let (under_way, most, paused) = (0, [0; 3], Nanos(0));
        Self { after, columns, under_way, last_end: Time(0), paused, began: Time(0), most }
    }

    /// Records the arrival of a client's request. `goes_on`: the request continues its stream.
    pub(crate) fn arrived(&mut self, now: Time, goes_on: bool) {
        let pause = self.pause(now);
        if self.is_over(pause) || pause > NO_PAUSE && !goes_on {
            self.began = now;
            self.paused = Nanos(0);
            self.most = [0; 3];
        } else if pause > NO_PAUSE {
            self.paused += pause;
        }
        self.under_way += 1;
        if now.since(self.began) >= self.after {
            self.began = now;
            self.paused = Nanos(0);
            self.most.rotate_right(1);
            self.most[0] = 0;
        }
        self.most[0] = self.most[0].max(self.under_way);
    }

    /// Records the answer to a client's request.
    pub(crate) fn ended(&mut self, now: Time) {
        debug_assert!(self.under_way > 0, "each request ends once");
        self.under_way -= 1;
        self.last_end = now;
    }

    /// Whether clients have kept the device busy up to `now` with a steady number of requests.
    pub(crate) fn lasts(&self, now: Time) -> bool {
        if self.after == Nanos(0) {
            return true;
        }
        let [current, last, before] = self.most;
        if last == 0 || self.is_over(self.pause(now)) {
            return false;
        }
        let (least, most) = match before {
            0 => (last, last),
            before => (last.min(before), last.max(before)),
        };
        let most = most.max(current);
        let parts = IN_PARTS * self.columns;
        let tolerated = (least / STEADY).max(parts);
        // Some requests of an array are in two parts on each column at any time.
        let few = if self.columns == 1 { FEW } else { FEW * self.columns + parts };
        most <= few || (most <= least + tolerated && most <= BACKLOG)
    }

    /// Time for which clients have had no request under way.
    pub(crate) fn pause(&self, now: Time) -> Nanos {
        if self.under_way == 0 { now.since(self.last_end) } else { Nanos(0) }
    }

    /// Whether a pause is too long for any client.
    fn is_over(&self, pause: Nanos) -> bool {
        let paused = Nanos((self.paused + pause).0.saturating_mul(OWN_SHARE));
        pause > OWN_PAUSE || pause > NO_PAUSE && paused > self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Nanos = Nanos::from_millis(300);

    /// `under_way` requests at a time, each answered after 5 ms and followed at once, for `ms`.
    fn stream(contention: &mut Contention, from: u64, ms: u64, under_way: usize) -> Time {
        let at = |ms: u64| Time(0) + Nanos::from_millis(ms);
        for _ in 0..under_way {
            contention.arrived(at(from), false);
        }
        for now in (from..from + ms).step_by(5).map(at) {
            contention.ended(now);
            contention.arrived(now, true);
        }
        let end = at(from + ms);
        for _ in 0..under_way {
            contention.ended(end);
        }
        end
    }

    #[test]
    fn a_stream_is_contention_once_it_has_lasted() {
        for under_way in [1, 2, 16, 64] {
            let mut contention = Contention::new(AFTER);
            let end = stream(&mut contention, 1000, 280, under_way);
            assert!(!contention.lasts(end));
            let end = stream(&mut contention, 1280, 400, under_way);
            assert!(contention.lasts(end), "{under_way}");
            assert!(!contention.lasts(end + Nanos::from_millis(25)), "it has ended");
            let end = stream(&mut contention, 1690, 100, under_way);
            assert!(!contention.lasts(end), "a pause begins anew");
        }
    }

    /// Whether a reader that pauses for `pause_ms` after each 30 ms becomes contention.
    fn reader_with_pauses(pause_ms: u64, goes_on: bool) -> bool {
        let mut contention = Contention::new(AFTER);
        let mut now = Time(0) + Nanos::from_secs(1);
        for _ in 0..100 {
            contention.arrived(now, goes_on);
            now = now + Nanos::from_millis(30);
            contention.ended(now);
            now = now + Nanos::from_millis(pause_ms);
        }
        contention.arrived(now, goes_on);
        contention.lasts(now)
    }

    #[test]
    fn a_reader_that_goes_on_after_short_pauses_is_contention() {
        assert!(reader_with_pauses(1, false), "nobody is faster");
        assert!(reader_with_pauses(5, true), "as through the page cache");
        assert!(!reader_with_pauses(5, false), "requests that have nothing to do with each other");
        assert!(!reader_with_pauses(15, true), "a third of the time");
        assert!(!reader_with_pauses(25, true), "too long");
    }

    #[test]
    fn a_burst_that_grows_or_shrinks_is_none() {
        let mut contention = Contention::new(AFTER);
        for (index, under_way) in [20, 40, 80, 120, 60, 30].into_iter().enumerate() {
            let end = stream(&mut contention, 1000 + 300 * index as u64, 300, under_way);
            assert!(!contention.lasts(end), "{under_way}");
        }
        let end = stream(&mut contention, 2800, 900, 30);
        assert!(contention.lasts(end), "clients that wait for answers came after it");
    }

    #[test]
    fn without_a_time_everything_is_contention() {
        assert!(Contention::new(Nanos(0)).lasts(Time(0)));
    }
}
