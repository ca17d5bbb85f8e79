//! One request of a trace, and the stream that yields them.

use manylogs_block::{Extent, Time};

use crate::error::TraceError;

/// What a request asks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TraceOp {
    /// Read the extent.
    Read = 0,
    /// Write the extent.
    Write = 1,
    /// The extent's content is no longer needed (discard, trim, unmap).
    Discard = 2,
    /// Make the extent read as zeroes.
    WriteZeroes = 3,
    /// Make every write acknowledged so far durable; has no extent.
    Flush = 4,
}

impl TraceOp {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::Discard, Self::WriteZeroes, Self::Flush];

    /// The operation with this number; `None` from 5 on.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the request moves data to or from the host: a read or a write.
    #[must_use]
    pub const fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it arrived: nanoseconds since the first request of the trace.
    pub at: Time,
    /// The operation.
    pub op: TraceOp,
    /// The sectors concerned; empty for a flush.
    pub extent: Extent,
    /// Whether a write must be durable before it is acknowledged (force unit access).
    pub fua: bool,
    /// The device, ASU, volume or tenant number; each has an address space of its own
    /// unless the trace was laid out or mixed into one.
    pub device: u32,
}

impl TraceRequest {
    /// A flush of `device` at `at`.
    #[must_use]
    pub fn flush(at: Time, device: u32) -> Self {
        Self { at, op: TraceOp::Flush, extent: Extent::default(), fua: false, device }
    }
}

/// Counts of the records that a source dropped or changed, to be reported with every result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourceCounts {
    /// Malformed records passed over (only with `skip_bad`).
    pub skipped: u64,
    /// Records earlier than the reorder buffer could mend: moved to the time of their predecessor.
    pub late: u64,
    /// Records dropped as the logging echo of an earlier one (mobile traces).
    pub echoes: u64,
    /// Reads and writes of no bytes, dropped.
    pub empty: u64,
    /// Events that the recorder of the trace says it lost.
    pub lost: u64,
}

impl SourceCounts {
    /// The sum of both, counter by counter.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            skipped: self.skipped + other.skipped,
            late: self.late + other.late,
            echoes: self.echoes + other.echoes,
            empty: self.empty + other.empty,
            lost: self.lost + other.lost,
        }
    }
}

/// A stream of requests in the order of their arrival.
pub trait TraceSource {
    /// The next request; `None` at the end, and always after an error.
    ///
    /// An error names the file, the line or byte offset, and what was expected there.
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>>;

    /// Counts of the records dropped or changed so far.
    fn counts(&self) -> SourceCounts;

    /// Malformed records passed over so far.
    fn skipped(&self) -> u64 {
        self.counts().skipped
    }

    /// The fraction of the input consumed so far, 0 to 1; `None` when it is not known.
    fn progress(&self) -> Option<f64> {
        None
    }
}

/// A source of any kind, as [`crate::open`] returns it.
pub type BoxedSource = Box<dyn TraceSource + Send>;

impl<S: TraceSource + ?Sized> TraceSource for Box<S> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        (**self).next_request()
    }

    fn counts(&self) -> SourceCounts {
        (**self).counts()
    }

    fn progress(&self) -> Option<f64> {
        (**self).progress()
    }
}
