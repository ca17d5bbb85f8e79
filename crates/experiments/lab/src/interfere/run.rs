//! Runs cases, each in its own simulated world.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use manylogs_block::{IoError, Nanos, Time};
use manylogs_sim::{Sim, Stopped, TaskOrder};
use thiserror::Error;

use super::case::{Case, SyncLoad, SyncRate, UnfitStream};
use super::drive_did::DriveDid;
use super::results::{CaseResult, CheckpointPrice, SyncMillis, result};
use super::stream::{self, Moved};
use super::sync::{self, Synced};
use crate::grid::Grid;
use crate::replay::{NamedPolicy, Stack};
use crate::stats::{Latencies, round3};

/// Warm-up: streams and syncs run this long before the measurement begins.
const WARM_UP: Nanos = Nanos::from_secs(2);

/// Why a case has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InterfereError {
    /// The stream does not fit the device.
    #[error(transparent)]
    Stream(#[from] UnfitStream),
    /// The policy's volume cannot be made on the drive.
    #[error("{policy} does not work on {drive}: {source}")]
    Volume {
        /// The policy's name.
        policy: String,
        /// The drive profile's name.
        drive: String,
        /// The reason.
        source: manylogs::VolumeError,
    },
    /// The policy's options do not go with its logs on the drive.
    #[error("{policy} does not work on {drive}: {source}")]
    Policy {
        /// The policy's name.
        policy: String,
        /// The drive profile's name.
        drive: String,
        /// The reason.
        source: Box<manylogs::PolicyError>,
    },
    /// A request failed.
    #[error("under {policy} a request failed: {source}")]
    Io {
        /// The policy's name.
        policy: String,
        /// The reason.
        source: IoError,
    },
    /// Deadlock: requests are in flight, and no event is left that could answer them.
    #[error("under {policy} the device stopped answering; this is a defect")]
    Stalled {
        /// The policy's name.
        policy: String,
    },
}

/// Measurements of one run.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) stream_mb_s: f64,
    pub(super) each_mb_s: Vec<f64>,
    pub(super) stream_latencies: Latencies,
    pub(super) latencies: Latencies,
    pub(super) syncs_per_second: f64,
    pub(super) drive: DriveDid,
    pub(super) checkpoint: Option<CheckpointPrice>,
}

