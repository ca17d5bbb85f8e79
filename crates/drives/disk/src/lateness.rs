//! Lateness of an emulated drive against the times of its model.

use std::fmt;

use hdrhistogram::Histogram;
use manylogs_block::Nanos;

/// A run whose 99th percentile of lateness is above this says nothing about the drive. It is an
/// eighth of a revolution (4 ms) of the fastest drive that has a profile. A client that gets its
/// answers later begins to catch other revolutions than on the drive.
pub const VOID_ABOVE: Nanos = Nanos(500_000);

/// Lowest value that the histogram tells from zero.
const RESOLUTION_NS: u64 = 100;
/// Longer latenesses count as this long.
const LONGEST_NS: u64 = 1000 * 1_000_000_000;
/// Figures are within 1 %: more precision would cost memory and be of no use.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Cause of a late answer: the part that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The timer of the model fired late; the content had answered before.
    Timer,
    /// The content was still being read or written.
    Content,
}

/// Latenesses, counted by their cause.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    timer: Histogram<u64>,
    content: Histogram<u64>,
}

/// Figures of one kind of lateness, within 1 %; all zero if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessFigures {
    /// Requests of this kind.
    pub requests: u64,
    /// Median of their lateness.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// The longest.
    pub max: Nanos,
}

/// How much later than the model's own times the requests were answered. Every request is a little
/// late, and belongs to one of two kinds by whether the timer or the content ended last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessReport {
    /// All requests but discards, which take no time in the model.
    pub all: LatenessFigures,
    /// Requests whose content had answered in time: the timer or the processor was late.
    pub by_timer: LatenessFigures,
    /// Requests that waited for the content: the device that stores it is slower than the model.
    pub by_content: LatenessFigures,
}

impl Default for Lateness {
    fn default() -> Self {
        let new = || {
            Histogram::new_with_bounds(RESOLUTION_NS, LONGEST_NS, SIGNIFICANT_DIGITS)
                .unwrap_or_else(|_| unreachable!("the bounds are constants"))
        };
        Self { timer: new(), content: new() }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late: Nanos, cause: Cause) {
        match cause {
            Cause::Timer => self.timer.saturating_record(late.0),
            Cause::Content => self.content.saturating_record(late.0),
        }
    }

    pub(crate) fn report(&self) -> LatenessReport {
        let mut all = self.timer.clone();
        let added = all.add(&self.content);
        debug_assert!(added.is_ok(), "both have the same bounds");
        LatenessReport {
            all: figures(&all),
            by_timer: figures(&self.timer),
            by_content: figures(&self.content),
        }
    }
}

fn figures(histogram: &Histogram<u64>) -> LatenessFigures {
    if histogram.is_empty() {
        return LatenessFigures::default();
    }
    let max = histogram.max();
    let at = |quantile| Nanos(histogram.value_at_quantile(quantile).min(max));
    LatenessFigures { requests: histogram.len(), p50: at(0.5), p99: at(0.99), max: Nanos(max) }
}

impl LatenessReport {
    /// Whether the run's times differ from the drive's: more than one request in a hundred was late
    /// by more than [`VOID_ABOVE`].
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.all.p99 > VOID_ABOVE
    }
}

impl fmt::Display for LatenessFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [self.p50, self.p99, self.max].map(|late| late.0 as f64 / 1e6);
        write!(f, "{} requests, p50 {p50:.3} p99 {p99:.3} max {max:.3} ms", self.requests)
    }
}

impl fmt::Display for LatenessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "late: {}", self.all)?;
        if self.by_content.requests > 0 {
            write!(f, " (by the timer: {}; by the content: {})", self.by_timer, self.by_content)?;
        }
        if self.is_void() {
            let limit = VOID_ABOVE.0 as f64 / 1e6;
            write!(f, "; VOID: p99 above {limit} ms, these are not the times of the drive")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_void_when_more_than_one_in_a_hundred_is_late() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.report(), LatenessReport::default());
        (0..990).for_each(|_| lateness.record(Nanos(2_000), Cause::Timer));
        (0..10).for_each(|_| lateness.record(Nanos::from_millis(20), Cause::Content));
        let report = lateness.report();
        assert!(!report.is_void(), "{report}");
        assert_eq!((report.all.requests, report.by_content.requests), (1000, 10));
        (0..10).for_each(|_| lateness.record(Nanos::from_millis(20), Cause::Content));
        let report = lateness.report();
        assert!(report.is_void(), "{report}");
        assert!(report.by_timer.max < Nanos(2_100) && report.by_content.p50 > Nanos(19_000_000));
    }
}
