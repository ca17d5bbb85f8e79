//! Runs a case in a simulated world of its own.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Extent, Hint, IoError, Nanos, Payload, Request, Rng, Sectors, Time};
use manylogs_gecko::{Chain, ChainError, ChainFigures, OnLoss};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use serde::Serialize;
use thiserror::Error;

use super::bandwidth::sequential_bytes_s;
use super::blockwise::measure_blockwise;
use super::case::{ChainCase, Fill, Layout};
use super::clients::{BLOCK, Load};
use super::subject::Subject;
use crate::stats::round3;

/// Requests that fill a chain are longer where only their place matters.
const FILL: Sectors = Sectors(512);
/// Load before the measurement begins.
const WARM_UP: Nanos = Nanos::from_secs(1);

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ChainMeasured {
    /// What clients wrote.
    pub write_mb_s: f64,
    /// What one drive writes sequentially where the tail was: *B*.
    pub sequential_mb_s: f64,
    /// The first as a share of the second.
    pub share: f64,
    /// What readers read.
    pub read_mb_s: f64,
    /// Median latency of a random write.
    pub write_p50_ms: f64,
    /// 99th percentile of the latency of a random write.
    pub write_p99_ms: f64,
    /// The longest latency of a random write.
    pub write_max_ms: f64,
    /// Records at the tail and in the body.
    pub appended_mb_s: f64,
    /// Bytes in records at the tail and in the body for a client's byte.
    pub appended_per_byte: f64,
    /// Log that was emptied.
    pub cleaned_mb_s: f64,
    /// How often the tail went to another drive.
    pub hops: u64,
    /// Reads by clients that the tail's drive answered, each second.
    pub tail_misses_s: f64,
    /// Share of the reads of the tail's drive that the tail cache answered.
    pub tail_hit_share: f64,
    /// Time until a drive had left the chain; 0 if none left.
    pub leaving_s: f64,
    /// Memory of the chain's table for each exported block of 4 KiB.
    pub table_bytes_per_block: f64,
}

/// Measures a case on this thread.
///
/// # Errors
/// If the chain cannot be made, or fails.
pub fn measure(case: &ChainCase) -> Result<ChainMeasured, ChainFailure> {
    let sim = Sim::new(case.seed, TaskOrder::Fifo);
    let (host, node) = (sim.node(), sim.node());
    if case.layout == Layout::Blockwise {
        return measure_blockwise(case, &sim, (host, node));
    }
    let name = || case.drive.profile.name.clone();
    let subject = Subject::new(&sim, host, node, case)
        .map_err(|source| ChainFailure::Chain { drive: name(), source })?;
    let mut world = World { sim, host, subject, case };
    let held = world.fill()?;
    let load = world.load(held);
    load.start(case);
    world.warm_up(&load)?;
    world.measured(&load)
}

struct World<'a> {
    sim: Sim,
    host: NodeId,
    subject: Subject,
    case: &'a ChainCase,
}

