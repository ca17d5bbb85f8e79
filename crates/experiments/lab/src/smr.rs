//! The activity of a drive second by second, and the internal work of a shingled drive.

mod metered;

use manylogs_block::{Nanos, Time};
use manylogs_disk::ShingledFigures;
use serde::Serialize;

use crate::stats::round3;

pub(crate) use metered::Metered;

/// The most points that a series has. A longer run has points of several seconds.
const POINTS_MAX: u64 = 7_200;

/// Percentiles of a distribution, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
}

/// The figures of one run. The series have one value for each point in `seconds`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SmrFigures {
    /// Begin of each point since the start, in seconds.
    pub seconds: Vec<u64>,
    /// Data that was read and written in it, MiB a second.
    pub mib_s: Vec<f64>,
    /// 99th percentile of the latencies of the requests that ended in it, milliseconds; 0 if none.
    pub p99_ms: Vec<f64>,
    /// Use of the persistent cache at its end, bytes. 0 on a conventional drive.
    pub cache_used_bytes: Vec<u64>,
    /// Seconds in which no request ended although one was waiting.
    pub seconds_without_progress: u64,
    /// The longest latency, milliseconds.
    pub slowest_ms: f64,
    /// Size of the persistent cache; 0 on a conventional drive.
    pub cache_bytes: u64,
    /// Second in which a write found no room in the persistent cache for the first time.
    pub cache_full_second: Option<u64>,
    /// Bytes that the host wrote to the persistent cache.
    pub cached_bytes: u64,
    /// Bytes that the host wrote past the cache, as a stream.
    pub streamed_bytes: u64,
    /// Bands that were cleaned.
    pub bands_cleaned: u64,
    /// The mechanism's time for each cleaned band.
    pub band_clean_s: Spread,
    /// Time that the mechanism spent on the drive's internal work.
    pub cleaning_s: f64,
    /// Bands that are left to clean at the end.
    pub dirty_bands: u64,
    /// Moves of a full log near the head to an empty one.
    pub log_swaps: u64,
    /// Largest memory of the persistent cache's table.
    pub table_bytes_max: u64,
}

/// One point under way.
#[derive(Clone, Debug, Default)]
struct Point {
    bytes: u64,
    latencies: Vec<u64>,
}

/// Measures requests as they end.
#[derive(Clone, Debug)]
pub struct SmrMeter {
    began: Time,
    /// Seconds of a point.
    step: u64,
    point: Point,
    index: u64,
    /// Seconds up to here are counted.
    second: u64,
    figures: SmrFigures,
}

impl SmrMeter {
    /// A meter of a run that began at `began` and lasts about `span`.
    #[must_use]
    pub fn new(began: Time, span: Nanos) -> Self {
        let seconds = span.0 / 1_000_000_000;
        Self {
            began,
            step: seconds.div_ceil(POINTS_MAX).max(1),
            point: Point::default(),
            index: 0,
            second: 0,
            figures: SmrFigures::default(),
        }
    }

    /// A request of `bytes` that waited for `latency` ended at `at`. `drive` returns the figures of
    /// a shingled drive; it is called once for each point.
    pub fn ended(
        &mut self,
        at: Time,
        bytes: u64,
        latency: Nanos,
        drive: impl FnOnce() -> Option<ShingledFigures>,
    ) {
        self.waited(at, latency);
        let second = self.second;
        if second / self.step > self.index {
            self.turn(second / self.step, drive().as_ref());
        }
        self.point.bytes += bytes;
        self.point.latencies.push(latency.0);
    }

    /// Counts the seconds without progress up to `at`, when a request has waited for `latency` and
    /// no other has ended since the last call.
    fn waited(&mut self, at: Time, latency: Nanos) {
        let now = at.since(self.began).0;
        let second = now / 1_000_000_000;
        if second > self.second {
            // In the whole seconds in between no request ended; this one was waiting in some of
            // them.
            let waited_from = now.saturating_sub(latency.0).div_ceil(1_000_000_000);
            let empty_from = waited_from.max(self.second + 1);
            self.figures.seconds_without_progress += second.saturating_sub(empty_from);
            self.second = second;
        }
        self.figures.slowest_ms = self.figures.slowest_ms.max(latency.as_secs_f64() * 1e3);
    }

    /// Ends the current point, and adds those up to `next`, in which no request ended.
    fn turn(&mut self, next: u64, drive: Option<&ShingledFigures>) {
        let mut point = std::mem::take(&mut self.point);
        let cache_used = drive.map_or(0, |drive| drive.cache_used.bytes());
        let is_full = drive.is_some_and(|drive| drive.refused_entries > 0);
        if is_full && self.figures.cache_full_second.is_none() {
            self.figures.cache_full_second = Some(self.index * self.step);
        }
        for index in self.index..next {
            self.figures.seconds.push(index * self.step);
            let mib = point.bytes as f64 / (1 << 20) as f64;
            self.figures.mib_s.push(round3(mib / self.step as f64));
            self.figures.p99_ms.push(round3(p99_ms(&mut point.latencies)));
            self.figures.cache_used_bytes.push(cache_used);
            point = Point::default();
        }
        self.index = next;
    }

