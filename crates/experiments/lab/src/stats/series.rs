//! A quantity over time in a bounded number of bins.

use manylogs_block::{Nanos, Time};

/// Bins are merged in pairs when a run would need more than this.
const BINS_MAX: usize = 512;
const FIRST_WIDTH: Nanos = Nanos(1_000_000);

/// Values of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesBin {
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest.
    pub max: u64,
}

/// Values over time; the bins double in width as the run gets longer.
#[derive(Clone, Debug)]
pub struct Series {
    width: Nanos,
    bins: Vec<SeriesBin>,
}

impl Default for Series {
    fn default() -> Self {
        Self { width: FIRST_WIDTH, bins: Vec::new() }
    }
}

impl Series {
    /// Adds `value` at `at`.
    pub fn record(&mut self, at: Time, value: u64) {
        let mut index = manylogs_block::to_usize(at.0 / self.width.0);
        while index >= BINS_MAX {
            self.halve();
            index /= 2;
        }
        if index >= self.bins.len() {
            self.bins.resize(index + 1, SeriesBin::default());
        }
        self.bins[index].add(SeriesBin { count: 1, sum: value, max: value });
    }

    /// The width of a bin.
    #[must_use]
    pub const fn width(&self) -> Nanos {
        self.width
    }

    /// The bins from time zero on.
    #[must_use]
    pub fn bins(&self) -> &[SeriesBin] {
        &self.bins
    }

    fn halve(&mut self) {
        let pairs = self.bins.chunks(2).map(|pair| {
            let mut merged = pair[0];
            pair.get(1).into_iter().for_each(|&other| merged.add(other));
            merged
        });
        self.bins = pairs.collect();
        self.width = Nanos(self.width.0 * 2);
    }
}

impl SeriesBin {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_the_bins_double() {
        let mut series = Series::default();
        for second in 0..1000 {
            series.record(Time(second * 1_000_000_000), second);
        }
        assert!(series.bins().len() <= BINS_MAX);
        assert_eq!(series.bins().iter().map(|bin| bin.count).sum::<u64>(), 1000);
        assert_eq!(series.bins().iter().map(|bin| bin.sum).sum::<u64>(), 499_500);
        assert_eq!(series.bins().iter().map(|bin| bin.max).max(), Some(999));
    }
}