impl World<'_> {
    /// Fills drives, if the case asks for that. Returns how many blocks they hold.
    fn fill(&self) -> Result<u64, ChainFailure> {
        let links = self.case.links as u64;
        let (full, trimmed) = match self.case.fill {
            Fill::FirstDrive => (1, 0),
            Fill::Trimmed(percent) => (1, percent),
            Fill::Body => (links.saturating_sub(1), 0),
            Fill::Nothing | Fill::Raw(_) => return Ok(0),
        };
        let Some(chain) = &self.subject.chain else {
            return Ok(self.subject.blocks / links * full);
        };
        let mut rng = Rng::new(self.case.seed ^ 0x7e11);
        let rng_of_fill = Rng::new(rng.next_u64());
        let filled = fill_drives(chain.clone(), full, rng_of_fill);
        // The end of what was written is on the next drive.
        let held = self.sim.block_on(self.host, filled)? / BLOCK.0 * 7 / 8;
        self.sim.block_on(self.host, trim(chain.clone(), held, trimmed, rng))?;
        Ok(held)
    }

    /// The clients. They read what the full drives hold, and write everything else.
    fn load(&self, held: u64) -> Rc<Load> {
        let blocks = self.subject.blocks;
        let read = if matches!(self.case.fill, Fill::Raw(_)) { 0..blocks } else { 0..held };
        let (device, runtime) = (Rc::clone(&self.subject.device), self.sim.handle(self.host));
        Load::new(device, runtime, self.case, (held..blocks, read))
    }

    fn warm_up(&mut self, load: &Rc<Load>) -> Result<(), ChainFailure> {
        let until = self.sim.now() + WARM_UP;
        let Some(chain) = &self.subject.chain else {
            self.wake_at(until);
            return self.run(load, || self.sim.now() >= until);
        };
        let emptied = chain.figures().emptied;
        self.run(load, || match self.case.fill {
            Fill::Raw(times) => chain.written().0 >= self.subject.raw.0 * u64::from(times),
            Fill::Trimmed(_) => chain.figures().emptied > emptied,
            Fill::Nothing | Fill::FirstDrive | Fill::Body => self.sim.now() >= until,
        })
    }

    /// So that time passes, whatever the chain does.
    fn wake_at(&self, until: manylogs_block::Time) {
        let alarm = self.sim.handle(self.host);
        self.sim.handle(self.host).spawn(async move { alarm.sleep_until(until).await });
    }

    fn run(&self, load: &Load, done: impl Fn() -> bool) -> Result<(), ChainFailure> {
        let failed = || load.failed.borrow().is_some();
        self.sim.run_until(|| failed() || done());
        match load.failed.borrow_mut().take() {
            Some(error) => Err(error.into()),
            None if done() => Ok(()),
            None => Err(ChainFailure::Stalled(format!("{:?}", self.subject.chain))),
        }
    }

    fn measured(&self, load: &Rc<Load>) -> Result<ChainMeasured, ChainFailure> {
        let before = self.subject.figures();
        let from = self.sim.now();
        load.from.set(from);
        let until = from + self.case.span;
        self.wake_at(until);
        // A drive is faster at its beginning, and cleaning has its rhythm: in a steady state the
        // tail passes all of them once.
        let is_steady = matches!(self.case.fill, Fill::Raw(_));
        let once = if is_steady { self.subject.raw } else { Sectors(0) };
        let written = before.written + once;
        let has_written = || self.subject.chain.as_ref().is_none_or(|it| it.written() >= written);
        let has_left = self.leave();
        let is_over = || self.sim.now() >= until && has_written() && has_left.get().is_some();
        self.run(load, is_over)?;
        let left = has_left.get().unwrap_or(from).since(from);
        let seconds = self.sim.now().since(from).as_secs_f64();
        let (bytes, read) = (load.bytes.get() as f64, load.read_bytes.get() as f64);
        let after = self.subject.figures();
        load.over.set(true);
        self.run(load, || load.running.get() == 0)?;
        let b = self.sequential(&before, &after);
        let latency = load.latencies.borrow().summary();
        let ms = |us: f64| round3(us / 1e3);
        let mb_s = |bytes: f64| round3(bytes / 1e6 / seconds);
        let hits = after.tail_hits - before.tail_hits;
        let misses = after.tail_misses - before.tail_misses;
        let cleaned = (after.emptied - before.emptied) * self.case.segment.bytes();
        Ok(ChainMeasured {
            write_mb_s: mb_s(bytes),
            sequential_mb_s: round3(b / 1e6),
            share: round3(bytes / seconds / b),
            read_mb_s: mb_s(read),
            write_p50_ms: ms(latency.p50),
            write_p99_ms: ms(latency.p99),
            write_max_ms: ms(latency.max),
            appended_mb_s: mb_s(Sectors(after.appended.0 - before.appended.0).bytes() as f64),
            appended_per_byte: appended(&before, &after),
            cleaned_mb_s: mb_s(cleaned as f64),
            hops: after.hops,
            tail_misses_s: round3(misses as f64 / seconds),
            tail_hit_share: round3(hits as f64 / (hits + misses).max(1) as f64),
            leaving_s: if self.case.leaves { round3(left.as_secs_f64()) } else { 0.0 },
            table_bytes_per_block: round3(after.table_bytes as f64 / self.subject.blocks as f64),
        })
    }

    /// Lets the first drive leave the chain, if the case says so. The cell tells when it has left.
    fn leave(&self) -> Rc<Cell<Option<Time>>> {
        let left = Rc::new(Cell::new(None));
        let chain = self.subject.chain.clone().filter(|_| self.case.leaves);
        let Some(chain) = chain else {
            left.set(Some(self.sim.now()));
            return left;
        };
        let (runtime, cell) = (self.sim.handle(self.host), Rc::clone(&left));
        self.sim.handle(self.host).spawn(async move {
            // If it fails, the run stalls, and says so.
            if chain.remove_link(0, OnLoss::Stop).await.is_ok() {
                cell.set(Some(runtime.now()));
            }
        });
        left
    }

    /// What a drive writes sequentially where the tail was: at its start, or all over.
    fn sequential(&self, before: &ChainFigures, after: &ChainFigures) -> f64 {
        let all = self.case.drive.profile.capacity();
        let end = match self.case.fill {
            _ if self.subject.chain.is_none() => all,
            Fill::Raw(_) => all,
            Fill::Nothing => after.appended,
            _ => Sectors(after.appended.0 - before.appended.0),
        };
        sequential_bytes_s(&self.case.drive, end.min(all), self.case.seed)
    }
}

