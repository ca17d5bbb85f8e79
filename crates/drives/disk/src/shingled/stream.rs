//! Detects streams: runs of writes, each beginning where the last one ended, that are long enough.
//!
//! A detected stream stays one until it is on the medium, even when another has begun.

use manylogs_block::{Extent, Nanos, Time};

/// Number of streams that are remembered. More do not fit the buffer.
const STREAMS: usize = 32;

/// Looks at every write as it arrives.
#[derive(Clone, Debug)]
pub(super) struct StreamDetector {
    /// Number of sectors that make a stream.
    least: u64,
    /// How long writes that may become a stream are kept in the buffer.
    hold: Nanos,
    /// The last run of writes, each beginning where the one before ended.
    run: Extent,
    extended: Time,
    /// The addresses of the last streams, in order of address. No two overlap.
    streams: Vec<KnownStream>,
    /// Number that the next stream gets.
    next: u64,
}

/// A detected stream.
#[derive(Clone, Copy, Debug)]
struct KnownStream {
    extent: Extent,
    /// Streams that were found later have higher numbers.
    number: u64,
}

impl StreamDetector {
    /// `least` sectors make a stream; with zero there are no streams.
    pub(super) const fn new(least: u64, hold: Nanos) -> Self {
        let run = Extent::new(0, 0);
        Self { least, hold, run, extended: Time(0), streams: Vec::new(), next: 0 }
    }

    pub(super) fn arrives(&mut self, now: Time, write: Extent) {
        let goes_on = write.start == self.run.end();
        if goes_on {
            self.run.len.0 += write.len.0;
        } else {
            self.run = write;
        }
        self.extended = now;
        let was_stream = goes_on && self.run.len.0 >= self.least + write.len.0;
        self.forget(write);
        if self.least == 0 || self.run.len.0 < self.least {
            return;
        }
        if was_stream && self.lengthen(write) {
            return;
        }
        self.forget(self.run);
        self.remember(self.run);
    }

    /// Extends the stream that ends where `write` begins. Returns whether there is one.
    fn lengthen(&mut self, write: Extent) -> bool {
        let behind = self.streams.partition_point(|stream| stream.extent.start < write.start);
        let before = behind.checked_sub(1).map(|index| &mut self.streams[index].extent);
        match before.filter(|extent| extent.end() == write.start) {
            Some(extent) => {
                extent.len.0 += write.len.0;
                true
            }
            None => false,
        }
    }

    fn remember(&mut self, extent: Extent) {
        let index = self.streams.partition_point(|stream| stream.extent.start < extent.start);
        self.streams.insert(index, KnownStream { extent, number: self.next });
        self.next += 1;
        if self.streams.len() > STREAMS {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.number);
            if let Some((index, _)) = oldest {
                self.streams.remove(index);
            }
        }
    }

    /// Removes `extent` from the known streams, because it was written again.
    fn forget(&mut self, extent: Extent) {
        let first = self.streams.partition_point(|stream| stream.extent.end() <= extent.start);
        let behind = self.streams.partition_point(|stream| stream.extent.start < extent.end());
        if first >= behind {
            return;
        }
        let parts: Vec<KnownStream> = self.streams[first..behind]
            .iter()
            .flat_map(|stream| {
                let before = Extent::between(stream.extent.start, extent.start);
                let after = Extent::between(extent.end(), stream.extent.end());
                [before, after].map(|extent| KnownStream { extent, ..*stream })
            })
            .filter(|part| !part.extent.is_empty())
            .collect();
        self.streams.splice(first..behind, parts);
    }

    /// The addresses of the last streams, in order of address.
    pub(super) fn streams(&self) -> impl Iterator<Item = Extent> + '_ {
        self.streams.iter().map(|stream| stream.extent)
    }

    /// Whether all of `extent` belongs to one stream.
    pub(super) fn holds(&self, extent: Extent) -> bool {
        let behind = self.streams.partition_point(|stream| stream.extent.start <= extent.start);
        let before = behind.checked_sub(1).map(|index| self.streams[index].extent);
        before.is_some_and(|stream| extent.end() <= stream.end())
    }

    /// Writes that may become a stream, and the time until which they are held for that.
    pub(super) fn candidate(&self) -> Option<(Extent, Time)> {
        let may = self.least > 0 && self.run.len.0 < self.least;
        may.then(|| (self.run, self.extended + self.hold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector() -> StreamDetector {
        StreamDetector::new(100, Nanos::from_millis(50))
    }

    fn streams(detector: &StreamDetector) -> Vec<(u64, u64)> {
        detector.streams().map(|extent| (extent.start.0, extent.end().0)).collect()
    }

    #[test]
    fn streams_are_remembered_while_others_begin() {
        let mut detector = detector();
        let mut write = |start, len| {
            detector.arrives(Time(0), Extent::new(start, len));
            streams(&detector)
        };
        assert_eq!(write(0, 60), []);
        assert_eq!(write(60, 60), [(0, 120)]);
        assert_eq!(write(5000, 60), [(0, 120)], "another begins");
        assert_eq!(write(5060, 60), [(0, 120), (5000, 5120)]);
        assert_eq!(write(5120, 10), [(0, 120), (5000, 5130)], "it goes on");
        assert_eq!(write(40, 8), [(0, 40), (48, 120), (5000, 5130)], "a write in between");
        assert_eq!(write(120, 8), [(0, 40), (48, 120), (5000, 5130)], "it does not go on there");
        assert!(detector.holds(Extent::new(5000, 130)));
        for other in [Extent::new(40, 8), Extent::new(36, 8), Extent::new(5130, 8)] {
            assert!(!detector.holds(other), "{other}");
        }
    }

    #[test]
    fn only_the_last_streams_are_remembered() {
        let mut detector = detector();
        for i in (0..100u64).rev() {
            detector.arrives(Time(0), Extent::new(1000 * i, 100));
        }
        let left = streams(&detector);
        assert_eq!((left.len(), left[0], left[31]), (STREAMS, (0, 100), (31_000, 31_100)));
    }
}
