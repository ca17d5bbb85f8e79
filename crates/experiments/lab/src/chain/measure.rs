//! Runs a case in a simulated world of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, SECTOR_BYTES,
    Sectors, Time,
};
use manylogs_disk::device::ModelledDrive;
use manylogs_gecko::{Chain, ChainError, ChainFigures, ChainOptions, ChainSettings};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use serde::Serialize;
use thiserror::Error;

use super::bandwidth::sequential_bytes_s;
use super::case::{ChainCase, Durability, Fill, Pattern};
use crate::stats::{Latencies, round3};

/// Size of a request of clients.
const BLOCK: Sectors = Sectors(8);
/// Requests that fill a chain are longer where only their place matters.
const FILL: Sectors = Sectors(512);
/// Load before the measurement begins.
const WARM_UP: Nanos = Nanos::from_secs(1);
const FLUSH_EVERY: Nanos = Nanos::from_secs(1);

/// Why a case has no figures.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChainFailure {
    /// The drives make no such chain.
    #[error("on {drive}: {source}")]
    Chain {
        /// The drive profile's name.
        drive: String,
        /// The reason.
        source: ChainError,
    },
    /// A request failed.
    #[error("a request to the chain failed: {0}")]
    Io(#[from] IoError),
    /// Requests are in flight, and no event is left that could answer them.
    #[error("the chain stopped answering; this is a defect: {0}")]
    Stalled(String),
}

/// Figures of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChainMeasured {
    /// What clients wrote.
    pub write_mb_s: f64,
    /// What one drive writes sequentially where the tail was: *B*.
    pub sequential_mb_s: f64,
    /// The first as a share of the second.
    pub share: f64,
    /// What readers read.
    pub read_mb_s: f64,
    /// Median latency of a write.
    pub write_p50_ms: f64,
    /// 99th percentile of the latency of a write.
    pub write_p99_ms: f64,
    /// The longest latency of a write.
    pub write_max_ms: f64,
    /// Bytes in records at the tail and in the body for a client's byte.
    pub appended_per_byte: f64,
    /// How often the tail went to another drive.
    pub hops: u64,
    /// Memory of the chain's table for each exported block of 4 KiB.
    pub table_bytes_per_block: f64,
}

/// What the clients share.
struct Load {
    chain: Chain,
    runtime: Handle,
    rng: RefCell<Rng>,
    pattern: Pattern,
    fua: bool,
    /// Blocks that are written, and blocks that are read.
    written: std::ops::Range<u64>,
    read: std::ops::Range<u64>,
    tag: Cell<u64>,
    from: Cell<Time>,
    /// Clients end when this is set.
    over: Cell<bool>,
    running: Cell<usize>,
    /// Bytes that were answered since the measurement began.
    bytes: Cell<u64>,
    read_bytes: Cell<u64>,
    latencies: RefCell<Latencies>,
    failed: RefCell<Option<IoError>>,
}

/// Measures a case on this thread.
///
/// # Errors
/// If the chain cannot be made, or fails.
pub fn measure(case: &ChainCase) -> Result<ChainMeasured, ChainFailure> {
    let sim = Sim::new(case.seed, TaskOrder::Fifo);
    let (host, node) = (sim.node(), sim.node());
    let chain = create(&sim, host, node, case)?;
    let mut world = World { sim, host, chain, case };
    let first = world.fill()?;
    let load = world.load(first);
    world.start(&load);
    world.warm_up(&load)?;
    world.measured(&load)
}

fn create(sim: &Sim, host: NodeId, node: NodeId, case: &ChainCase) -> Result<Chain, ChainFailure> {
    let drive = |number: usize| -> Rc<dyn BlockDevice> {
        let options = case.drive.options(case.seed ^ (number as u64) << 32);
        Rc::new(ModelledDrive::new(sim.handle(node), &case.drive.profile, &options))
    };
    let drives: Vec<_> = (0..case.links).map(drive).collect();
    let raw = case.drive.profile.capacity().0 * case.links as u64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of capacity")]
    let export = case.export.map(|share| Sectors((raw as f64 * share) as u64 / 8 * 8));
    let options = ChainOptions { segment: case.segment, export };
    let settings = ChainSettings { cleaning: case.cleaning, ..ChainSettings::default() };
    let made = Chain::create(sim.handle(host), drives, options, settings);
    let made = sim.block_on(host, made);
    let name = || case.drive.profile.name.clone();
    made.map_err(|source| ChainFailure::Chain { drive: name(), source })
}

