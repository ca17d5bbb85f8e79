//! Speed-ups with confidence intervals.

use manylogs_block::Rng;
use serde::Serialize;

use super::window::{Sample, StreamMoved, Window, bucket_ns};

/// Draws of the bootstrap.
const DRAWS: usize = 400;
/// A measure with fewer requests gets no ratio.
pub const REQUESTS_MIN: u64 = 100;
/// A measure whose requests lie in fewer parts of the replay gets no ratio.
pub const WINDOWS_MIN: usize = 8;

/// A ratio with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The measured ratio.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Position of an interval relative to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The whole interval is above 1.
    Faster,
    /// The interval contains 1.
    NoDifference,
    /// The whole interval is below 1.
    Slower,
}

impl Interval {
    /// The position in words.
    #[must_use]
    pub fn finding(&self) -> Finding {
        match self {
            Self { low, .. } if *low > 1.0 => Finding::Faster,
            Self { high, .. } if *high < 1.0 => Finding::Slower,
            _ => Finding::NoDifference,
        }
    }
}

/// Speed-up over the plain drive: the plain drive's latency divided by this one's, or this
/// throughput divided by the plain drive's. Above 1 is faster. `None` where too few requests were
/// measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Gain {
    /// By the mean time until data is durable: the speed-up that headlines name.
    pub durable_mean: Option<Interval>,
    /// By its median.
    pub durable_p50: Option<Interval>,
    /// By its 90th percentile.
    pub durable_p90: Option<Interval>,
    /// By its 99th percentile.
    pub durable_p99: Option<Interval>,
    /// By the mean latency of reads.
    pub reads_mean: Option<Interval>,
    /// By their median.
    pub reads_p50: Option<Interval>,
    /// By their 90th percentile.
    pub reads_p90: Option<Interval>,
    /// By their 99th percentile.
    pub reads_p99: Option<Interval>,
    /// By megabytes a second of streams.
    pub stream_mb_s: Option<Interval>,
}

/// Compares replays of the same requests: for each seed, each part of the replay.
///
/// The intervals come from a bootstrap in two stages, because all seeds repeat the same load: parts
/// of the replay are drawn, and then seeds for each drawn part. `seed` decides the draws.
#[must_use]
pub fn compare(base: &[Vec<Window>], other: &[Vec<Window>], seed: u64) -> Gain {
    let draws = Draws::new(base.len().min(other.len()), seed);
    let durable = draws.latency(base, other, |window| &window.durable);
    let reads = draws.latency(base, other, |window| &window.reads);
    let [durable_mean, durable_p50, durable_p90, durable_p99] = durable;
    let [reads_mean, reads_p50, reads_p90, reads_p99] = reads;
    Gain {
        durable_mean,
        durable_p50,
        durable_p90,
        durable_p99,
        reads_mean,
        reads_p50,
        reads_p90,
        reads_p99,
        stream_mb_s: draws.streams(base, other),
    }
}

/// Weight of each part of each seed's replay: first 1 for all, then as drawn.
struct Draws {
    weights: Vec<Vec<u32>>,
}

/// Mean, and the percentiles 50, 90, 99.
type Figures = [f64; 4];
const SHARES: [f64; 3] = [0.50, 0.90, 0.99];

impl Draws {
    fn new(seeds: usize, seed: u64) -> Self {
        let (seeds, windows) = (seeds.max(1), super::WINDOWS);
        let mut rng = Rng::new(seed ^ 0x6761_696e);
        let mut weights = vec![vec![1; seeds * windows]];
        for _ in 0..DRAWS {
            let mut drawn = vec![0; seeds * windows];
            for _ in 0..windows {
                let window = manylogs_block::to_usize(rng.below(windows as u64));
                for _ in 0..seeds {
                    let seed = manylogs_block::to_usize(rng.below(seeds as u64));
                    drawn[seed * windows + window] += 1;
                }
            }
            weights.push(drawn);
        }
        Self { weights }
    }

    fn latency(
        &self,
        base: &[Vec<Window>],
        other: &[Vec<Window>],
        of: impl Fn(&Window) -> &Sample,
    ) -> [Option<Interval>; 4] {
        let sides = [base, other].map(|runs| Sparse::of(runs, &of));
        if sides.iter().any(|side| !side.says_enough()) {
            return [None; 4];
        }
        let figures = |weights: &Vec<u32>| -> Option<[Figures; 2]> {
            Some([sides[0].figures(weights)?, sides[1].figures(weights)?])
        };
        let drawn: Vec<[Figures; 2]> = self.weights.iter().filter_map(figures).collect();
        std::array::from_fn(|i| interval(drawn.iter().map(|[base, other]| base[i] / other[i])))
    }

    fn streams(&self, base: &[Vec<Window>], other: &[Vec<Window>]) -> Option<Interval> {
        let sides = [base, other]
            .map(|runs| runs.iter().flatten().map(|window| window.stream).collect::<Vec<_>>());
        let busy = |side: &Vec<StreamMoved>| side.iter().filter(|moved| moved.bytes > 0).count();
        if sides.iter().any(|side| busy(side) < WINDOWS_MIN) {
            return None;
        }
        let rate = |side: &[StreamMoved], weights: &[u32]| {
            let pairs = side.iter().zip(weights);
            let (bytes, ns) = pairs.fold((0.0, 0.0), |sum, (moved, &weight)| {
                let weight = f64::from(weight);
                (sum.0 + moved.bytes as f64 * weight, sum.1 + moved.busy_ns as f64 * weight)
            });
            bytes / ns
        };
        interval(self.weights.iter().map(|drawn| rate(&sides[1], drawn) / rate(&sides[0], drawn)))
    }
}

