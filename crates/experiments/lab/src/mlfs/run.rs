//! Runs cases, each in its own simulated world.

use std::sync::atomic::AtomicBool;

use manylogs_block::{Nanos, Time};
use manylogs_ext4::SinkStats;
use manylogs_mlfs::JournalMode;
use manylogs_sim::Stopped;

use super::case::{DiskCase, MlfsCase, WRITES_PER_SYNC};
use super::disk::{Disk, Files, MlfsError, Prepared, fill};
use super::load::{Done, start};
use super::results::{MlfsResult, result};
use crate::grid::{Grid, MadeOnce};
use crate::interfere::SyncMillis;
use crate::stats::{Latencies, round3};

/// Warm-up: stream and writer run this long before the measurement begins.
const WARM_UP: Nanos = Nanos::from_secs(2);

/// Measurements of one run.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) stream_mb_s: f64,
    pub(super) latencies: Latencies,
    pub(super) writes_per_second: f64,
    /// Counters of the journal for the measured time.
    pub(super) journal: SinkStats,
}

/// Measures each case on up to `threads` threads. Each stream is also measured alone, in its mode
/// and in the mode `ordered`. The results keep the order of `cases`. Cases that have not begun when
/// `stop` is set are left out.
///
/// # Errors
/// The first failure.
pub fn run_all(
    cases: &[MlfsCase],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<MlfsResult>, MlfsError> {
    let runs = || cases.iter().flat_map(|case| [case.clone(), case.alone(), base(case)]);
    let disks = Grid::of(runs().map(|case| case.disk()), DiskCase::key);
    let disks = disks.run(threads, stop, |disk| Prepared::of(disk, fill))?;
    let found = Grid::of(runs(), key).run(threads, stop, |case| {
        disks.of(&case.disk()).map(|disk| measure(case, disk)).transpose()
    })?;
    let told = |case: &MlfsCase| {
        let of = |case: &MlfsCase| found.of(case)?.as_ref();
        Some(result(case, of(case)?, of(&case.alone())?, of(&base(case))?))
    };
    Ok(cases.iter().filter_map(told).collect())
}

fn base(case: &MlfsCase) -> MlfsCase {
    MlfsCase { mode: JournalMode::Ordered, ..case.alone() }
}

/// Cases with equal keys are one run.
fn key(case: &MlfsCase) -> String {
    let MlfsCase { mode, stream, writes_per_second, seed, span, threshold, .. } = case;
    let disk = case.disk().key();
    format!("{disk} {mode} {stream} {writes_per_second} {seed} {} {threshold:?}", span.0)
}

/// Prepared disks, each made when the first case needs it.
#[derive(Debug, Default)]
pub struct Disks(MadeOnce<Result<Prepared<Files>, String>>);

/// Figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Throughput of the stream.
    pub stream_mb_s: f64,
    /// Latency of a sync of the file system.
    pub sync_ms: SyncMillis,
    /// Small writes a second that were made durable.
    pub writes_per_second: f64,
    /// Counters of the journal.
    pub journal: SinkStats,
}

/// Measures the case alone, without the runs to compare it with.
///
/// # Errors
/// Those of [`run_all`].
pub fn measure_one(case: &MlfsCase, disks: &Disks) -> Result<Figures, MlfsError> {
    let make = || Prepared::of(&case.disk(), fill).map_err(|error| error.to_string());
    let made = disks.0.get(case.disk().key(), make);
    let disk = made.as_ref().as_ref().map_err(|error| MlfsError::Disk(error.clone()))?;
    let found = measure(case, disk)?;
    Ok(Figures {
        stream_mb_s: round3(found.stream_mb_s),
        sync_ms: found.latencies.summary().into(),
        writes_per_second: round3(found.writes_per_second),
        journal: found.journal,
    })
}

fn measure(case: &MlfsCase, prepared: &Prepared<Files>) -> Result<Measured, MlfsError> {
    let Disk { sim, host, mounted, files } = prepared.mount(&case.disk())?;
    let runtime = sim.handle(host);
    let from = sim.now() + WARM_UP;
    let until = from + case.span;
    let done = Done::between(from, until);
    start(&runtime, mounted.fs(), &files, case, &done);
    let wait_until = |at: Time| {
        let clock = sim.handle(host);
        sim.block_on(host, async move { clock.sleep_until(at).await });
        mounted.fs().journal_stats()
    };
    let (before, after) = (wait_until(from), wait_until(until));
    let ended = sim.run_until(|| done.running.get() == 0);
    if let Some(error) = done.failed.borrow_mut().take() {
        return Err(error.into());
    }
    if ended != Stopped::Condition {
        return Err(MlfsError::Stalled(case.mode.name()));
    }
    let seconds = case.span.as_secs_f64();
    Ok(Measured {
        stream_mb_s: done.stream_bytes.get() as f64 / 1e6 / seconds,
        latencies: done.latencies.borrow().clone(),
        writes_per_second: done.syncs.get() as f64 * WRITES_PER_SYNC as f64 / seconds,
        journal: after.since(&before),
    })
}
