//! Statistics of a trace: counts, sizes, footprint, overwrites and busiest windows.

mod bitmap;
mod sizes;

use std::collections::BTreeMap;

use manylogs_block::{Nanos, SECTOR_BYTES, Time};

use crate::error::TraceError;
use crate::request::{SourceCounts, TraceOp, TraceRequest, TraceSource};
use crate::transform::busiest::{BusiestWindows, Maxima};
use bitmap::BlockSet;
use sizes::Sizes;
pub use sizes::{SizeQuantiles, SizeStats};

/// Footprint and overwrites are counted in blocks of this size.
const BLOCK_BYTES: u64 = 4096;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;
/// A discard or zeroing of a whole drive must not cost a step for each block: the footprint
/// counts reads and writes only.
const FIVE_MINUTES: Nanos = Nanos::from_secs(300);
const ONE_HOUR: Nanos = Nanos::from_secs(3600);
/// Most devices listed; further ones are summed under the last.
const MAX_DEVICES_LISTED: usize = 4096;

/// Requests of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct DeviceStats {
    /// Requests of all kinds.
    pub requests: u64,
    /// The highest address touched, in bytes.
    pub end_bytes: u64,
}

/// Statistics of a whole trace.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TraceStats {
    /// Requests of all kinds.
    pub requests: u64,
    /// Seconds from the first request to the last.
    pub span_s: f64,
    /// Share of reads among reads and writes, in per cent.
    pub read_percent: f64,
    /// Sizes of reads.
    pub reads: SizeStats,
    /// Sizes of writes.
    pub writes: SizeStats,
    /// Discards.
    pub discards: u64,
    /// Bytes discarded, as often as discarded.
    pub discarded_bytes: u64,
    /// Write-zeroes requests.
    pub write_zeroes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes with force unit access.
    pub fua_writes: u64,
    /// Bytes in 4 KiB blocks written at least once.
    pub written_footprint_bytes: u64,
    /// Bytes in 4 KiB blocks read or written at least once.
    pub touched_footprint_bytes: u64,
    /// Share of block-writes (4 KiB) that hit a block written before in the trace, in per cent.
    pub overwrite_percent: f64,
    /// The end of the highest extent, in bytes.
    pub end_bytes: u64,
    /// Requests by device number.
    pub devices: BTreeMap<u32, DeviceStats>,
    /// Busiest windows of five minutes.
    pub busiest_5min: BusiestWindows,
    /// Busiest windows of an hour.
    pub busiest_1h: BusiestWindows,
    /// Counts of the records that the source dropped or changed.
    pub source: SourceCounts,
}

impl TraceStats {
    /// Reads `source` to its end.
    ///
    /// Memory grows with the footprint (one bit for each 4 KiB block touched, in pages of 16 MiB
    /// of address space) and with the requests in an hour, never with the trace's length.
    ///
    /// # Errors
    ///
    /// The first error of the source.
    pub fn collect(source: &mut impl TraceSource) -> Result<Self, TraceError> {
        let mut collector = Collector::default();
        while let Some(request) = source.next_request() {
            collector.add(&request?);
        }
        Ok(collector.finish(source.counts()))
    }
}

struct Collector {
    requests: u64,
    last: Time,
    sizes: [Sizes; 2],
    by_op: [u64; TraceOp::ALL.len()],
    discarded_bytes: u64,
    fua_writes: u64,
    written: BlockSet,
    touched: BlockSet,
    block_writes: u64,
    overwrites: u64,
    end_bytes: u64,
    devices: BTreeMap<u32, DeviceStats>,
    five_minutes: Maxima,
    hour: Maxima,
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            requests: 0,
            last: Time(0),
            sizes: [Sizes::default(), Sizes::default()],
            by_op: [0; TraceOp::ALL.len()],
            discarded_bytes: 0,
            fua_writes: 0,
            written: BlockSet::default(),
            touched: BlockSet::default(),
            block_writes: 0,
            overwrites: 0,
            end_bytes: 0,
            devices: BTreeMap::new(),
            five_minutes: Maxima::new(FIVE_MINUTES),
            hour: Maxima::new(ONE_HOUR),
        }
    }
}

impl Collector {
    fn add(&mut self, request: &TraceRequest) {
        self.requests += 1;
        self.last = request.at;
        self.by_op[request.op as usize] += 1;
        let end_bytes = request.extent.end().0 * SECTOR_BYTES;
        self.end_bytes = self.end_bytes.max(end_bytes);
        if self.devices.len() < MAX_DEVICES_LISTED || self.devices.contains_key(&request.device) {
            let device = self.devices.entry(request.device).or_default();
            device.requests += 1;
            device.end_bytes = device.end_bytes.max(end_bytes);
        }
        self.five_minutes.add(request);
        self.hour.add(request);
        match request.op {
            TraceOp::Read => self.add_read(request),
            TraceOp::Write => self.add_write(request),
            TraceOp::Discard => {
                let bytes = request.extent.len.bytes();
                self.discarded_bytes = self.discarded_bytes.saturating_add(bytes);
            }
            TraceOp::WriteZeroes | TraceOp::Flush => {}
        }
    }

    fn add_read(&mut self, request: &TraceRequest) {
        self.sizes[0].add(request.extent.len);
        let (first, last) = blocks(request);
        self.touched.insert(request.device, first, last);
    }

    fn add_write(&mut self, request: &TraceRequest) {
        self.sizes[1].add(request.extent.len);
        self.fua_writes += u64::from(request.fua);
        let (first, last) = blocks(request);
        self.touched.insert(request.device, first, last);
        let blocks = last - first + 1;
        self.block_writes += blocks;
        self.overwrites += blocks - self.written.insert(request.device, first, last);
    }

    fn finish(self, source: SourceCounts) -> TraceStats {
        let count = |op: TraceOp| self.by_op[op as usize];
        let span = self.last.since(Time(0));
        let moved = count(TraceOp::Read) + count(TraceOp::Write);
        let [reads, writes] = self.sizes;
        TraceStats {
            requests: self.requests,
            span_s: span.as_secs_f64(),
            read_percent: percent(count(TraceOp::Read), moved),
            reads: reads.finish(),
            writes: writes.finish(),
            discards: count(TraceOp::Discard),
            discarded_bytes: self.discarded_bytes,
            write_zeroes: count(TraceOp::WriteZeroes),
            flushes: count(TraceOp::Flush),
            fua_writes: self.fua_writes,
            written_footprint_bytes: self.written.len() * BLOCK_BYTES,
            touched_footprint_bytes: self.touched.len() * BLOCK_BYTES,
            overwrite_percent: percent(self.overwrites, self.block_writes),
            end_bytes: self.end_bytes,
            devices: self.devices,
            busiest_5min: self.five_minutes.finish(),
            busiest_1h: self.hour.finish(),
            source,
        }
    }
}

/// The first and last 4 KiB block of a request that is not empty.
fn blocks(request: &TraceRequest) -> (u64, u64) {
    let first = request.extent.start.0 / BLOCK_SECTORS;
    (first, (request.extent.end().0.saturating_sub(1) / BLOCK_SECTORS).max(first))
}

/// `part` of `whole` in per cent; 0 if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
