//! Runs the policies of a replay, each in its own world.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use manylogs::VolumeStats;
use manylogs_block::{Nanos, Time};
use manylogs_sim::{Sim, Stopped, TaskOrder};
use manylogs_workload::TraceError;
use thiserror::Error;

use super::durability::Durability;
use super::policies::NamedPolicy;
use super::pump::{Loop, Progress, PumpError, PumpReport, PumpSettings, pump_watched};
use super::recorder::Recorder;
use super::served::Watch;
use super::stack::{DriveSettings, HeadPoint, Stack};
use super::workload::Workload;
use crate::parallel::on_threads;
use crate::results::{Checkpoint, Occupancy};
use crate::smr::SmrFigures;
use crate::stats::Thinned;

/// Everything that determines the result of a replay.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The trace.
    pub workload: Workload,
    /// The drive and how it is used.
    pub drive: DriveSettings,
    /// Factor by which arrivals are faster than recorded.
    pub rate: f64,
    /// When requests are handed to the device.
    pub pump: PumpSettings,
    /// Whether a timed checkpoint empties the logs after the replay.
    pub checkpoint_after: bool,
    /// Whether to keep each request besides the distributions: see [`Recorder::take_requests`].
    pub keep_requests: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of seeds from which each policy is replayed. The first is `seed`.
    pub seeds: u32,
}

/// Measurements of one policy.
#[derive(Debug)]
pub struct Outcome {
    /// The policy with its parameters for this drive.
    pub policy: NamedPolicy,
    /// Whether the drive's write cache was on during the replay.
    pub write_cache: bool,
    /// Latencies over all seeds.
    pub recorder: Recorder,
    /// Counters of the feed. This field and those below are from the first seed.
    pub pump: PumpReport,
    /// From the first arrival to the last answer.
    pub simulated: Nanos,
    /// Time during which the drive worked.
    pub drive_busy: Nanos,
    /// Whether the drive was overloaded under any seed.
    pub overloaded: bool,
    /// Sampled positions of the head.
    pub head: Thinned<HeadPoint>,
    /// The volume's counters; `None` for the plain drive.
    pub volume: Option<VolumeStats>,
    /// Contents of the logs at the end.
    pub occupancy: Occupancy,
    /// Result of the checkpoint after the replay.
    pub checkpoint: Option<Checkpoint>,
    /// The run second by second, on a shingled drive.
    pub smr: Option<SmrFigures>,
    /// Wall-clock time of all replays, without the checkpoint.
    pub wall: Duration,
    /// Whether the user ended the replay early.
    pub interrupted: bool,
}

/// Why a replay failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A request failed.
    #[error("under {policy}: {source}")]
    Request {
        /// The policy's name.
        policy: String,
        /// The request and the reason.
        source: PumpError,
    },
    /// The policy's volume cannot be made on the drive.
    #[error("{policy} does not work on this drive: {source}")]
    Volume {
        /// The policy's name.
        policy: String,
        /// The reason.
        source: manylogs::VolumeError,
    },
    /// The policy's options do not go with its logs on the drive.
    #[error("{policy} does not work on this drive: {source}")]
    Policy {
        /// The policy's name.
        policy: String,
        /// The reason.
        source: manylogs::PolicyError,
    },
    /// The policy works only within a shingled drive.
    #[error(
        "{policy} is a policy within a shingled drive, and {drive} is a conventional one: \
         `manylogs drive list` names the shingled ones"
    )]
    NotShingled {
        /// The policy's name.
        policy: String,
        /// The drive profile's name.
        drive: String,
    },
    /// Deadlock: requests are in flight, and no event is left that could answer them.
    #[error(
        "under {policy}: the device stopped answering at {} s; this is a defect",
        at.as_secs_f64()
    )]
    Stalled {
        /// The policy's name.
        policy: String,
        /// Simulated time.
        at: Time,
    },
}

/// Replays `plan` under each policy from each seed, on up to `threads` threads.
///
/// The results keep the order of `policies`. `progresses` has one entry for each policy.
pub fn run_all(
    plan: &Plan,
    policies: &[NamedPolicy],
    progresses: &[Arc<Progress>],
    threads: usize,
) -> Vec<Result<Outcome, ReplayError>> {
    assert_eq!(policies.len(), progresses.len(), "one progress for each policy");
    let seeds = manylogs_block::to_usize(u64::from(plan.seeds.max(1)));
    let replays = on_threads(policies.len() * seeds, threads, |job| {
        let (policy, nth) = (job / seeds, job % seeds);
        // When the user ends a replay of many seeds, those not begun are skipped.
        let ended = progresses[policy].stop.load(Ordering::Relaxed);
        let plan = Plan { seed: plan.nth_seed(nth), ..plan.clone() };
        (nth == 0 || !ended).then(|| run(&plan, &policies[policy], &progresses[policy]))
    });
    let mut replays = replays.into_iter();
    let of_policy = |_| {
        let begun: Vec<_> = replays.by_ref().take(seeds).flatten().collect();
        let all = begun.len() == seeds;
        let outcome = pooled(begun)?;
        Ok(Outcome { interrupted: outcome.interrupted || !all, ..outcome })
    };
    policies.iter().map(of_policy).collect()
}

