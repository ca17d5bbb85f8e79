//! Generated loads, for tests and for a first look when no trace is at hand.

use manylogs_block::{Extent, Rng, Time};
use manylogs_workload::{SourceCounts, TraceError, TraceOp, TraceRequest, TraceSource};

const READ_SECTORS: u64 = 512;
const READ_GAP_NS: u64 = 4_000_000;
const WRITE_SECTORS: u64 = 8;
const WRITE_GAP_NS: u64 = 20_000_000;
/// The load stays within the first 16 GB.
const SPACE_SECTORS: u64 = 32_000_000;

/// The paper's opening example: a sequential reader disturbed by small random durable writes.
#[derive(Debug)]
pub struct Synthetic {
    rng: Rng,
    left: u64,
    read_at: u64,
    read_sector: u64,
    write_at: u64,
}

impl Synthetic {
    /// Makes `requests` requests: sequential 256 KiB reads at 64 MiB/s, and random 4 KiB writes at
    /// a mean of 50 a second.
    #[must_use]
    pub const fn reader_and_writers(seed: u64, requests: u64) -> Self {
        let rng = Rng::new(seed);
        Self { rng, left: requests, read_at: 0, read_sector: 0, write_at: READ_GAP_NS / 2 }
    }

    const fn read(&mut self) -> TraceRequest {
        let extent = Extent::new(self.read_sector, READ_SECTORS);
        self.read_sector = (self.read_sector + READ_SECTORS) % SPACE_SECTORS;
        let at = Time(self.read_at);
        self.read_at += READ_GAP_NS;
        TraceRequest { at, op: TraceOp::Read, extent, fua: false, device: 0 }
    }

    const fn write(&mut self) -> TraceRequest {
        let slot = self.rng.below(SPACE_SECTORS / WRITE_SECTORS);
        let extent = Extent::new(slot * WRITE_SECTORS, WRITE_SECTORS);
        let at = Time(self.write_at);
        self.write_at += 1 + self.rng.below(2 * WRITE_GAP_NS);
        TraceRequest { at, op: TraceOp::Write, extent, fua: true, device: 0 }
    }
}

impl TraceSource for Synthetic {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        self.left = self.left.checked_sub(1)?;
        Some(Ok(if self.read_at <= self.write_at { self.read() } else { self.write() }))
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
}

/// The longest burst, as a power of two.
const BURST_BITS: u64 = 5;
const BURST_GAP_NS: u64 = 500_000;
const PAUSE_NS: u64 = 200_000_000;
/// Pages of 4 KiB in use, and how many of them take half of the writes.
const PAGES: u64 = 200_000;
const HOT_PAGES: u64 = 20_000;
const PAGE_SECTORS: u64 = 8;

/// The load of a phone: bursts of small durable writes, most of them of blocks written before, and
/// few reads. Nearly every request goes to a log.
#[derive(Debug)]
pub struct Phone {
    rng: Rng,
    left: u64,
    at: u64,
    /// Requests left in this burst.
    burst: u64,
    /// The sector after the last write.
    page: u64,
}

impl Phone {
    /// `requests` requests: 90 % writes, five of six of 4 KiB, some of 512 KiB.
    #[must_use]
    pub const fn new(seed: u64, requests: u64) -> Self {
        Self { rng: Rng::new(seed), left: requests, at: 0, burst: 0, page: 0 }
    }

    const fn arrival(&mut self) -> Time {
        if self.burst == 0 {
            let longest = 1 << self.rng.below(BURST_BITS + 1);
            self.burst = 1 + self.rng.below(longest);
            self.at += self.rng.below(2 * PAUSE_NS);
        }
        self.burst -= 1;
        self.at += self.rng.below(2 * BURST_GAP_NS);
        Time(self.at)
    }

    const fn write(&mut self) -> Extent {
        let pages = match self.rng.below(60) {
            0 => 128,
            1..10 => 2 + self.rng.below(7),
            _ => 1,
        };
        let page = match self.rng.below(8) {
            0 => self.page,
            1..5 => self.rng.below(HOT_PAGES),
            _ => self.rng.below(PAGES),
        };
        self.page = (page + pages) % PAGES;
        Extent::new(page * PAGE_SECTORS, pages * PAGE_SECTORS)
    }
}

impl TraceSource for Phone {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        self.left = self.left.checked_sub(1)?;
        let at = self.arrival();
        let (op, extent) = match self.rng.below(10) {
            0 => (TraceOp::Read, Extent::new(self.rng.below(PAGES) * PAGE_SECTORS, 32)),
            _ => (TraceOp::Write, self.write()),
        };
        Some(Ok(TraceRequest { at, op, extent, fua: true, device: 0 }))
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
}
