//! Estimates service times from the device's past answers.

use manylogs_block::{Nanos, Sectors, Time};

/// First estimate, before the first observation: 100 MB/s.
const SECTOR_NS: f64 = 5_120.0;
/// Each observation moves the estimate by this share of itself.
const STEP: f64 = 1.0 / 16.0;
/// The device answers several requests at once if it has read ahead. So only a span of at least
/// this length says how long a sector takes.
const COUNTS: Nanos = Nanos::from_millis(1);
/// Bounds of the estimate: 10 GB/s to 1 MB/s.
const SECTOR_NS_BOUNDS: (f64, f64) = (51.2, 512_000.0);

/// Time that a sector of a stream takes: the value below which a third of the observations lie. A
/// mean would include the seek back from each record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCost {
    sector_ns: f64,
    /// Sectors and busy time since the last observation that counted.
    seen: (Sectors, Nanos),
}

impl Default for StreamCost {
    fn default() -> Self {
        Self { sector_ns: SECTOR_NS, seen: (Sectors(0), Nanos(0)) }
    }
}

impl StreamCost {
    /// Records that the device was busy with `len` sectors of a stream for `span`.
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

    /// Expected service time of `len` sectors.
    pub(crate) fn of(self, len: Sectors) -> Nanos {
        Nanos::from_secs_f64(len.0 as f64 * self.sector_ns / 1e9)
    }
}

/// Time of the device's last answer. A request was in service since the answer before, or since its
/// arrival if that was later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    last_end: Time,
}

impl Clock {
    /// Service time of a request that arrived at `arrived` and is answered now.
    pub(crate) fn end(&mut self, arrived: Time, now: Time) -> Nanos {
        let begin = self.last_end.max(arrived);
        self.last_end = now;
        now.since(begin)
    }
}

/// Number of small reads that may be in the device: the largest that keeps a record's latency at
/// the target.
///
/// More reads let the device order them better, but make a record wait longer. The right number
/// depends on the drive. So the number follows the latency of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallDepth {
    depth: f64,
    /// Moving mean of the latency of records.
    mean_ns: f64,
}

/// Weight of one record in the moving mean, as a divisor.
const RECENT: f64 = 16.0;
const DEPTH_BOUNDS: (f64, f64) = (2.0, 64.0);

impl Default for SmallDepth {
    fn default() -> Self {
        Self { depth: 8.0, mean_ns: 0.0 }
    }
}

impl SmallDepth {
    /// Records the latency of a record that found small reads in the device.
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
