//! Latency histograms.

use hdrhistogram::Histogram;
use manylogs_block::Nanos;
use serde::{Deserialize, Serialize};

/// Resolution of the histogram: two latencies that differ by less than half of this may share a
/// bucket.
const RESOLUTION_NS: u64 = 1_000;
/// Longer latencies count as this long in the quantiles; mean and maximum stay exact.
const LONGEST_NS: u64 = 48 * 3600 * 1_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// The percentiles at which policies are compared: 1 to 99 and the tail.
pub const PERCENTILES: [Percentile; 100] = {
    let mut all = [Percentile { thousandths: 99_900 }; 100];
    let mut percent = 1;
    while percent < 100 {
        all[percent as usize - 1] = Percentile::whole(percent);
        percent += 1;
    }
    all
};

/// A percentile, in thousandths of a per cent so that it can be compared and printed exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile {
    thousandths: u32,
}

impl Percentile {
    /// The percentile `percent`.
    #[must_use]
    pub const fn whole(percent: u32) -> Self {
        Self { thousandths: percent * 1_000 }
    }

    /// The percentile as a number between 0 and 100.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.thousandths) / 1e3
    }
}

/// A distribution of latencies: quantiles within 0.1 %, mean and maximum exact.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

/// Number and sum of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Number of latencies.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub sum_ns: u128,
}

impl Total {
    /// Mean in microseconds; zero if nothing was counted.
    #[must_use]
    pub fn mean_us(self) -> f64 {
        round3(self.sum_ns as f64 / self.count.max(1) as f64 / 1e3)
    }

    /// Adds the latencies of `other`.
    pub const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }
}

/// Figures of a distribution that all outputs show, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of requests.
    pub requests: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(RESOLUTION_NS, LONGEST_NS, SIGNIFICANT_DIGITS);
        Self {
            histogram: histogram.unwrap_or_else(|_| unreachable!("the bounds are constants")),
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Latencies {
    /// Counts one request.
    pub fn record(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.0);
        self.sum_ns += u128::from(latency.0);
        self.max_ns = self.max_ns.max(latency.0);
    }

    /// Adds the requests of `other`.
    pub fn add(&mut self, other: &Self) {
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok(), "all histograms have the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of counted requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `percentile` of the requests do not exceed, in microseconds.
    #[must_use]
    pub fn at_us(&self, percentile: Percentile) -> f64 {
        if self.histogram.is_empty() {
            return 0.0;
        }
        let ns = self.histogram.value_at_percentile(percentile.as_f64()).min(self.max_ns);
        round3(ns as f64 / 1e3)
    }

    /// Mean in microseconds; zero if nothing was counted.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.total().mean_us()
    }

    /// Number and sum.
    #[must_use]
    pub fn total(&self) -> Total {
        Total { count: self.count(), sum_ns: self.sum_ns }
    }

    /// A distribution of which only number and sum are known: its mean stands for every quantile.
    #[must_use]
    pub fn of_total(total: Total) -> Self {
        let mean = total.sum_ns / u128::from(total.count.max(1));
        let max_ns = u64::try_from(mean).unwrap_or(u64::MAX);
        let mut all = Self { sum_ns: total.sum_ns, max_ns, ..Self::default() };
        all.histogram.saturating_record_n(max_ns, total.count);
        all
    }

    /// The summary.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            requests: self.count(),
            mean: self.mean_us(),
            p50: self.at_us(Percentile::whole(50)),
            p90: self.at_us(Percentile::whole(90)),
            p99: self.at_us(Percentile::whole(99)),
            p999: self.at_us(PERCENTILES[99]),
            max: round3(self.max_ns as f64 / 1e3),
        }
    }

    /// Points of the cumulative distribution: latency in microseconds, fraction of requests.
    #[must_use]
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        const TAIL: [u32; 6] = [99_500, 99_700, 99_900, 99_950, 99_990, 100_000];
        let body = (0..199).map(|half| Percentile { thousandths: half * 500 });
        let tail = TAIL.into_iter().map(|thousandths| Percentile { thousandths });
        body.chain(tail).map(|p| (self.at_us(p), round3(p.as_f64() * 10.0) / 1e3)).collect()
    }
}

/// Rounds `value` to three decimals, the precision of all outputs.
#[must_use]
pub fn round3(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_mean_and_maximum_of_a_known_distribution() {
        let mut latencies = Latencies::default();
        for us in 1..=100_000 {
            latencies.record(Nanos::from_micros(us));
        }
        let summary = latencies.summary();
        assert_eq!(summary.requests, 100_000);
        assert!((summary.mean - 50_000.5).abs() < 1e-6);
        for (found, expected) in
            [(summary.p50, 50_000.0), (summary.p99, 99_000.0), (summary.p999, 99_900.0)]
        {
            assert!((found / expected - 1.0).abs() < 0.002, "{found} for {expected}");
        }
        assert!((summary.max - 100_000.0).abs() < 1e-6);
    }

    #[test]
    fn an_empty_distribution_is_all_zero() {
        assert_eq!(Latencies::default().summary(), LatencySummary::default());
    }

    #[test]
    fn the_cdf_rises_from_zero_to_one() {
        let mut latencies = Latencies::default();
        (0..1000).for_each(|us| latencies.record(Nanos::from_micros(us * us)));
        let cdf = latencies.cdf();
        assert!(cdf.is_sorted());
        assert!((cdf[cdf.len() - 1].1 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_sum_of_parts_is_the_whole() {
        let (mut whole, mut parts) = (Latencies::default(), [(); 2].map(|()| Latencies::default()));
        for ns in (0..100_000).step_by(77) {
            whole.record(Nanos(ns * 50));
            parts[usize::from(ns % 2 == 0)].record(Nanos(ns * 50));
        }
        let [mut sum, other] = parts;
        sum.add(&other);
        assert_eq!(sum.summary(), whole.summary());
    }
}
