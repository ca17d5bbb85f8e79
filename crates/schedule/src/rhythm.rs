//! When records are expected: while they come, and shortly before the next is due.

use manylogs_block::{Nanos, Time};

/// Records are expected for at least this long after the last.
const LEAST: Nanos = Nanos::from_secs(1);
/// ... and at most this long, unless the rhythm says when the next is due.
const MOST: Nanos = Nanos::from_secs(10);
/// ... in between for so many intervals.
const INTERVALS: f64 = 4.0;
/// An interval in so many counts in the mean.
const RECENT: f64 = 4.0;
/// Around the moment at which the next is due, in intervals.
const DUE: (f64, f64) = (0.8, 1.25);
/// Intervals longer than this are no rhythm.
const LONGEST: Nanos = Nanos::from_secs(120);
/// Records closer to one another belong to one sync.
const ONE_SYNC: Nanos = Nanos::from_millis(20);

/// The gap in which a client answers with its next record, if it does so at once.
const AT_ONCE: Nanos = Nanos::from_millis(1);
/// Reads are held back after a record if at least this share of records is followed at once.
const FOLLOWED: f64 = 0.25;
/// A record in so many counts.
const RECENT_GAPS: f64 = 32.0;
/// Bounds of how long reads are held back after a record.
const GRACE: (u64, u64) = (20_000, 500_000);

/// What is known of when records come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rhythm {
    last: Option<Time>,
    interval_ns: f64,
    /// Share of records that another followed at once, and after what gap those did.
    followed: f64,
    gap_ns: f64,
    /// When the device last finished its last record.
    last_end: Option<Time>,
}

impl Rhythm {
    /// A record arrived.
    pub(crate) fn arrived(&mut self, now: Time) {
        if let Some(last) = self.last {
            let gap = now.since(last);
            if gap > LONGEST {
                self.interval_ns = 0.0;
            } else if gap > ONE_SYNC {
                let seen = gap.0 as f64;
                self.interval_ns = if self.interval_ns == 0.0 {
                    seen
                } else {
                    self.interval_ns + (seen - self.interval_ns) / RECENT
                };
            }
        }
        if let Some(end) = self.last_end.take() {
            self.note_gap(now.since(end));
        }
        self.last = Some(now);
    }

    /// The last record in the device has ended.
    pub(crate) fn ended(&mut self, now: Time) {
        self.last_end = Some(now);
    }

    fn note_gap(&mut self, gap: Nanos) {
        let at_once = gap <= AT_ONCE;
        self.followed += (f64::from(at_once) - self.followed) / RECENT_GAPS;
        if at_once {
            self.gap_ns += (gap.0 as f64 - self.gap_ns) / RECENT_GAPS;
        }
    }

    /// Whether another record is expected soon enough to keep the device ready for it.
    pub(crate) fn expects(&self, now: Time) -> bool {
        let Some(last) = self.last else { return false };
        let since = now.since(last);
        let recent = Nanos::from_secs_f64(INTERVALS * self.interval_ns / 1e9).clamp(LEAST, MOST);
        let intervals = since.0 as f64 / self.interval_ns.max(1.0);
        since <= recent || (DUE.0..DUE.1).contains(&intervals)
    }

    /// How long after a record others are held back, as the next may follow at once.
    pub(crate) fn grace(&self) -> Nanos {
        if self.followed < FOLLOWED {
            return Nanos(0);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
        let twice = (2.0 * self.gap_ns) as u64;
        Nanos(twice.clamp(GRACE.0, GRACE.1))
    }
}
