//! Runs cases, each in its own simulated world.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use manylogs_block::{Nanos, Rng, Time};
use manylogs_ext4::SinkStats;
use manylogs_sim::Stopped;
use manylogs_workload::programs::Pace;

use super::super::disk::{Disk, MlfsError, Prepared};
use super::super::load::{Done, start_stream};
use super::case::ApplicationCase;
use super::host::{ApplicationFiles, Counts, Host, fill, keep_logs};
use super::results::{ApplicationResult, result};
use crate::grid::{Grid, MadeOnce};
use crate::interfere::{StreamKind, SyncMillis};
use crate::stats::round3;

/// Warm-up: the reader and the programs run this long before the measurement begins.
const WARM_UP: Nanos = Nanos::from_secs(5);

/// A rate that is allowed is reached on average: this long without an operation is made up for.
const MADE_UP: Nanos = Nanos::from_secs(1);

/// Prepared disks, each made when the first case needs it.
#[derive(Debug, Default)]
pub struct ApplicationDisks(MadeOnce<Result<Prepared<ApplicationFiles>, String>>);

impl ApplicationDisks {
    fn of(&self, case: &ApplicationCase) -> Arc<Result<Prepared<ApplicationFiles>, String>> {
        let (program, instances) = (case.program, case.instances);
        self.0.get(case.disk_key(), || {
            let prepared = Prepared::of(&case.disk, move |fs| fill(fs, program, instances));
            prepared.map_err(|error| error.to_string())
        })
    }
}

/// Figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Throughput of the reader.
    pub stream_mb_s: f64,
    /// Latency of the programs' operations that make data durable.
    pub flush_ms: SyncMillis,
    /// Latency of the operations that the programs' users wait for.
    pub request_ms: SyncMillis,
    /// Operations a second of all instances.
    pub operations_per_s: f64,
    /// Operations a second of all instances that make data durable; requests of programs that sync
    /// nothing.
    pub carried_per_s: f64,
    /// Counters of the journal.
    pub journal: SinkStats,
    /// Bytes of durable-only files that were written home.
    pub o_dur_home_bytes: u64,
}

/// Measures each case on up to `threads` threads, and the reader alone in the mode `ordered`. The
/// results keep the order of `cases`. Cases that have not begun when `stop` is set are left out.
///
/// # Errors
/// The first failure.
pub fn run_all(
    cases: &[ApplicationCase],
    disks: &ApplicationDisks,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<ApplicationResult>, MlfsError> {
    let runs = cases.iter().flat_map(|case| [case.clone(), case.base()]);
    let grid = Grid::of(runs, ApplicationCase::key);
    let found = grid.run(threads, stop, |case| measure_one(case, disks))?;
    let of = |case: &ApplicationCase| Some(result(case, found.of(case)?, found.of(&case.base())?));
    Ok(cases.iter().filter_map(of).collect())
}

/// Measures the case alone, without the runs to compare it with.
///
/// # Errors
/// Those of [`run_all`].
pub fn measure_one(
    case: &ApplicationCase,
    disks: &ApplicationDisks,
) -> Result<Measured, MlfsError> {
    let made = disks.of(case);
    let prepared = made.as_ref().as_ref().map_err(|error| MlfsError::Disk(error.clone()))?;
    let Disk { sim, host, mounted, files } = prepared.mount(&case.disk)?;
    if case.odur {
        let keeping = keep_logs(mounted.fs().clone(), case.program, files.clone());
        sim.block_on(host, keeping)?;
    }
    let runtime = sim.handle(host);
    let from = sim.now() + WARM_UP;
    let until = from + case.span;
    let done = Done::between(from, until);
    let fs = mounted.fs();
    start_stream(&runtime, fs, files.big, StreamKind::Read, case.stream_depth, &done);
    let counts = start_instances(&runtime, fs, &files, case, (from, until));
    let wait_until = |at: Time| {
        let clock = sim.handle(host);
        sim.block_on(host, async move { clock.sleep_until(at).await });
        let home = mounted.volume().map_or(0, |volume| volume.stats().o_dur_home_bytes);
        (mounted.fs().journal_stats(), home)
    };
    let ((before, home_before), (after, home)) = (wait_until(from), wait_until(until));
    let ended = sim.run_until(|| done.running.get() + counts.running.get() == 0);
    let failed = done.failed.borrow_mut().take().or_else(|| counts.failed.borrow_mut().take());
    if let Some(error) = failed {
        return Err(error.into());
    }
    if ended != Stopped::Condition {
        return Err(MlfsError::Stalled(case.mode_name()));
    }
    let seconds = case.span.as_secs_f64();
    let flushes = counts.flushes.borrow().count();
    let carried = if flushes > 0 { flushes } else { counts.requests.borrow().count() };
    Ok(Measured {
        stream_mb_s: round3(done.stream_bytes.get() as f64 / 1e6 / seconds),
        flush_ms: counts.flushes.borrow().summary().into(),
        request_ms: counts.requests.borrow().summary().into(),
        operations_per_s: round3(counts.operations.get() as f64 / seconds),
        carried_per_s: round3(carried as f64 / seconds),
        journal: after.since(&before),
        o_dur_home_bytes: home - home_before,
    })
}

fn start_instances(
    runtime: &manylogs_block::Handle,
    fs: &manylogs_ext4::Ext4,
    files: &ApplicationFiles,
    case: &ApplicationCase,
    (from, until): (Time, Time),
) -> Rc<Counts> {
    let counts = Rc::new(Counts {
        from,
        until,
        flushes: RefCell::default(),
        requests: RefCell::default(),
        operations: Cell::default(),
        running: Cell::default(),
        failed: RefCell::default(),
        pace: case.carry_per_s.map(|rate| Pace::new(rate, runtime.now()).making_up(MADE_UP)),
    });
    let cache = Rc::new(RefCell::new(super::cached::PageCache::new(case.memory_bytes)));
    let mut rng = Rng::new(case.disk.seed);
    let of = (&cache, case.program);
    for instance in &files.instances {
        let host = Rc::new(Host::new(runtime, fs, instance, of, &counts, case.odur));
        let threads = case.program.start(runtime, &host, &instance.initial, &mut rng);
        counts.running.set(counts.running.get() + threads);
    }
    counts
}
