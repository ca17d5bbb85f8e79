//! What is noted of each request of a replay.

use manylogs_block::{Nanos, Sectors, Time};

use crate::stats::{Latencies, Series};

/// The kinds of request whose latencies are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A read.
    Read,
    /// A write (or write-zeroes) up to the limit of small ones.
    SmallWrite,
    /// A larger write.
    LargeWrite,
    /// A flush or a discard: they move no data and are left out of the latencies.
    Other,
}

/// Counts and distributions of one replay.
#[derive(Clone, Debug)]
pub struct Recorder {
    small_write_max: Sectors,
    classes: [Latencies; 4],
    reads: Series,
    writes: Series,
}

impl Recorder {
    /// An empty record; writes up to `small_write_max` count as small.
    #[must_use]
    pub fn new(small_write_max: Sectors) -> Self {
        Self {
            small_write_max,
            classes: [(); 4].map(|()| Latencies::default()),
            reads: Series::default(),
            writes: Series::default(),
        }
    }

    /// The class of a write of `len`.
    #[must_use]
    pub fn class_of_write(&self, len: Sectors) -> Class {
        if len <= self.small_write_max { Class::SmallWrite } else { Class::LargeWrite }
    }

    /// Notes that a request that arrived at `arrived` took `latency`.
    pub fn record(&mut self, class: Class, arrived: Time, latency: Nanos) {
        self.classes[class as usize].record(latency);
        match class {
            Class::Read => self.reads.record(arrived, latency.0),
            Class::SmallWrite | Class::LargeWrite => self.writes.record(arrived, latency.0),
            Class::Other => {}
        }
    }

    /// The latencies of `classes` together.
    #[must_use]
    pub fn latencies(&self, classes: &[Class]) -> Latencies {
        let mut sum = Latencies::default();
        classes.iter().for_each(|&class| sum.add(&self.classes[class as usize]));
        sum
    }

    /// Latencies of reads by time of arrival.
    #[must_use]
    pub const fn reads_over_time(&self) -> &Series {
        &self.reads
    }

    /// Latencies of writes by time of arrival.
    #[must_use]
    pub const fn writes_over_time(&self) -> &Series {
        &self.writes
    }
}
