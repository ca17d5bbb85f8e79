//! A small generated load, for tests and for a first look when no trace is at hand.

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
    /// `requests` requests: 256 KiB sequential reads at 64 MiB/s and 4 KiB random writes at a
    /// mean of 50 a second.
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