struct World<'a> {
    sim: Sim,
    host: NodeId,
    chain: Chain,
    case: &'a ChainCase,
}

impl World<'_> {
    fn blocks(&self) -> u64 {
        self.chain.capabilities().capacity.0 / BLOCK.0
    }

    /// Fills the first drive, if the case asks for that. Returns how many blocks it holds.
    fn fill(&self) -> Result<u64, ChainFailure> {
        if self.case.fill != Fill::FirstDrive {
            return Ok(0);
        }
        let chain = self.chain.clone();
        let end = self.chain.capabilities().capacity.0;
        let filled = self.sim.block_on(self.host, async move {
            let mut at = 0;
            while chain.tail_drive() == 0 {
                let extent = Extent::new(at % end, FILL.0.min(end - at % end));
                let payload = Payload::tags(at, extent.len);
                let (fua, hint) = (false, Hint::None);
                chain.submit(Request::Write { extent, payload, fua, hint }).await?;
                at += extent.len.0;
            }
            chain.submit(Request::Flush).await?;
            Ok::<u64, IoError>(at.min(end))
        });
        // The end of what was written is on the second drive.
        Ok(filled? / BLOCK.0 * 7 / 8)
    }

    fn load(&self, first: u64) -> Rc<Load> {
        let blocks = self.blocks();
        Rc::new(Load {
            chain: self.chain.clone(),
            runtime: self.sim.handle(self.host),
            rng: RefCell::new(Rng::new(self.case.seed ^ 0x10ad)),
            pattern: self.case.pattern,
            fua: self.case.durability == Durability::Each,
            written: first..blocks,
            read: 0..first,
            tag: Cell::new(1 << 48),
            from: Cell::new(Time(u64::MAX)),
            over: Cell::new(false),
            running: Cell::new(0),
            bytes: Cell::new(0),
            read_bytes: Cell::new(0),
            latencies: RefCell::default(),
            failed: RefCell::default(),
        })
    }

    fn start(&self, load: &Rc<Load>) {
        let flushes = self.case.durability == Durability::FlushEachSecond;
        let readers = if load.read.is_empty() { 0 } else { self.case.readers };
        load.running.set((self.case.in_flight + readers + u32::from(flushes)) as usize);
        for _ in 0..self.case.in_flight {
            load.spawn(|load| async move { load.write().await });
        }
        for _ in 0..readers {
            load.spawn(|load| async move { load.read().await });
        }
        if flushes {
            load.spawn(|load| async move { load.flush().await });
        }
    }

    fn warm_up(&mut self, load: &Rc<Load>) -> Result<(), ChainFailure> {
        let raw = self.case.drive.profile.capacity().bytes() * self.case.links as u64;
        let (chain, times) = (self.chain.clone(), self.case.fill);
        let until = self.sim.now() + WARM_UP;
        self.run(load, || match times {
            Fill::Raw(times) => chain.written().bytes() >= raw * u64::from(times),
            _ => self.sim.now() >= until,
        })
    }

    fn run(&self, load: &Load, done: impl Fn() -> bool) -> Result<(), ChainFailure> {
        let failed = || load.failed.borrow().is_some();
        self.sim.run_until(|| failed() || done());
        match load.failed.borrow_mut().take() {
            Some(error) => Err(error.into()),
            None if done() => Ok(()),
            None => Err(ChainFailure::Stalled(format!("{:?}", self.chain))),
        }
    }

    fn measured(&self, load: &Rc<Load>) -> Result<ChainMeasured, ChainFailure> {
        let before = self.chain.figures();
        let from = self.sim.now();
        load.from.set(from);
        let until = from + self.case.span;
        // So that time passes, whatever the chain does.
        let alarm = self.sim.handle(self.host);
        self.sim.handle(self.host).spawn(async move { alarm.sleep_until(until).await });
        // A drive is faster at its beginning, and cleaning has its rhythm: in a steady state the
        // tail passes all of them once.
        let all = Sectors(self.case.drive.profile.capacity().0 * self.case.links as u64);
        let once = matches!(self.case.fill, Fill::Raw(_)).then_some(all).unwrap_or_default();
        let written = before.written + once;
        self.run(load, || self.sim.now() >= until && self.chain.written() >= written)?;
        let seconds = self.sim.now().since(from).as_secs_f64();
        let (bytes, read) = (load.bytes.get() as f64, load.read_bytes.get() as f64);
        let after = self.chain.figures();
        load.over.set(true);
        self.run(load, || load.running.get() == 0)?;
        let b = self.sequential(&before, &after);
        let latency = load.latencies.borrow().summary();
        let ms = |us: f64| round3(us / 1e3);
        Ok(ChainMeasured {
            write_mb_s: round3(bytes / 1e6 / seconds),
            sequential_mb_s: round3(b / 1e6),
            share: round3(bytes / seconds / b),
            read_mb_s: round3(read / 1e6 / seconds),
            write_p50_ms: ms(latency.p50),
            write_p99_ms: ms(latency.p99),
            write_max_ms: ms(latency.max),
            appended_per_byte: appended(&before, &after),
            hops: after.hops,
            table_bytes_per_block: round3(after.table_bytes as f64 / self.blocks() as f64),
        })
    }

    /// What a drive writes sequentially where the tail was: at its start, or all over.
    fn sequential(&self, before: &ChainFigures, after: &ChainFigures) -> f64 {
        let all = self.case.drive.profile.capacity();
        let end = match self.case.fill {
            Fill::Raw(_) => all,
            Fill::Nothing => after.appended,
            Fill::FirstDrive => Sectors(after.appended.0 - before.appended.0),
        };
        sequential_bytes_s(&self.case.drive, end.min(all), self.case.seed)
    }
}

