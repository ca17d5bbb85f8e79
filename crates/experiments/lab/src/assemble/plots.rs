//! Data of the report's plots: distributions, series over time and positions of the head.

use manylogs_block::{Nanos, SECTOR_BYTES};

use crate::replay::{HeadPoint, Outcome, Recorder};
use crate::results::{Cdf, HeadSample, OverTime};
use crate::stats::{Latencies, Series, round3};

impl HeadPoint {
    /// The letter for [`crate::results::HeadSample::kind`].
    #[must_use]
    pub const fn letter(&self) -> char {
        match (self.write, self.log) {
            (false, false) => 'r',
            (false, true) => 'R',
            (true, false) => 'w',
            (true, true) => 'W',
        }
    }
}

pub(super) fn cdf(latencies: &Latencies) -> Cdf {
    if latencies.count() == 0 {
        return Cdf::default();
    }
    let (latency_us, fraction) = latencies.cdf().into_iter().unzip();
    Cdf { latency_us, fraction }
}

pub(super) fn over_time(recorder: &Recorder) -> OverTime {
    let (reads, durable) = (recorder.reads_over_time(), recorder.durable_over_time());
    // The two series may have bins of different width. The wider width serves both.
    let width = reads.width().max(durable.width());
    let columns = [reads, durable].map(|series| columns(series, width));
    let bins = columns.iter().map(|(mean, _)| mean.len()).max().unwrap_or(0);
    let [(mut read_mean_us, mut read_max_us), (mut durable_mean_us, mut durable_max_us)] = columns;
    for column in [&mut read_mean_us, &mut read_max_us, &mut durable_mean_us, &mut durable_max_us] {
        column.resize(bins, None);
    }
    OverTime {
        seconds: (0..bins).map(|bin| round3(bin as f64 * width.as_secs_f64())).collect(),
        read_mean_us,
        read_max_us,
        durable_mean_us,
        durable_max_us,
    }
}

type Column = Vec<Option<f64>>;

/// Mean and maximum in microseconds, in bins of `width`.
fn columns(series: &Series, width: Nanos) -> (Column, Column) {
    let merged = manylogs_block::to_usize((width.0 / series.width().0).max(1));
    let sum = |bins: &[crate::stats::SeriesBin]| {
        let count: u64 = bins.iter().map(|bin| bin.count).sum();
        let total: u64 = bins.iter().map(|bin| bin.sum).sum();
        let max = bins.iter().map(|bin| bin.max).max().unwrap_or(0);
        (count > 0).then(|| (round3(total as f64 / count as f64 / 1e3), round3(max as f64 / 1e3)))
    };
    let pairs = series.bins().chunks(merged).map(sum);
    pairs.map(|pair| (pair.map(|p| p.0), pair.map(|p| p.1))).unzip()
}

pub(super) fn head(outcome: &Outcome) -> HeadSample {
    let points = outcome.head.items();
    HeadSample {
        seconds: points.iter().map(|point| round3(point.at.as_secs_f64())).collect(),
        gigabytes: points
            .iter()
            .map(|point| round3((point.lba.0 * SECTOR_BYTES) as f64 / 1e6) / 1e3)
            .collect(),
        kind: points.iter().map(|point| point.letter()).collect(),
    }
}