/// Writes until the tail is on drive `full`. Returns the end of what was written. The last eighth
/// of it is written again where it does not suffice: not in order, so that no segment gets empty.
async fn fill_drives(chain: Chain, full: u64, mut rng: Rng) -> Result<u64, IoError> {
    use manylogs_block::BlockDevice as _;
    let end = chain.capabilities().capacity.0;
    let (mut at, mut tag) = (0, 0);
    while (chain.tail_drive() as u64) < full {
        let start = if at < end { at } else { end - 1 - rng.below(end / 8) } / FILL.0 * FILL.0;
        let extent = Extent::new(start, FILL.0.min(end - start));
        let payload = Payload::tags(tag, extent.len);
        let (fua, hint) = (false, Hint::None);
        chain.submit(Request::Write { extent, payload, fua, hint }).await?;
        at = at.max(extent.end().0);
        tag += extent.len.0;
    }
    chain.submit(Request::Flush).await?;
    Ok(at)
}

/// Trims that part of the first `blocks`, each by itself, at random.
async fn trim(chain: Chain, blocks: u64, percent: u32, mut rng: Rng) -> Result<(), IoError> {
    use manylogs_block::BlockDevice as _;
    for block in 0..blocks {
        if rng.below(100) < u64::from(percent) {
            let extent = Extent::new(block * BLOCK.0, BLOCK.0);
            chain.submit(Request::Discard { extent, fua: false }).await?;
        }
    }
    chain.submit(Request::Flush).await.map(drop)
}

fn appended(before: &ChainFigures, after: &ChainFigures) -> f64 {
    let appended = after.appended.0 - before.appended.0;
    round3(appended as f64 / (after.written.0 - before.written.0).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use manylogs_gecko::Cleaning;

    use super::super::case::{Durability, Pattern};
    use super::*;
    use crate::replay::DriveSettings;
    use crate::sweep::drive;

    fn case(layout: Layout, readers: u32) -> ChainCase {
        let profile = drive("cheetah-15k5").unwrap().fitted(Sectors(512 << 11)).unwrap();
        ChainCase {
            drive: DriveSettings::new(Arc::new(profile), false),
            layout,
            links: 3,
            mirrored: true,
            segment: Sectors(8 << 11),
            export: None,
            cleaning: Cleaning::Auto,
            durability: Durability::Each,
            pattern: Pattern::Uniform,
            in_flight: 64,
            streams: 0,
            readers,
            tail_reads_s: 0,
            leaves: false,
            cache: Sectors(0),
            summaries: false,
            fill: Fill::Body,
            span: Nanos::from_secs(1),
            seed: 1,
        }
    }

    /// Reads of the tail's drive cost it, unless memory has what they ask for.
    #[test]
    fn reads_of_what_was_written_last_cost_the_tail_nothing_with_a_cache() {
        let beside = |tail_reads_s, cache| {
            let durability = Durability::FlushEachSecond;
            let case = ChainCase { tail_reads_s, cache, durability, ..case(Layout::Chain, 0) };
            measure(&ChainCase { fill: Fill::Nothing, ..case }).unwrap()
        };
        let (alone, all) = (beside(0, Sectors(0)), Sectors(1 << 21));
        let (misses, hits) = (beside(20, Sectors(0)), beside(1000, all));
        assert!(misses.tail_misses_s > 5.0, "{misses:?}");
        assert!(misses.write_mb_s < 0.99 * alone.write_mb_s, "{misses:?} {alone:?}");
        assert!(hits.tail_hit_share > 0.999, "{hits:?}");
        assert!(hits.read_mb_s > 3.0, "{hits:?}");
        assert!(hits.write_mb_s > 0.99 * alone.write_mb_s, "{hits:?} {alone:?}");
    }

    /// Clients keep most of their bandwidth while a drive is emptied beside the tail: 0.76 where
    /// drives are so small, 0.88 with `manylogs chain --gates leaving --capacity 1G`.
    #[test]
    fn a_full_drive_leaves_while_clients_write() {
        let case = ChainCase { links: 4, mirrored: false, ..case(Layout::Chain, 0) };
        let case = ChainCase { export: Some(0.4), fill: Fill::FirstDrive, ..case };
        let alone = measure(&case).unwrap();
        let leaves = measure(&ChainCase { leaves: true, ..case }).unwrap();
        assert!(alone.leaving_s == 0.0 && leaves.leaving_s > 1.0, "{leaves:?}");
        assert!(leaves.write_mb_s > 0.7 * alone.write_mb_s, "{leaves:?} {alone:?}");
    }

    #[test]
    fn readers_take_bandwidth_of_a_log_over_raid_0_and_none_of_a_chain() {
        let write = |layout, readers| measure(&case(layout, readers)).unwrap();
        let (alone, beside) = (write(Layout::Chain, 0), write(Layout::Chain, 8));
        assert!(beside.read_mb_s > 1.0, "{beside:?}");
        assert!(beside.write_mb_s > 0.99 * alone.write_mb_s, "{beside:?} {alone:?}");
        let (alone, beside) = (write(Layout::Log, 0), write(Layout::Log, 8));
        assert!(beside.write_mb_s < 0.7 * alone.write_mb_s, "{beside:?} {alone:?}");
        let in_place = write(Layout::InPlace, 0);
        assert!(in_place.write_mb_s < 0.2 * alone.write_mb_s, "{in_place:?} {alone:?}");
    }
}