/// Measures each case on up to `threads` threads. Each stream is also measured alone, under its
/// policy and under `nologging`. The results keep the order of `cases`. Cases that have not begun
/// when `stop` is set are left out.
///
/// # Errors
/// The first failure.
pub fn run_all(
    cases: &[Case],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<CaseResult>, InterfereError> {
    let runs = cases.iter().flat_map(|case| [case.clone(), without_syncs(case), base(case)]);
    let found = Grid::of(runs, key).run(threads, stop, measure)?;
    let told = |case: &Case| {
        let (own, base) = (found.of(&without_syncs(case))?, found.of(&base(case))?);
        Some(result(case, found.of(case)?, own, base))
    };
    Ok(cases.iter().filter_map(told).collect())
}

fn without_syncs(case: &Case) -> Case {
    Case { syncs: SyncLoad { rate: SyncRate::PerSecond(0.0), ..case.syncs }, ..case.clone() }
}

fn base(case: &Case) -> Case {
    Case { policy: NamedPolicy::nologging(), ..without_syncs(case) }
}

/// Figures of one run.
#[derive(Clone, Debug)]
pub struct CaseFigures {
    /// Throughput of all streams together.
    pub stream_mb_s: f64,
    /// Throughput of each stream.
    pub each_mb_s: Vec<f64>,
    /// Latency of a sync.
    pub sync_ms: SyncMillis,
    /// Syncs a second that began and ended within the measurement.
    pub syncs_per_second: f64,
}

/// Measures the case alone, without the runs to compare it with.
///
/// # Errors
/// Those of [`run_all`].
pub fn measure_one(case: &Case) -> Result<CaseFigures, InterfereError> {
    let found = measure(case)?;
    Ok(CaseFigures {
        stream_mb_s: round3(found.stream_mb_s),
        each_mb_s: found.each_mb_s.iter().copied().map(round3).collect(),
        sync_ms: found.latencies.summary().into(),
        syncs_per_second: round3(found.syncs_per_second),
    })
}

/// Cases with equal keys are one run.
fn key(case: &Case) -> String {
    let Case { drive, policy, stream, syncs, seed, span } = case;
    let (name, cache, queue) = (drive.name(), drive.write_cache, drive.queue);
    let (link, slow) = (drive.link, drive.array.and_then(|array| array.slow));
    // If there are no syncs, their settings make no difference.
    let syncs = Some(syncs).filter(|syncs| syncs.rate.is_any());
    let load = format!("{stream:?} {syncs:?} {seed} {} {slow:?}", span.0);
    format!("{name} {cache} {link:?} {queue:?} {} {load}", policy.name)
}

/// Measures one case on this thread.
fn measure(case: &Case) -> Result<Measured, InterfereError> {
    let policy = || case.policy.name.clone();
    let sim = Sim::new(case.seed, TaskOrder::Fifo);
    let drive = || case.drive.name();
    let meant = case.policy.on(case.drive.capacity()).map_err(|source| InterfereError::Policy {
        policy: policy(),
        drive: drive(),
        source: Box::new(source),
    })?;
    let stack = Stack::build(&sim, &case.drive.under(&case.policy), &meant, case.seed)
        .map_err(|source| InterfereError::Volume { policy: policy(), drive: drive(), source })?;
    let (runtime, device) = (stack.runtime(), stack.top());
    let from = sim.now() + WARM_UP;
    let until = from + case.span;
    let moved = Rc::new(Moved {
        from,
        until,
        bytes: (0..case.stream.streams).map(|_| Cell::new(0)).collect(),
        latencies: RefCell::default(),
        running: Cell::new(0),
        failed: RefCell::default(),
    });
    let synced = Rc::new(Synced {
        from,
        until,
        latencies: RefCell::default(),
        in_time: Cell::new(0),
        running: Cell::new(0),
        failed: RefCell::default(),
    });
    stream::start(&runtime, &device, &case.stream, case.seed, &moved)?;
    sync::start(&runtime, &device, &case.syncs, case.seed, &synced);
    let before = run_until(&sim, &stack, from);
    let after = run_until(&sim, &stack, until);
    let ended = sim.run_until(|| moved.running.get() + synced.running.get() == 0);
    let failed = moved.failed.borrow_mut().take().or_else(|| synced.failed.borrow_mut().take());
    if let Some(source) = failed {
        return Err(InterfereError::Io { policy: policy(), source });
    }
    if ended != Stopped::Condition {
        return Err(InterfereError::Stalled { policy: policy() });
    }
    let checkpoint = checkpoint(case, &sim, &stack, &synced);
    let checkpoint = checkpoint.map_err(|source| InterfereError::Volume {
        policy: policy(),
        drive: drive(),
        source,
    })?;
    let seconds = case.span.as_secs_f64();
    let revolution_us = case.drive.profile.spindle.revolution_us;
    Ok(Measured {
        stream_mb_s: moved.bytes.iter().map(Cell::get).sum::<u64>() as f64 / 1e6 / seconds,
        each_mb_s: moved.bytes.iter().map(|it| it.get() as f64 / 1e6 / seconds).collect(),
        stream_latencies: moved.latencies.borrow().clone(),
        latencies: synced.latencies.borrow().clone(),
        syncs_per_second: synced.in_time.get() as f64 / seconds,
        drive: DriveDid::between(&before, &after, seconds * stack.drives() as f64, revolution_us),
        checkpoint,
    })
}

/// Empties the logs after a measurement, if that is asked for and there are logs.
fn checkpoint(
    case: &Case,
    sim: &Sim,
    stack: &Stack,
    synced: &Synced,
) -> Result<Option<CheckpointPrice>, manylogs::VolumeError> {
    if !case.syncs.checkpoint || !case.syncs.rate.is_any() || stack.volume_stats().is_none() {
        return Ok(None);
    }
    let Some(done) = stack.checkpoint(sim)? else { return Ok(None) };
    let (load, seconds) = ((WARM_UP + case.span).as_secs_f64(), done.simulated_seconds);
    // The warm-up's syncs go home, too.
    let rate = synced.in_time.get() as f64 / case.span.as_secs_f64();
    Ok(Some(CheckpointPrice {
        seconds,
        home_writes: done.home_writes,
        logged_writes: done.logged_writes,
        syncs_per_second: round3(rate * load / (load + seconds)),
    }))
}

/// Lets time pass until `at` and returns the drive's counters at that time.
fn run_until(sim: &Sim, stack: &Stack, at: Time) -> manylogs_disk::Counters {
    let clock = stack.runtime();
    sim.block_on(stack.host(), async move { clock.sleep_until(at).await });
    stack.drive_counters()
}
