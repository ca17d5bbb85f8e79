//! Clients of the export: they draw operations, carry them out and report them to the medium.

pub(crate) mod file;
pub(crate) mod nbd;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use manylogs_block::{Payload, Rng, SECTOR_BYTES};

use crate::medium::{Event, Told};
use crate::units::{CELL_BYTES, Units};

/// Largest number of requests of one client in flight.
const BATCH_MAX: u64 = 6;
/// Half of all other requests fall into this number of sectors after the cells, so that they
/// overlap.
const HOT: u64 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    /// Tag of the first unit.
    Write(u64),
    Zero,
    Trim,
    Flush,
}

/// A request, with its place in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) what: What,
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// Whether the request must be durable when it is answered.
    pub(crate) fua: bool,
}

/// A connection to the export.
pub(crate) trait Target: Send {
    /// The smallest part that can be written, in bytes.
    fn grain(&self) -> u64;

    /// Carries the operations out, in parallel if it can, and reports each to `teller`.
    ///
    /// # Errors
    /// The first operation that fails. An operation without a reported answer stays in flight for
    /// the oracle.
    fn perform(&mut self, batch: &[Operation], teller: &Teller) -> io::Result<()>;
}

/// Reports a client's operations to the medium.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    pub(crate) events: Sender<Event>,
    pub(crate) units: Units,
    pub(crate) ids: Arc<AtomicU64>,
    pub(crate) tags: Arc<AtomicU64>,
}

impl Teller {
    pub(crate) fn new(events: Sender<Event>, units: Units) -> Self {
        Self { events, units, ids: Arc::default(), tags: Arc::new(AtomicU64::new(1)) }
    }

    /// Reports an operation before it is sent.
    pub(crate) fn begins(&self, operation: &Operation) -> u64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let Operation { what, at, len, .. } = *operation;
        let told = match what {
            What::Flush => Told::Flush,
            What::Read => Told::Read { extent: self.units.extent(at, len) },
            What::Write(first) => {
                let extent = self.units.extent(at, len);
                Told::Write { extent, content: Payload::tags(first, extent.len) }
            }
            What::Zero => self.zeroes(at, len),
            // A discard gives up the whole sectors within it. Parts of sectors keep their content.
            What::Trim => {
                let start = at.next_multiple_of(SECTOR_BYTES);
                let end = (at + len) / SECTOR_BYTES * SECTOR_BYTES;
                self.zeroes(start, end.saturating_sub(start))
            }
        };
        let _ = self.events.send(Event::Client { id, told });
        id
    }

    fn zeroes(&self, at: u64, len: u64) -> Told {
        let extent = self.units.extent(at, len);
        Told::Write { extent, content: Payload::zeroes(extent.len) }
    }

    /// Reports the answer to an operation.
    pub(crate) fn ended(&self, id: u64, operation: &Operation, read: &[u8]) {
        let told = match operation.what {
            What::Flush => Told::Flushed,
            What::Read => Told::WasRead { content: self.units.payload(operation.at, read) },
            What::Write(_) | What::Zero | What::Trim => Told::Written { durable: operation.fua },
        };
        let _ = self.events.send(Event::Client { id, told });
    }

    /// Content that an operation writes.
    pub(crate) fn bytes(&self, operation: &Operation) -> Vec<u8> {
        match operation.what {
            What::Write(first) => self.units.bytes(operation.at, operation.len, first),
            _ => Vec::new(),
        }
    }
}

/// Asks `target` for `count` operations drawn from `rng`.
///
/// # Errors
/// The first operation that fails.
pub(crate) fn run(
    target: &mut dyn Target,
    teller: &Teller,
    rng: &mut Rng,
    count: u64,
) -> io::Result<()> {
    let mut left = count;
    while left > 0 {
        let size = (1 + rng.below(BATCH_MAX)).min(left);
        left -= size;
        let batch: Vec<Operation> = (0..size).map(|_| draw(rng, teller, target.grain())).collect();
        target.perform(&batch, teller)?;
    }
    Ok(())
}

/// Reads the whole export.
///
/// # Errors
/// The first read that fails.
pub(crate) fn read_all(target: &mut dyn Target, teller: &Teller) -> io::Result<()> {
    let end = teller.units.capacity().bytes();
    let step = 64 * SECTOR_BYTES;
    for at in (0..end).step_by(manylogs_block::to_usize(step)) {
        let len = step.min(end - at);
        target.perform(&[Operation { what: What::Read, at, len, fua: false }], teller)?;
    }
    Ok(())
}

fn draw(rng: &mut Rng, teller: &Teller, grain: u64) -> Operation {
    let kind = rng.below(100);
    let in_cells = rng.one_in(3);
    let sectors = match rng.below(8) {
        0..5 => 1 + rng.below(12),
        5..7 => 12 + rng.below(30),
        _ => 40 + rng.below(60),
    };
    let (at, len) = if in_cells {
        let grain = grain.max(CELL_BYTES);
        let end = teller.units.cell_bytes_end();
        // Draws the first sectors most often, so that several requests change parts of one sector.
        let end = if rng.one_in(2) { 4 * SECTOR_BYTES } else { end };
        let at = rng.below(end / grain) * grain;
        let most = (end - at).min(4 * SECTOR_BYTES) / grain;
        (at, (1 + rng.below(most)) * grain)
    } else {
        let first = teller.units.cell_bytes_end() / SECTOR_BYTES;
        let capacity = teller.units.capacity().0;
        let room = capacity - first - sectors;
        let start = if rng.one_in(2) { rng.below(HOT) } else { rng.below(room) };
        ((first + start) * SECTOR_BYTES, sectors * SECTOR_BYTES)
    };
    let what = match kind {
        0..60 => What::Write(teller.tags.fetch_add(1 + len / CELL_BYTES, Ordering::Relaxed)),
        60..72 => What::Read,
        72..82 => What::Flush,
        82..90 => What::Zero,
        _ => What::Trim,
    };
    Operation { what, at, len, fua: rng.one_in(3) }
}