/// Joins the replays of one policy from several seeds: latencies of all, other figures of the
/// first.
fn pooled(replays: Vec<Result<Outcome, ReplayError>>) -> Result<Outcome, ReplayError> {
    let mut replays = replays.into_iter();
    let mut first = replays.next().unwrap_or_else(|| unreachable!("there is a seed"))?;
    for other in replays {
        let other = other?;
        first.recorder.absorb(other.recorder);
        first.overloaded |= other.overloaded;
        first.interrupted |= other.interrupted;
        first.wall += other.wall;
    }
    Ok(first)
}

/// Replays `plan` under `policy` from the first seed on this thread.
///
/// # Errors
/// If the trace, the volume or a request fails.
pub fn run(
    plan: &Plan,
    policy: &NamedPolicy,
    progress: &Arc<Progress>,
) -> Result<Outcome, ReplayError> {
    let sim = Sim::new(plan.seed, TaskOrder::Fifo);
    let mut stack = Stack::named(&sim, &plan.drive, policy, plan.seed)?;
    stack.begin(policy, plan.seed);
    if stack.is_shingled() {
        stack.measure(Nanos(plan.workload.summary().span_ns));
    }
    let recorder = Rc::new(RefCell::new(Recorder::new(plan.keep_requests)));
    let (began, busy_before) = (sim.now(), stack.drive_busy());
    let started = Instant::now();
    let report = feed(&sim, plan, policy, &stack, &recorder, progress)?;
    let wall = started.elapsed();
    let drive_busy = Nanos(stack.drive_busy().0.saturating_sub(busy_before.0));
    recorder.borrow_mut().finish(sim.now());
    let recorder = recorder.take();
    let (volume, occupancy) = (stack.volume_stats(), stack.occupancy());
    let head = stack.take_head_points();
    let smr = stack.smr_figures();
    // Earlier content of a drive's persistent cache must not count as this load's cleaning.
    let is_left = plan.drive.smr_cache > 0.0 && volume.is_none();
    let checkpoint = if plan.checkpoint_after && !report.interrupted && !is_left {
        stack
            .checkpoint(&sim)
            .map_err(|source| ReplayError::Volume { policy: policy.name.clone(), source })?
    } else {
        None
    };
    let capacity = plan.drive.capacity();
    let meant = policy.on(capacity).unwrap_or_else(|_| policy.policy.clone());
    let mut outcome = Outcome {
        policy: NamedPolicy { policy: meant, ..policy.clone() },
        write_cache: plan.drive.under(policy).write_cache,
        recorder,
        pump: report,
        simulated: report.last_completion.since(began),
        drive_busy,
        overloaded: false,
        head,
        volume,
        occupancy,
        checkpoint,
        smr,
        wall,
        interrupted: report.interrupted,
    };
    outcome.overloaded = outcome.is_overloaded();
    Ok(outcome)
}

fn feed(
    sim: &Sim,
    plan: &Plan,
    policy: &NamedPolicy,
    stack: &Stack,
    recorder: &Rc<RefCell<Recorder>>,
    progress: &Arc<Progress>,
) -> Result<PumpReport, ReplayError> {
    let slot = Rc::new(RefCell::new(None));
    let (runtime, top, settings, rate) = (stack.runtime(), stack.top(), plan.pump, plan.rate);
    let watch = if plan.keep_requests { stack.watch() } else { Watch::Off };
    let (workload, recorded) = (plan.workload.clone(), (Rc::clone(recorder), watch));
    let (answer, progress) = (Rc::clone(&slot), Arc::clone(progress));
    stack.runtime().spawn(async move {
        let report =
            pump_watched(runtime, top, (&workload, rate), settings, recorded, progress).await;
        *answer.borrow_mut() = Some(report);
    });
    if sim.run_until(|| slot.borrow().is_some()) == Stopped::Stalled {
        return Err(ReplayError::Stalled { policy: policy.name.clone(), at: sim.now() });
    }
    let report = slot.borrow_mut().take();
    match report {
        Some(Ok(report)) => Ok(report),
        Some(Err(PumpError::Trace(error))) => Err(error.into()),
        Some(Err(source)) => Err(ReplayError::Request { policy: policy.name.clone(), source }),
        None => unreachable!("the run ended because the report is there"),
    }
}

impl Plan {
    /// One replay from seed 1 at the recorded rate, with the feed of [`PumpSettings::new`], that
    /// ends with the last answer.
    #[must_use]
    pub const fn new(workload: Workload, drive: DriveSettings, durability: Durability) -> Self {
        Self {
            workload,
            drive,
            rate: 1.0,
            pump: PumpSettings::new(durability),
            checkpoint_after: false,
            keep_requests: false,
            seed: 1,
            seeds: 1,
        }
    }

    /// Seed of the `n`th replay of a policy.
    #[must_use]
    pub const fn nth_seed(&self, n: usize) -> u64 {
        self.seed ^ ((n as u64) << 40)
    }

    /// Largest number of requests inside the device.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        match self.pump.mode {
            Loop::Open { outstanding_max, .. } => outstanding_max,
            Loop::Closed { depth } => depth,
        }
    }
}
