//! What requests cost the device, learned from what it did.

use manylogs_block::{Nanos, Sectors, Time};

/// A first guess, until the device has shown what it does: 100 MB/s.
const SECTOR_NS: f64 = 5_120.0;
/// An estimate moves by this share of itself with each observation.
const STEP: f64 = 1.0 / 16.0;
/// What the device has read ahead it answers at once, several requests together: only what took
/// this long in all says what a sector takes.
const COUNTS: Nanos = Nanos::from_millis(1);
/// Bounds of what is believed: 10 GB/s to 1 MB/s.
const SECTOR_NS_BOUNDS: (f64, f64) = (51.2, 512_000.0);

/// The time that a sector of a stream takes: what a third of the observations stay below. A mean
/// would count the way back from every record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCost {
    sector_ns: f64,
    /// What the device did since the last observation that counted, and for how long.
    seen: (Sectors, Nanos),
}

impl Default for StreamCost {
    fn default() -> Self {
        Self { sector_ns: SECTOR_NS, seen: (Sectors(0), Nanos(0)) }
    }
}

impl StreamCost {
    /// The device was busy with `len` sectors of a stream for `span`.
    pub(crate) fn observe(&mut self, len: Sectors, span: Nanos) {
        self.seen = (self.seen.0 + len, self.seen.1 + span);
        if self.seen.1 < COUNTS {
            return;
        }
        let (len, span) = std::mem::take(&mut self.seen);
        let seen = span.0 as f64 / len.0.max(1) as f64;
        let step = if seen > self.sector_ns { 1.0 + STEP / 2.0 } else { 1.0 - STEP };
        let (least, most) = SECTOR_NS_BOUNDS;
        self.sector_ns = (self.sector_ns * step).clamp(least, most);
    }

    /// How long the device will be busy with `len` sectors.
    pub(crate) fn of(self, len: Sectors) -> Nanos {
        Nanos::from_secs_f64(len.0 as f64 * self.sector_ns / 1e9)
    }
}

/// When the device was last seen to finish something: what it did between two ends took the time
/// between them, or from the arrival of the later one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    last_end: Time,
}

impl Clock {
    /// How long the device was busy with what arrived at `arrived` and ends now.
    pub(crate) fn end(&mut self, arrived: Time, now: Time) -> Nanos {
        let begin = self.last_end.max(arrived);
        self.last_end = now;
        now.since(begin)
    }
}

/// How many small reads may lie in the device: as many as keep a record's wait at the target.
///
/// The device orders them better the more there are, and a record waits the longer: which number
/// is right depends on the drive, so it follows what records see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallDepth {
    depth: f64,
    /// Mean of what records took lately.
    mean_ns: f64,
}

/// A record in so many counts in the mean.
const RECENT: f64 = 16.0;
const DEPTH_BOUNDS: (f64, f64) = (2.0, 64.0);

impl Default for SmallDepth {
    fn default() -> Self {
        Self { depth: 8.0, mean_ns: 0.0 }
    }
}

impl SmallDepth {
    /// A record that found small reads in the device took `took`.
    pub(crate) fn observe(&mut self, took: Nanos, target: Nanos) {
        if self.mean_ns == 0.0 {
            self.mean_ns = target.0 as f64;
        }
        self.mean_ns += (took.0 as f64 - self.mean_ns) / RECENT;
        let ratio = target.0 as f64 / self.mean_ns.max(1.0);
        let step = ((ratio - 1.0) / RECENT).clamp(-0.05, 0.05);
        self.depth = (self.depth * (1.0 + step)).clamp(DEPTH_BOUNDS.0, DEPTH_BOUNDS.1);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "2 to 64")]
    pub(crate) fn depth(self) -> usize {
        self.depth as usize
    }
}
