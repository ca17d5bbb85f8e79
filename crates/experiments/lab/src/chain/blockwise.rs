//! A log over RAID-0 that is cleaned block by block, as the paper's baseline: what its application
//! gets while it is cleaned.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Hint, IoError, Payload, Request, Rng, Sectors};
use manylogs_sim::{NodeId, Sim};

use super::case::{ChainCase, Fill};
use super::clients::BLOCK;
use super::measure::{ChainFailure, ChainMeasured};
use super::subject::raid_0;
use crate::stats::round3;

/// Length of a write of the log.
const WRITE: Sectors = Sectors(256);
/// Requests of the log in flight for each drive: reads of cleaning and writes.
const DEPTH: usize = 4;

/// A log that reads the live blocks of its oldest part one by one, in the order of their addresses,
/// and appends them and what the application writes.
struct Blockwise {
    array: Rc<dyn BlockDevice>,
    /// The next block to look at, and the end of the log.
    head: Cell<u64>,
    tail: Cell<u64>,
    /// Sectors of the array.
    len: u64,
    /// Of a hundred blocks so many are live.
    live: u64,
    rng: RefCell<Rng>,
    /// Blocks that were read and not appended yet, and room for blocks of the application: each
    /// dead block that was passed is one.
    moved: Cell<u64>,
    room: Cell<u64>,
    application: Cell<u64>,
    over: Cell<bool>,
    running: Cell<usize>,
    failed: RefCell<Option<IoError>>,
}

impl Blockwise {
    async fn work(&self) -> Result<(), IoError> {
        let a_write = WRITE.0 / BLOCK.0;
        while !self.over.get() {
            if self.moved.get() >= a_write {
                self.moved.set(self.moved.get() - a_write);
                self.append().await?;
            } else if self.room.get() >= a_write {
                self.room.set(self.room.get() - a_write);
                self.append().await?;
                self.application.set(self.application.get() + WRITE.bytes());
            } else {
                let extent = self.next_live();
                self.array.submit(Request::Read { extent }).await?;
                self.moved.set(self.moved.get() + 1);
            }
        }
        Ok(())
    }

    /// The next live block. The dead ones before it give room.
    fn next_live(&self) -> Extent {
        loop {
            let at = self.head.get();
            self.head.set((at + BLOCK.0) % self.len);
            if self.rng.borrow_mut().below(100) < self.live {
                return Extent::new(at, BLOCK.0);
            }
            self.room.set(self.room.get() + 1);
        }
    }

    async fn append(&self) -> Result<(), IoError> {
        let at = self.tail.get();
        self.tail.set((at + WRITE.0) % self.len);
        let (extent, payload) = (Extent::new(at, WRITE.0), Payload::zeroes(WRITE));
        let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
        self.array.submit(write).await.map(drop)
    }
}

/// Measures the log on the drives of `case`.
///
/// # Errors
/// If a drive fails.
pub(super) fn measure_blockwise(
    case: &ChainCase,
    sim: &Sim,
    (host, node): (NodeId, NodeId),
) -> Result<ChainMeasured, ChainFailure> {
    let array = raid_0(case, &sim.handle(host), &sim.handle(node));
    let len = array.capabilities().capacity.0 / WRITE.0 * WRITE.0;
    let trimmed = if let Fill::Trimmed(percent) = case.fill { percent.min(100) } else { 50 };
    let log = Rc::new(Blockwise {
        array,
        head: Cell::new(0),
        // The first half of the array is full, and the log goes on behind it.
        tail: Cell::new(len / 2 / WRITE.0 * WRITE.0),
        len,
        live: 100 - u64::from(trimmed),
        rng: RefCell::new(Rng::new(case.seed ^ 0xb10c)),
        moved: Cell::default(),
        room: Cell::default(),
        application: Cell::default(),
        over: Cell::default(),
        running: Cell::new(DEPTH * case.links),
        failed: RefCell::default(),
    });
    for _ in 0..DEPTH * case.links {
        let log = Rc::clone(&log);
        sim.handle(host).spawn(async move {
            if let Err(error) = log.work().await {
                log.failed.borrow_mut().get_or_insert(error);
            }
            log.running.set(log.running.get() - 1);
        });
    }
    let clock = sim.handle(host);
    let (ended, until) = (Rc::clone(&log), sim.now() + case.span);
    sim.handle(host).spawn(async move {
        clock.sleep_until(until).await;
        ended.over.set(true);
    });
    sim.run_until(|| log.running.get() == 0);
    if let Some(error) = log.failed.borrow_mut().take() {
        return Err(error.into());
    }
    let written = log.application.get() as f64 / case.span.as_secs_f64();
    Ok(ChainMeasured { write_mb_s: round3(written / 1e6), ..ChainMeasured::default() })
}
