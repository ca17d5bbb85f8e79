//! Measurements of each part of a replay, from which a bootstrap draws parts.

use manylogs_block::{Nanos, Time};
use serde::{Deserialize, Serialize};

use super::latency::Total;

/// A replay is divided into this number of parts, each with the same number of requests.
pub const WINDOWS: usize = 32;

/// Latencies below this have buckets of their own, in units of [`UNIT_NS`].
const LINEAR: u64 = 128;
const LINEAR_BITS: u32 = 7;
const UNIT_NS: u64 = 256;

/// One part of a replay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// Latencies until data was durable.
    pub durable: Sample,
    /// Latencies of reads.
    pub reads: Sample,
    /// Throughput of streams.
    pub stream: StreamMoved,
}

/// Latencies: number, sum, and a histogram within 1 %.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    count: u64,
    sum_ns: u128,
    buckets: Vec<u32>,
}

impl Sample {
    /// Counts one request.
    pub fn record(&mut self, latency: Nanos) {
        let bucket = bucket_of(latency);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_ns += u128::from(latency.0);
    }

    /// Number of counted requests.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> f64 {
        self.sum_ns as f64
    }

    /// Number and sum.
    #[must_use]
    pub const fn total(&self) -> Total {
        Total { count: self.count, sum_ns: self.sum_ns }
    }

    /// A sample without a distribution.
    #[must_use]
    pub const fn of_total(total: Total) -> Self {
        Self { count: total.count, sum_ns: total.sum_ns, buckets: Vec::new() }
    }

    /// Non-empty buckets in order, with their counts.
    pub fn filled(&self) -> impl Iterator<Item = (usize, u32)> {
        self.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }
}

fn bucket_of(latency: Nanos) -> usize {
    let units = latency.0 / UNIT_NS;
    if units < LINEAR {
        return manylogs_block::to_usize(units);
    }
    let shift = units.ilog2() - LINEAR_BITS;
    let fraction = (units >> shift) - LINEAR;
    manylogs_block::to_usize(LINEAR * u64::from(shift + 1) + fraction)
}

/// The middle of a bucket, in nanoseconds.
#[must_use]
pub fn bucket_ns(bucket: usize) -> f64 {
    let (octave, fraction) = (bucket as u64 / LINEAR, bucket as u64 % LINEAR);
    let units = match octave {
        0 => fraction as f64 + 0.5,
        _ => ((LINEAR + fraction) as f64 + 0.5) * ((1_u64 << (octave - 1)) as f64),
    };
    units * UNIT_NS as f64
}

/// Throughput of streams in one part of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMoved {
    /// Bytes.
    pub bytes: u64,
    /// Time during which requests of streams were in flight.
    pub busy_ns: u64,
}

impl StreamMoved {
    /// Adds the data of another part.
    pub const fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.busy_ns += other.busy_ns;
    }

    /// Megabytes a second; `None` if there was no stream.
    #[must_use]
    pub fn mb_s(self) -> Option<f64> {
        let Self { bytes, busy_ns } = self;
        (bytes > 0 && busy_ns > 0).then(|| bytes as f64 * 1e3 / busy_ns as f64)
    }
}

/// Counts the bytes of streams and the time during which their requests are in flight.
#[derive(Clone, Debug)]
pub struct StreamMeter {
    moved: [StreamMoved; WINDOWS],
    under_way: u32,
    since: Time,
    /// Index of the part of the replay to which time counts.
    window: usize,
}

impl Default for StreamMeter {
    fn default() -> Self {
        let moved = [StreamMoved::default(); WINDOWS];
        Self { moved, under_way: 0, since: Time(0), window: 0 }
    }
}

impl StreamMeter {
    /// A request of a stream begins, in part `window` of the replay.
    pub fn begin(&mut self, now: Time, window: usize) {
        self.pass(now);
        self.window = window;
        self.under_way += 1;
    }

    /// A request of a stream ends.
    pub fn end(&mut self, now: Time, window: usize, bytes: u64) {
        self.pass(now);
        self.under_way = self.under_way.saturating_sub(1);
        self.moved[window].bytes += bytes;
    }

    fn pass(&mut self, now: Time) {
        if self.under_way > 0 {
            self.moved[self.window].busy_ns += now.since(self.since).0;
        }
        self.since = now;
    }

    /// Throughput of streams in each part.
    #[must_use]
    pub fn finish(mut self, now: Time) -> [StreamMoved; WINDOWS] {
        self.pass(now);
        self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_within_a_per_cent() {
        let mut last = 0;
        for exponent in 10..47 {
            for step in 0..8 {
                let ns = (1_u64 << exponent) + (1_u64 << exponent) / 8 * step;
                let bucket = bucket_of(Nanos(ns));
                assert!(bucket >= last, "{ns}");
                last = bucket;
                if ns > UNIT_NS * LINEAR {
                    assert!((bucket_ns(bucket) / ns as f64 - 1.0).abs() < 0.01, "{ns}");
                }
            }
        }
    }

    #[test]
    fn stream_time_is_what_passes_while_requests_are_under_way() {
        let mut meter = StreamMeter::default();
        meter.begin(Time(10), 0);
        meter.begin(Time(15), 0);
        meter.end(Time(20), 0, 100);
        meter.end(Time(30), 0, 100);
        meter.begin(Time(1000), 1);
        meter.end(Time(1005), 1, 50);
        let moved = meter.finish(Time(2000));
        assert_eq!(moved[0], StreamMoved { bytes: 200, busy_ns: 20 });
        assert_eq!(moved[1], StreamMoved { bytes: 50, busy_ns: 5 });
    }
}
