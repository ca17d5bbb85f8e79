//! What is noted of each request of a replay.

use manylogs_block::{Nanos, Time};

use crate::stats::{Latencies, Series, StreamMeter, WINDOWS, Window};

/// The kinds of request whose latencies are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A read.
    Read,
    /// A small write (or write-zeroes) that is durable when answered.
    DurableSmall,
    /// A larger one.
    DurableLarge,
    /// A small write that may be answered from memory: it says nothing of durability.
    CachedSmall,
    /// A larger one.
    CachedLarge,
    /// A flush together with the writes that it covers.
    Sync,
    /// A discard, or a flush that covers nothing: left out of the latencies.
    Other,
}

impl Class {
    /// What the application waits for until its data is durable.
    pub const DURABLE: [Self; 3] = [Self::DurableSmall, Self::DurableLarge, Self::Sync];
    /// Writes that may be answered from memory.
    pub const CACHED: [Self; 2] = [Self::CachedSmall, Self::CachedLarge];
    /// Reads and writes, as the paper counts them.
    pub const MOVES_DATA: [Self; 5] =
        [Self::Read, Self::DurableSmall, Self::DurableLarge, Self::CachedSmall, Self::CachedLarge];
    const COUNT: usize = 7;

    /// In tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::DurableSmall | Self::DurableLarge => "durable-write",
            Self::CachedSmall | Self::CachedLarge => "cached-write",
            Self::Sync => "sync",
            Self::Other => "other",
        }
    }
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Its kind.
    pub class: Class,
    /// When it arrived, from the replay's start.
    pub arrived: Time,
    /// How long it took.
    pub latency: Nanos,
    /// The part of the replay in which it arrived, below [`WINDOWS`].
    pub window: usize,
}

/// Counts and distributions of one replay, or of several from different seeds.
#[derive(Clone, Debug)]
pub struct Recorder {
    classes: [Latencies; Class::COUNT],
    durable: Series,
    reads: Series,
    /// For each seed, each part of the replay.
    windows: Vec<Vec<Window>>,
    pub(super) streams: StreamMeter,
    requests: Option<Vec<Answered>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Recorder {
    /// An empty record, which keeps each request if asked to.
    #[must_use]
    pub fn new(keep_requests: bool) -> Self {
        Self {
            requests: keep_requests.then(Vec::new),
            classes: [(); Class::COUNT].map(|()| Latencies::default()),
            durable: Series::default(),
            reads: Series::default(),
            windows: vec![vec![Window::default(); WINDOWS]],
            streams: StreamMeter::default(),
        }
    }

    /// Notes that a request was answered.
    pub fn record(&mut self, answered: &Answered) {
        if let Some(requests) = &mut self.requests {
            requests.push(*answered);
        }
        let Answered { class, arrived, latency, window } = *answered;
        self.classes[class as usize].record(latency);
        let window = &mut self.windows[0][window];
        if class == Class::Read {
            self.reads.record(arrived, latency.0);
            window.reads.record(latency);
        } else if Class::DURABLE.contains(&class) {
            self.durable.record(arrived, latency.0);
            window.durable.record(latency);
        }
    }

    /// The replay is over: nothing is recorded any more.
    pub(super) fn finish(&mut self, end: Time) {
        let streams = std::mem::take(&mut self.streams).finish(end);
        for (window, moved) in self.windows[0].iter_mut().zip(streams) {
            window.stream = moved;
        }
    }

    /// Adds what a replay from another seed found. Courses over time stay those of the first.
    pub fn absorb(&mut self, other: Self) {
        for (own, other) in self.classes.iter_mut().zip(&other.classes) {
            own.add(other);
        }
        self.windows.extend(other.windows);
    }

    /// The latencies of `classes` together.
    #[must_use]
    pub fn latencies(&self, classes: &[Class]) -> Latencies {
        let mut sum = Latencies::default();
        classes.iter().for_each(|&class| sum.add(&self.classes[class as usize]));
        sum
    }

    /// Durable latencies by time of arrival.
    #[must_use]
    pub const fn durable_over_time(&self) -> &Series {
        &self.durable
    }

    /// Latencies of reads by time of arrival.
    #[must_use]
    pub const fn reads_over_time(&self) -> &Series {
        &self.reads
    }

    /// Each request in the order of answers, if they are kept.
    #[must_use]
    pub fn requests(&self) -> &[Answered] {
        self.requests.as_deref().unwrap_or_default()
    }

    /// For each seed, what each part of the replay measured.
    #[must_use]
    pub fn windows(&self) -> &[Vec<Window>] {
        &self.windows
    }

    /// Streams' megabytes a second of the time in which they had requests under way; `None` if
    /// there was no stream.
    #[must_use]
    pub fn stream_mb_s(&self) -> Option<f64> {
        let all = self.windows.iter().flatten();
        let (bytes, ns) =
            all.fold((0, 0), |sum, w| (sum.0 + w.stream.bytes, sum.1 + w.stream.busy_ns));
        (bytes > 0 && ns > 0).then(|| bytes as f64 * 1e3 / ns as f64)
    }
}
