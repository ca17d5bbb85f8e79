//! Records the latency and class of each request of a replay.

use manylogs_block::{Extent, Nanos, Time};

use super::requests::{Requests, TooMany};
use super::served::Served;
use crate::stats::{Latencies, Series, StreamMeter, StreamMoved, Total, WINDOWS, Window};

/// Classes of requests whose latencies are recorded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyClass {
    /// A read.
    Read,
    /// A small write (or write-zeroes) that is durable when answered.
    DurableSmall,
    /// A larger write of the same kind.
    DurableLarge,
    /// A small write that may be answered from memory. Its latency says nothing about durability.
    CachedSmall,
    /// A larger write of the same kind.
    CachedLarge,
    /// A flush together with the writes that it covers.
    Sync,
    /// A discard, or a flush that covers nothing: left out of the latencies.
    Other,
}

impl LatencyClass {
    /// Classes in which the application waits until its data is durable.
    pub const DURABLE: [Self; 3] = [Self::DurableSmall, Self::DurableLarge, Self::Sync];
    /// Classes of writes that may be answered from memory.
    pub const CACHED: [Self; 2] = [Self::CachedSmall, Self::CachedLarge];
    /// Classes of reads and writes, as the paper counts them.
    pub const MOVES_DATA: [Self; 5] =
        [Self::Read, Self::DurableSmall, Self::DurableLarge, Self::CachedSmall, Self::CachedLarge];
    const COUNT: usize = 7;
    /// Names in tables, each once.
    pub const NAMES: [&'static str; 5] = ["read", "durable-write", "cached-write", "sync", "other"];

    /// Name of the class in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.name_index() as usize]
    }

    /// Index of the name in [`NAMES`](Self::NAMES).
    pub(super) const fn name_index(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::DurableSmall | Self::DurableLarge => 1,
            Self::CachedSmall | Self::CachedLarge => 2,
            Self::Sync => 3,
            Self::Other => 4,
        }
    }
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Class of the request.
    pub class: LatencyClass,
    /// Arrival time since the start of the replay.
    pub arrived: Time,
    /// Latency.
    pub latency: Nanos,
    /// Number of the request in the order in which requests were handed to the device, from 0.
    pub request: u64,
    /// The sectors that it is for; none for a flush.
    pub extent: Extent,
    /// Where it was served, if requests are kept.
    pub served: Served,
    /// Index of the part of the replay in which the request arrived, below [`WINDOWS`].
    pub window: usize,
}

/// Counters and distributions of one replay or of several replays with different seeds.
#[derive(Clone, Debug)]
pub struct Recorder {
    classes: [Latencies; LatencyClass::COUNT],
    durable: Series,
    reads: Series,
    /// Measurements of each part of the replay, for each seed.
    windows: Vec<Vec<Window>>,
    pub(super) streams: StreamMeter,
    requests: Option<Requests>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Recorder {
    /// An empty recorder. It keeps each request if `keep` is set.
    #[must_use]
    pub fn new(keep_requests: bool) -> Self {
        Self {
            requests: keep_requests.then(Requests::default),
            classes: [(); LatencyClass::COUNT].map(|()| Latencies::default()),
            durable: Series::default(),
            reads: Series::default(),
            windows: vec![vec![Window::default(); WINDOWS]],
            streams: StreamMeter::default(),
        }
    }

    /// Records the answer to a request.
    ///
    /// # Errors
    /// If requests are kept and their number does not fit; the answer is counted nevertheless.
    pub fn record(&mut self, answered: &Answered) -> Result<(), TooMany> {
        let kept = self.requests.as_mut().map_or(Ok(()), |requests| requests.push(answered));
        let Answered { class, arrived, latency, window, .. } = *answered;
        self.classes[class as usize].record(latency);
        let window = &mut self.windows[0][window];
        if class == LatencyClass::Read {
            self.reads.record(arrived, latency.0);
            window.reads.record(latency);
        } else if LatencyClass::DURABLE.contains(&class) {
            self.durable.record(arrived, latency.0);
            window.durable.record(latency);
        }
        kept
    }

    /// Ends the recording. Later answers are ignored.
    pub(super) fn finish(&mut self, end: Time) {
        let streams = std::mem::take(&mut self.streams).finish(end);
        for (window, moved) in self.windows[0].iter_mut().zip(streams) {
            window.stream = moved;
        }
    }

    /// Adds the measurements of a replay with another seed. Series over time stay those of the
    /// first seed.
    pub fn absorb(&mut self, other: Self) {
        for (own, other) in self.classes.iter_mut().zip(&other.classes) {
            own.add(other);
        }
        self.windows.extend(other.windows);
    }

    /// Distribution of the latencies of `classes` together.
    #[must_use]
    pub fn latencies(&self, classes: &[LatencyClass]) -> Latencies {
        let mut sum = Latencies::default();
        classes.iter().for_each(|&class| sum.add(&self.classes[class as usize]));
        sum
    }

    /// Durable latencies over the time of arrival.
    #[must_use]
    pub const fn durable_over_time(&self) -> &Series {
        &self.durable
    }

    /// Latencies of reads over the time of arrival.
    #[must_use]
    pub const fn reads_over_time(&self) -> &Series {
        &self.reads
    }

    /// All requests in the order of their answers, if the recorder keeps them. They are handed out
    /// once, as they may take more memory than all else.
    #[must_use]
    pub fn take_requests(&mut self) -> Requests {
        self.requests.take().unwrap_or_default()
    }

    /// Measurements of each part of the replay, for each seed.
    #[must_use]
    pub fn windows(&self) -> &[Vec<Window>] {
        &self.windows
    }

    /// Throughput of streams in MB/s, counted over the time during which they had requests in
    /// flight. `None` if there was no stream.
    #[must_use]
    pub fn stream_mb_s(&self) -> Option<f64> {
        self.streamed().mb_s()
    }

    /// Data moved by streams, in all parts and for all seeds.
    #[must_use]
    pub fn streamed(&self) -> StreamMoved {
        let mut all = StreamMoved::default();
        self.windows.iter().flatten().for_each(|window| all.add(window.stream));
        all
    }

    /// A recorder with means alone, including those of each part. `windows` has the parts of a
    /// replay for each seed.
    pub(crate) fn of_means(durable: Total, reads: Total, windows: Vec<Vec<Window>>) -> Self {
        let mut all = Self { windows, ..Self::default() };
        all.classes[LatencyClass::DurableSmall as usize] = Latencies::of_total(durable);
        all.classes[LatencyClass::Read as usize] = Latencies::of_total(reads);
        all
    }
}
