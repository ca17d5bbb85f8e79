//! Predicts records. They are expected shortly after a record, and around the time at which the
//! rhythm predicts the next one.

use manylogs_block::{Nanos, Time};

/// Records are expected for at least this long after the last one ...
const LEAST: Nanos = Nanos::from_secs(1);
/// ... and for at most this long, unless the rhythm predicts the next one.
const MOST: Nanos = Nanos::from_secs(10);
/// Between these bounds, they are expected for this many intervals.
const INTERVALS: f64 = 4.0;
/// Weight of one interval in the moving mean, as a divisor.
const RECENT: f64 = 4.0;
/// The next record is expected between these shares of the interval after the last one.
const DUE: (f64, f64) = (0.8, 1.25);
/// Longer intervals do not count as a rhythm.
const LONGEST: Nanos = Nanos::from_secs(120);
/// Records within this time belong to one sync.
const ONE_SYNC: Nanos = Nanos::from_millis(20);

/// Longest gap after which the next record counts as following at once.
const AT_ONCE: Nanos = Nanos::from_millis(1);
/// Reads are held back after a record if at least this share of records is followed at once.
const FOLLOWED: f64 = 0.25;
/// Weight of one record in the moving share, as a divisor.
const RECENT_GAPS: f64 = 32.0;
/// Bounds of the time for which reads are held back after a record.
const GRACE: (u64, u64) = (20_000, 500_000);

/// Rhythm of records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rhythm {
    last: Option<Time>,
    interval_ns: f64,
    /// Share of records that another record followed at once, and the mean gap between the two.
    followed: f64,
    gap_ns: f64,
    /// Time at which the last record in the device ended.
    last_end: Option<Time>,
}

impl Rhythm {
    /// Records the arrival of a record.
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

    /// Records that the last record in the device has ended.
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

    /// Whether the next record is expected so soon that the device should be kept ready for it.
    pub(crate) fn expects(&self, now: Time) -> bool {
        let Some(last) = self.last else { return false };
        let since = now.since(last);
        let recent = Nanos::from_secs_f64(INTERVALS * self.interval_ns / 1e9).clamp(LEAST, MOST);
        let intervals = since.0 as f64 / self.interval_ns.max(1.0);
        since <= recent || (DUE.0..DUE.1).contains(&intervals)
    }

    /// Time for which other requests are held back after a record, because the next record may
    /// follow at once.
    pub(crate) fn grace(&self) -> Nanos {
        if self.followed < FOLLOWED {
            return Nanos(0);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
        let twice = (2.0 * self.gap_ns) as u64;
        Nanos(twice.clamp(GRACE.0, GRACE.1))
    }
}
