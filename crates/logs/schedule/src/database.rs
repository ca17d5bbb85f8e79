//! Recognises a database: small reads that clients wait for, beside frequent syncs.
//!
//! A record that goes before all reads costs them about the time of two reads, and shortens only
//! one of the waits of a transaction. That is worth while for rare syncs. Frequent ones would leave
//! no time for the reads: then every transaction, and with it the next sync, comes later.

use manylogs_block::{Nanos, Time};

use crate::limits::Bounds;

/// Requests to make data durable within this time belong to one sync.
const ONE_SYNC: Nanos = Nanos::from_millis(1);
/// A longer interval counts as this long.
const LONGEST: Nanos = Nanos::from_secs(1);
/// Weight of one sync and of one record in the moving means, as a divisor.
const RECENT: f64 = 16.0;

/// How often clients sync, and how long a record takes that goes before all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syncs {
    last: Option<Time>,
    /// Moving mean of the interval.
    apart_ns: f64,
    /// Moving mean of the latency of records.
    took_ns: f64,
}

impl Default for Syncs {
    fn default() -> Self {
        Self { last: None, apart_ns: LONGEST.0 as f64, took_ns: 0.0 }
    }
}

impl Syncs {
    /// Notes that a client asks for something to be durable.
    pub(crate) fn asked(&mut self, now: Time) {
        let gap = self.last.map_or(LONGEST, |last| now.since(last).min(LONGEST));
        if gap <= ONE_SYNC {
            return;
        }
        self.last = Some(now);
        self.apart_ns += (gap.0 as f64 - self.apart_ns) / RECENT;
    }

    /// Notes the latency of a record that went before all others.
    pub(crate) fn record_took(&mut self, took: Nanos) {
        self.took_ns += (took.0 as f64 - self.took_ns) / RECENT;
    }

    /// Whether syncs are too frequent for all their records to go before small reads: they come
    /// every three targets or sooner, or before the last sync's record has ended.
    pub(crate) fn are_frequent(&self, now: Time, bounds: &Bounds) -> bool {
        let lately = self.last.is_some_and(|last| now.since(last) < LONGEST);
        lately && self.apart_ns <= (bounds.frequent.0 as f64).max(self.took_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether syncs are frequent after a hundred of them, `apart_ms` apart. Each is several
    /// writes.
    fn frequent(apart_ms: u64, took_ms: u64) -> bool {
        let mut syncs = Syncs::default();
        let mut now = Time(0);
        for _ in 0..100 {
            now = now + Nanos::from_millis(apart_ms);
            for _ in 0..20 {
                syncs.asked(now);
            }
            syncs.record_took(Nanos::from_millis(took_ms));
        }
        assert!(!syncs.are_frequent(now + LONGEST, &Bounds::of(Nanos::from_millis(10))));
        syncs.are_frequent(now, &Bounds::of(Nanos::from_millis(10)))
    }

    #[test]
    fn syncs_are_frequent_by_their_interval_or_by_what_their_records_take() {
        assert!(frequent(14, 10));
        assert!(!frequent(62, 28), "beside random reads");
        assert!(frequent(44, 50), "each record waits for a drained queue");
        assert!(!Syncs::default().are_frequent(Time(0), &Bounds::of(Nanos::from_millis(10))));
    }
}
