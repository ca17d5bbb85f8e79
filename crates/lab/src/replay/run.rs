//! Runs the policies of a replay, each in its own world.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use manylogs::VolumeStats;
use manylogs_block::{Nanos, Sectors, Time};
use manylogs_sim::{Order, Sim, Stopped};
use manylogs_workload::TraceError;
use thiserror::Error;

use super::policies::NamedPolicy;
use super::pump::{Control, Loop, PumpError, PumpReport, PumpSettings, pump};
use super::recorder::Recorder;
use super::stack::{DriveSettings, HeadPoint, Stack};
use super::workload::Workload;
use crate::results::{Checkpoint, Occupancy};
use crate::stats::Thinned;

/// Everything that decides what a replay finds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is replayed.
    pub workload: Workload,
    /// On which drive, used how.
    pub drive: DriveSettings,
    /// Arrivals come this many times as fast as recorded.
    pub rate: f64,
    /// How requests are let in.
    pub pump: PumpSettings,
    /// Writes up to this size count as small.
    pub small_write_max: Sectors,
    /// Whether the logs are emptied, and timed, after the replay.
    pub checkpoint_after: bool,
    /// Of all randomness.
    pub seed: u64,
}

/// What one policy did, as measured.
#[derive(Debug)]
pub struct Outcome {
    /// The policy.
    pub policy: NamedPolicy,
    /// Latencies.
    pub recorder: Recorder,
    /// How the trace was let in.
    pub pump: PumpReport,
    /// From the first arrival to the last answer.
    pub simulated: Nanos,
    /// How long the drive worked in that time.
    pub drive_busy: Nanos,
    /// Where the head was.
    pub head: Thinned<HeadPoint>,
    /// The volume's counters; `None` for the plain drive.
    pub volume: Option<VolumeStats>,
    /// What the logs held at the end.
    pub occupancy: Occupancy,
    /// Emptying the logs.
    pub checkpoint: Option<Checkpoint>,
    /// How long the computer took for the replay, without emptying the logs.
    pub wall: Duration,
    /// Whether the user ended it early.
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
        /// Which and why.
        source: PumpError,
    },
    /// The policy's volume cannot be made on the drive.
    #[error("{policy} does not work on this drive: {source}")]
    Volume {
        /// The policy's name.
        policy: String,
        /// Why.
        source: manylogs::VolumeError,
    },
    /// Requests are in flight and nothing will ever answer them.
    #[error(
        "under {policy}: the device stopped answering at {} s; this is a defect",
        at.as_secs_f64()
    )]
    Stalled {
        /// The policy's name.
        policy: String,
        /// When.
        at: Time,
    },
}

/// Replays `plan` under each policy, on up to `threads` threads.
///
/// The results come in the order of `policies`; `controls` has one entry for each.
pub fn run_all(
    plan: &Plan,
    policies: &[NamedPolicy],
    controls: &[Arc<Control>],
    threads: usize,
) -> Vec<Result<Outcome, ReplayError>> {
    assert_eq!(policies.len(), controls.len(), "one control for each policy");
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, policies.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(policy) = policies.get(index) else { return };
                    let result = run(plan, policy, &controls[index]);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Replays `plan` under `policy` on this thread.
///
/// # Errors
/// If the trace, the volume or a request fails.
pub(crate) fn run(
    plan: &Plan,
    policy: &NamedPolicy,
    control: &Arc<Control>,
) -> Result<Outcome, ReplayError> {
    let sim = Sim::new(plan.seed, Order::Fifo);
    let stack = Stack::build(&sim, &plan.drive, &policy.policy, plan.seed)
        .map_err(|source| ReplayError::Volume { policy: policy.name.clone(), source })?;
    let recorder = Rc::new(RefCell::new(Recorder::new(plan.small_write_max)));
    let (began, busy_before) = (sim.now(), stack.drive_busy());
    let started = Instant::now();
    let report = feed(&sim, plan, policy, &stack, &recorder, control)?;
    let wall = started.elapsed();
    let drive_busy = Nanos(stack.drive_busy().0.saturating_sub(busy_before.0));
    let recorder = recorder.borrow().clone();
    let interrupted =
        control.stop.load(Ordering::Relaxed) && report.requests < plan.workload.requests();
    let (volume, occupancy) = (stack.volume_stats(), stack.occupancy());
    let head = stack.take_head_points();
    let checkpoint = if plan.checkpoint_after && !interrupted {
        stack
            .checkpoint(&sim)
            .map_err(|source| ReplayError::Volume { policy: policy.name.clone(), source })?
    } else {
        None
    };
    Ok(Outcome {
        policy: policy.clone(),
        recorder,
        pump: report,
        simulated: report.last_completion.since(began),
        drive_busy,
        head,
        volume,
        occupancy,
        checkpoint,
        wall,
        interrupted,
    })
}

fn feed(
    sim: &Sim,
    plan: &Plan,
    policy: &NamedPolicy,
    stack: &Stack,
    recorder: &Rc<RefCell<Recorder>>,
    control: &Arc<Control>,
) -> Result<PumpReport, ReplayError> {
    let cursor = plan.workload.start(plan.rate)?;
    let slot = Rc::new(RefCell::new(None));
    let work = pump(
        stack.runtime(),
        stack.top(),
        cursor,
        plan.pump,
        Rc::clone(recorder),
        Arc::clone(control),
    );
    let answer = Rc::clone(&slot);
    stack.runtime().spawn(async move {
        let report = work.await;
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
    /// The requests a device is handed at a time, at most.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        match self.pump.mode {
            Loop::Open { outstanding_max, .. } => outstanding_max,
            Loop::Closed { depth } => depth,
        }
    }
}
