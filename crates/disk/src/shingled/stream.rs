//! Which writes are a stream: one that goes on where the last one ended, for long enough.

use manylogs_block::{Extent, Nanos, Time};

/// Looks at writes as they arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamDetector {
    /// Sectors that make a stream.
    least: u64,
    /// How long writes that may become a stream are kept in the buffer.
    hold: Nanos,
    /// The writes that followed each other last.
    run: Extent,
    extended: Time,
    /// The last run that was long enough.
    stream: Extent,
}

impl StreamDetector {
    /// `least` sectors make a stream; a detector of none never sees one.
    pub(super) const fn new(least: u64, hold: Nanos) -> Self {
        let nothing = Extent::new(0, 0);
        Self { least, hold, run: nothing, extended: Time(0), stream: nothing }
    }

    pub(super) fn arrives(&mut self, now: Time, write: Extent) {
        if write.start == self.run.end() {
            self.run.len.0 += write.len.0;
        } else {
            self.run = write;
        }
        self.extended = now;
        if self.least > 0 && self.run.len.0 >= self.least {
            self.stream = self.run;
        }
    }

    /// The addresses of the last stream.
    pub(super) const fn stream(&self) -> Extent {
        self.stream
    }

    pub(super) fn holds(&self, extent: Extent) -> bool {
        self.stream.start <= extent.start && extent.end() <= self.stream.end()
    }

    /// Writes that may become a stream, and until when they are kept for that.
    pub(super) fn candidate(&self) -> Option<(Extent, Time)> {
        let may = self.least > 0 && self.run.len.0 < self.least;
        may.then(|| (self.run, self.extended + self.hold))
    }
}