fn appended(before: &ChainFigures, after: &ChainFigures) -> f64 {
    let appended = after.appended.0 - before.appended.0;
    round3(appended as f64 / (after.written.0 - before.written.0).max(1) as f64)
}

impl Load {
    fn spawn<F: Future<Output = Result<(), IoError>> + 'static>(
        self: &Rc<Self>,
        client: impl FnOnce(Rc<Self>) -> F,
    ) {
        let (load, client) = (Rc::clone(self), client(Rc::clone(self)));
        self.runtime.spawn(async move {
            if let Err(error) = client.await {
                load.failed.borrow_mut().get_or_insert(error);
            }
            load.running.set(load.running.get() - 1);
        });
    }

    fn block(&self, within: &std::ops::Range<u64>) -> Extent {
        let mut rng = self.rng.borrow_mut();
        let all = within.end - within.start;
        let tenth = (all / 10).max(1);
        let block = match self.pattern {
            Pattern::Hot if !rng.one_in(10) => rng.below(tenth),
            Pattern::Hot => tenth + rng.below(all - tenth),
            Pattern::Uniform => rng.below(all),
        };
        Extent::new((within.start + block) * BLOCK.0, BLOCK.0)
    }

    async fn write(&self) -> Result<(), IoError> {
        while !self.over.get() {
            let extent = self.block(&self.written);
            let payload = Payload::tags(self.tag.get(), BLOCK);
            self.tag.set(self.tag.get() + BLOCK.0);
            let (began, fua, hint) = (self.runtime.now(), self.fua, Hint::None);
            self.chain.submit(Request::Write { extent, payload, fua, hint }).await?;
            self.answered(began, &self.bytes, true);
            if !fua && began == self.runtime.now() {
                // Clients take turns, where time does not pass.
                manylogs_block::yield_now().await;
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<(), IoError> {
        while !self.over.get() {
            let extent = {
                let mut rng = self.rng.borrow_mut();
                Extent::new(rng.below(self.read.end) * BLOCK.0, BLOCK.0)
            };
            let began = self.runtime.now();
            self.chain.submit(Request::Read { extent }).await?;
            self.answered(began, &self.read_bytes, false);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        while !self.over.get() {
            self.runtime.sleep(FLUSH_EVERY).await;
            self.chain.submit(Request::Flush).await?;
        }
        Ok(())
    }

    fn answered(&self, began: Time, bytes: &Cell<u64>, timed: bool) {
        if began < self.from.get() {
            return;
        }
        bytes.set(bytes.get() + BLOCK.0 * SECTOR_BYTES);
        if timed {
            self.latencies.borrow_mut().record(self.runtime.now().since(began));
        }
    }
}
