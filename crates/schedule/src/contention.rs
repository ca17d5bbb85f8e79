//! Detects contention: clients keep the device busy without a pause, as a neighbour's stream does.
//!
//! Holding requests back pays only under contention. In a burst the device needs all requests at
//! once to order them well. Beside requests with pauses between them, records are fast anyway.

use manylogs_block::{Nanos, Time};

/// Shorter pauses do not count, as a client needs time to send its next request.
pub(crate) const NO_PAUSE: Nanos = Nanos::from_millis(1);
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
    /// Number of clients' requests in flight.
    under_way: usize,
    last_end: Time,
    /// Beginning of the current span.
    began: Time,
    /// Largest number of requests in flight in the current span and in each of the two before. Zero
    /// for spans before the last pause.
    most: [usize; 3],
}

impl Contention {
    /// A detector that reports contention after the device was busy for `after`.
    pub(crate) const fn new(after: Nanos) -> Self {
        let (under_way, most) = (0, [0; 3]);
        Self { after, under_way, last_end: Time(0), began: Time(0), most }
    }

    /// Records the arrival of a client's request.
    pub(crate) fn arrived(&mut self, now: Time) {
        if self.pauses(now) {
            self.began = now;
            self.most = [0; 3];
        }
        self.under_way += 1;
        if now.since(self.began) >= self.after {
            self.began = now;
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
        if last == 0 || self.pauses(now) {
            return false;
        }
        let (least, most) = match before {
            0 => (last, last),
            before => (last.min(before), last.max(before)),
        };
        let most = most.max(current);
        let tolerated = (least / STEADY).max(IN_PARTS);
        most <= FEW || (most <= least + tolerated && most <= BACKLOG)
    }

    fn pauses(&self, now: Time) -> bool {
        self.under_way == 0 && now.since(self.last_end) > NO_PAUSE
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
            contention.arrived(at(from));
        }
        for now in (from..from + ms).step_by(5).map(at) {
            contention.ended(now);
            contention.arrived(now);
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
            assert!(!contention.lasts(end + Nanos::from_millis(2)), "it has ended");
            let end = stream(&mut contention, 1690, 100, under_way);
            assert!(!contention.lasts(end), "a pause begins anew");
        }
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