/// The first of `ratios`, with the 95 % interval of the others.
fn interval(ratios: impl Iterator<Item = f64>) -> Option<Interval> {
    let mut ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let estimate = *ratios.first()?;
    ratios.sort_by(f64::total_cmp);
    let at = |per_mille: usize| ratios[(ratios.len() - 1) * per_mille / 1000];
    let (low, high) = (at(25).min(estimate), at(975).max(estimate));
    Some(Interval { estimate: four(estimate), low: four(low), high: four(high) })
}

/// Rounds to four decimals.
fn four(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The samples of all parts, reduced to their non-empty buckets.
struct Sparse {
    parts: Vec<Part>,
    buckets: usize,
}

struct Part {
    count: u64,
    sum_ns: f64,
    filled: Vec<(usize, u32)>,
}

impl Sparse {
    fn of(runs: &[Vec<Window>], of: &impl Fn(&Window) -> &Sample) -> Self {
        let part = |sample: &Sample| Part {
            count: sample.count(),
            sum_ns: sample.sum_ns(),
            filled: sample.filled().collect(),
        };
        let parts: Vec<Part> = runs.iter().flatten().map(|window| part(of(window))).collect();
        let last = parts.iter().filter_map(|part| Some(part.filled.last()?.0)).max();
        Self { parts, buckets: last.map_or(0, |last| last + 1) }
    }

    fn says_enough(&self) -> bool {
        let count: u64 = self.parts.iter().map(|part| part.count).sum();
        let filled = self.parts.iter().filter(|part| part.count > 0).count();
        let seeds = (self.parts.len() / super::WINDOWS).max(1);
        count >= REQUESTS_MIN * seeds as u64 && filled >= WINDOWS_MIN * seeds
    }

    fn figures(&self, weights: &[u32]) -> Option<Figures> {
        let mut counts = vec![0_u64; self.buckets];
        let (mut count, mut sum) = (0, 0.0);
        for (part, &weight) in self.parts.iter().zip(weights).filter(|(_, weight)| **weight > 0) {
            count += part.count * u64::from(weight);
            sum += part.sum_ns * f64::from(weight);
            for &(bucket, filled) in &part.filled {
                counts[bucket] += u64::from(filled) * u64::from(weight);
            }
        }
        if count == 0 {
            return None;
        }
        let mut figures = [sum / count as f64, 0.0, 0.0, 0.0];
        let (mut seen, mut next) = (0, 0);
        for (bucket, filled) in counts.iter().enumerate() {
            seen += filled;
            while next < SHARES.len() && seen as f64 >= SHARES[next] * count as f64 {
                next += 1;
                figures[next] = bucket_ns(bucket);
            }
        }
        Some(figures)
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Nanos;

    use super::*;

    /// Parts whose latencies lie up to `spread` around their mean, times `factor`.
    fn run(seed: u64, factor: f64, spread: u64) -> Vec<Window> {
        let mut rng = Rng::new(seed);
        (0..super::super::WINDOWS)
            .map(|_| {
                let mut window = Window::default();
                let level = 1_000_000 + rng.below(spread + 1) * 100_000;
                for _ in 0..50 {
                    let ns = (level + rng.below(1_000_000)) as f64 * factor;
                    window.durable.record(Nanos::from_secs_f64(ns / 1e9));
                }
                window
            })
            .collect()
    }

    #[test]
    fn the_same_is_no_difference() {
        let (base, other) =
            ([run(1, 1.0, 20), run(2, 1.0, 20)], [run(3, 1.0, 20), run(4, 1.0, 20)]);
        let mean = compare(&base, &other, 1).durable_mean.unwrap();
        assert_eq!(mean.finding(), Finding::NoDifference, "{mean:?}");
        assert!(mean.low < mean.estimate && mean.estimate < mean.high);
    }

    #[test]
    fn twice_as_fast_is_seen_at_every_figure() {
        let gain = compare(&[run(1, 1.0, 0)], &[run(2, 0.5, 0)], 1);
        for found in [gain.durable_mean, gain.durable_p50, gain.durable_p90, gain.durable_p99] {
            let found = found.unwrap();
            assert_eq!(found.finding(), Finding::Faster);
            assert!((found.estimate - 2.0).abs() < 0.1 && found.low > 1.8, "{found:?}");
        }
        assert_eq!(gain.reads_mean, None);
        assert_eq!(
            compare(&[run(2, 0.5, 0)], &[run(1, 1.0, 0)], 1).durable_mean.unwrap().finding(),
            Finding::Slower
        );
    }

    #[test]
    fn few_requests_say_nothing() {
        let mut few = vec![Window::default(); super::super::WINDOWS];
        few[0].durable.record(Nanos(1000));
        assert_eq!(compare(&[few.clone()], &[few], 1), Gain::default());
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let (base, other) = ([run(1, 1.0, 9)], [run(2, 0.9, 9)]);
        assert_eq!(compare(&base, &other, 7), compare(&base, &other, 7));
    }
}