    /// The figures of the whole run, which ended at `at`. `waiting` is the arrival of the oldest
    /// request that had no answer by then.
    #[must_use]
    pub fn finish(
        mut self,
        at: Time,
        waiting: Option<Time>,
        drive: Option<&ShingledFigures>,
    ) -> SmrFigures {
        if let Some(arrived) = waiting {
            self.waited(at, at.since(arrived));
        }
        let end = at.since(self.began).0.div_ceil(1_000_000_000).div_ceil(self.step);
        self.turn(end.max(self.index + u64::from(!self.point.latencies.is_empty())), drive);
        let mut figures = self.figures;
        figures.slowest_ms = round3(figures.slowest_ms);
        let Some(drive) = drive else { return figures };
        SmrFigures {
            cache_bytes: drive.cache.bytes(),
            cached_bytes: drive.cached_sectors.bytes(),
            streamed_bytes: drive.streamed_sectors.bytes(),
            bands_cleaned: drive.band_clean.len() as u64,
            band_clean_s: spread(&drive.band_clean),
            cleaning_s: round3(drive.cleaning.as_secs_f64()),
            dirty_bands: drive.dirty_bands,
            log_swaps: drive.log_swaps,
            table_bytes_max: drive.table_bytes_max,
            ..figures
        }
    }
}

fn p99_ms(latencies_ns: &mut [u64]) -> f64 {
    latencies_ns.sort_unstable();
    percentile(latencies_ns, 99).as_secs_f64() * 1e3
}

fn spread(times: &[Nanos]) -> Spread {
    let mut sorted: Vec<u64> = times.iter().map(|time| time.0).collect();
    sorted.sort_unstable();
    let at = |percent| round3(percentile(&sorted, percent).as_secs_f64());
    Spread { p5: at(5), p50: at(50), p95: at(95) }
}

/// The percentile `percent` of sorted times; 0 if there are none.
fn percentile(sorted_ns: &[u64], percent: usize) -> Nanos {
    let index = (sorted_ns.len() * percent).div_ceil(100).saturating_sub(1);
    Nanos(sorted_ns.get(index).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn seconds_in_which_a_request_waited_and_none_ended_are_counted() {
        let mut meter = SmrMeter::new(Time(0), Nanos::from_secs(20));
        meter.ended(Time(SECOND / 2), 1 << 20, Nanos(SECOND / 4), || None);
        // The request waited from second 2.5 on: no request ended in seconds 3 and 4.
        meter.ended(Time(5 * SECOND + 1), 3 << 20, Nanos(5 * SECOND / 2 + 1), || None);
        // Nothing waited in seconds 6 to 8.
        meter.ended(Time(9 * SECOND), 1 << 20, Nanos(1_000_000), || None);
        let figures = meter.finish(Time(10 * SECOND), None, None);
        assert_eq!(figures.seconds_without_progress, 2);
        assert_eq!(figures.seconds, (0..10).collect::<Vec<_>>());
        let mut mib = vec![0.0; 10];
        (mib[0], mib[5], mib[9]) = (1.0, 3.0, 1.0);
        assert_eq!(figures.mib_s, mib);
        assert_eq!((figures.p99_ms[0], figures.p99_ms[5], figures.p99_ms[1]), (250.0, 2500.0, 0.0));
        assert_eq!(figures.slowest_ms, 2500.0);
    }

    #[test]
    fn what_waits_at_the_end_counts() {
        let mut meter = SmrMeter::new(Time(0), Nanos::from_secs(20));
        meter.ended(Time(SECOND / 2), 1 << 20, Nanos(SECOND / 4), || None);
        let figures = meter.finish(Time(20 * SECOND), Some(Time(SECOND / 2)), None);
        assert_eq!((figures.seconds_without_progress, figures.slowest_ms), (19, 19_500.0));
    }

    #[test]
    fn a_long_run_has_points_of_several_seconds() {
        let mut meter = SmrMeter::new(Time(0), Nanos::from_secs(3 * POINTS_MAX));
        for second in 0..3 * POINTS_MAX {
            meter.ended(Time(second * SECOND), 1 << 20, Nanos(1_000_000), || None);
        }
        let figures = meter.finish(Time(3 * POINTS_MAX * SECOND), None, None);
        assert_eq!(figures.seconds.len() as u64, POINTS_MAX);
        assert!(figures.mib_s.iter().all(|mib| *mib == 1.0));
    }

    #[test]
    fn the_spread_is_that_of_the_sorted_times() {
        let times: Vec<Nanos> = (1..=100).rev().map(Nanos::from_secs).collect();
        assert_eq!(spread(&times), Spread { p5: 5.0, p50: 50.0, p95: 95.0 });
        assert_eq!(spread(&[]), Spread::default());
    }
}
