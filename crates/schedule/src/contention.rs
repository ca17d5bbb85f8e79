//! Whether clients keep the device busy without a pause, as a neighbour's stream does.
//!
//! Holding requests back pays only then. In a burst the device needs all of them at once to order
//! them well, and beside requests with pauses between them records are quick anyway.

use manylogs_block::{Nanos, Time};

/// A pause up to this long is none: a client needs time to go on.
pub(crate) const NO_PAUSE: Nanos = Nanos::from_millis(1);
/// Up to so many requests at a time are no burst, however their number changes.
const FEW: usize = 16;
/// The number of requests stays the same if it changes by no more than one part in this many:
/// clients that wait for answers always have as many under way, and bursts grow and shrink ...
const STEADY: usize = 8;
/// ... or by so many: a request counts twice where a log lies between its parts.
const IN_PARTS: usize = 4;
/// Clients that wait for answers have no more under way: what goes beyond is a backlog, which the
/// device gets through soonest if it has all of it to order.
const BACKLOG: usize = 512;

/// What clients did lately, in spans of the time that contention takes to be believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention {
    /// How long the device must have been busy.
    after: Nanos,
    /// Clients' requests that have not been answered.
    under_way: usize,
    last_end: Time,
    /// When the current span began.
    began: Time,
    /// The most requests under way in the current span, and in the two before it; zero for spans
    /// from before the last pause.
    most: [usize; 3],
}

impl Contention {
    /// Contention that is believed after the device was busy for `after`.
    pub(crate) const fn new(after: Nanos) -> Self {
        let (under_way, most) = (0, [0; 3]);
        Self { after, under_way, last_end: Time(0), began: Time(0), most }
    }

    /// A client's request arrived.
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

    /// One that had arrived was answered.
    pub(crate) fn ended(&mut self, now: Time) {
        debug_assert!(self.under_way > 0, "each request ends once");
        self.under_way -= 1;
        self.last_end = now;
    }

    /// Whether clients have kept the device busy up to `now`, with about as many requests all the
    /// time.
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
