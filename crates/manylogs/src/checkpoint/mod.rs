//! Checkpoint: the newest versions go home in order of address, and then one number, the floor,
//! declares everything older dead at once.

mod copy;

use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Sectors};
use manylogs_logstore::{DataSequence, LogId};

use crate::error::VolumeError;
use crate::phase::Phase;
use crate::place::Place;
use crate::state::Inner;
use manylogs_plant::{self as plant, Bug};

/// What one batch holds at most: memory, and the time for which clients may be locked out.
const BATCH_SECTORS: u64 = 8192;
const BATCH_RUNS: usize = 512;
/// Passes that fail while writes wait for room, before these are refused.
const PATIENCE: u32 = 3;

/// How much a checkpoint yields to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Between batches it waits until the volume is idle.
    Gentle,
    /// As fast as its rate limit allows.
    Steady,
    /// As fast as it can: somebody waits for room.
    Urgent,
}

/// What a checkpoint did (seed 000 section VI, Fig. 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// From the start to the durable floor.
    pub duration: Nanos,
    /// Client writes that were logged since the last checkpoint, and their length.
    pub logged_writes: u64,
    /// See `logged_writes`.
    pub logged_sectors: Sectors,
    /// Reads from logs, and their length.
    pub log_reads: u64,
    /// See `log_reads`.
    pub log_read_sectors: Sectors,
    /// Writes home, and their length: fewer than were logged, where writes were overwritten or
    /// became neighbours.
    pub home_writes: u64,
    /// See `home_writes`.
    pub home_write_sectors: Sectors,
    /// Time spent reading logs.
    pub log_read_time: Nanos,
    /// Time spent writing home.
    pub home_write_time: Nanos,
    /// Extents whose home could not be written: they stay logged, and the next pass tries again.
    pub kept_extents: u64,
    /// Extents whose logged copy is damaged: reads of them fail until they are overwritten.
    pub lost_extents: u64,
}

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// How much it yields to clients.
    pub(crate) pace: Pace,
    /// Whether long zeroed extents are written out too, so that nothing is left in the logs.
    pub(crate) materialise: bool,
}

impl Inner {
    pub(crate) async fn checkpoint(
        self: &Rc<Self>,
        pass: Pass,
    ) -> Result<CheckpointReport, VolumeError> {
        let result = self.run_pass(pass).await;
        self.note_pass(&result);
        result
    }

    /// Counts what went wrong. Writes that wait for room must not wait for ever for passes that
    /// make none.
    fn note_pass(&self, result: &Result<CheckpointReport, VolumeError>) {
        let mut state = self.state.borrow_mut();
        state.pass_at = Lba(0);
        let made_room = match result {
            Ok(report) => {
                state.counters.kept_extents += report.kept_extents;
                state.counters.lost_extents += report.lost_extents;
                report.kept_extents == 0
            }
            Err(VolumeError::Closed) => true,
            Err(_) => {
                state.counters.failed_checkpoints += 1;
                false
            }
        };
        let in_vain = state.starved > 0 && !made_room;
        state.passes_in_vain = if in_vain { state.passes_in_vain + 1 } else { 0 };
        if state.passes_in_vain >= PATIENCE {
            state.fail("the logs are full and what they hold cannot be written home");
            drop(state);
            self.notify_progress();
        }
    }

    async fn run_pass(self: &Rc<Self>, pass: Pass) -> Result<CheckpointReport, VolumeError> {
        let pace = pass.pace;
        let _turn = self.turn.take().await;
        let started = self.runtime.now();
        let (floor, mut report) = {
            let state = self.state.borrow();
            let report = CheckpointReport {
                logged_writes: state.counters.logged_since_checkpoint,
                logged_sectors: Sectors(state.counters.logged_sectors_since_checkpoint),
                ..CheckpointReport::default()
            };
            (state.next_data, report)
        };
        // From here on no version below the floor is on its way into a record.
        if !plant::is(Bug::NoBarrierBeforePass) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        let mut cursor = Lba(0);
        while let Some(extents) = self.next_batch(&mut cursor, floor) {
            self.state.borrow_mut().pass_at = cursor;
            self.keep_pace(pace).await;
            if self.state.borrow().closing && !pass.materialise {
                return Err(VolumeError::Closed);
            }
            let before = report.home_write_sectors;
            self.copy_home(&extents, floor, pass.materialise, &mut report).await?;
            self.limit_rate(pace, report.home_write_sectors - before).await;
        }
        // Versions that were overwritten before the pass came to them were not copied: what
        // overwrote them must be durable before they may die, and so must the copies.
        self.state.borrow_mut().dirty_home |= self.below.volatile_cache;
        if !plant::is(Bug::FloorBeforeHomeDurable) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        if plant::is(Bug::ForgetBeforeFloor) {
            self.forget_below(floor);
        }
        self.raise_floor(Phase::Checkpoint, floor).await?;
        self.forget_below(floor);
        report.duration = self.runtime.now().since(started);
        Ok(report)
    }

    /// The next extents with versions below the floor, in order of address.
    fn next_batch(&self, cursor: &mut Lba, floor: DataSequence) -> Option<Vec<Extent>> {
        let state = self.state.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        let mut sectors = 0;
        for (extent, mapped) in state.map.iter_from(*cursor) {
            if sectors >= BATCH_SECTORS || extents.len() >= BATCH_RUNS {
                break;
            }
            *cursor = extent.end();
            if mapped.sequence < floor {
                let copied = match mapped.value {
                    Place::Log { .. } => extent.len.0,
                    Place::Zeroes { .. } | Place::Lost { .. } | Place::Buffered { .. } => 0,
                };
                sectors += copied;
                extents.push(extent);
            }
        }
        (!extents.is_empty()).then_some(extents)
    }

    async fn keep_pace(&self, pace: Pace) {
        while pace == Pace::Gentle && !self.is_idle() && self.state.borrow().starved == 0 {
            self.runtime.sleep(self.config().idle).await;
        }
    }

    async fn limit_rate(&self, pace: Pace, moved: Sectors) {
        if pace != Pace::Urgent && self.config().checkpoint_rate > 0 {
            let seconds = moved.bytes() as f64 / self.config().checkpoint_rate as f64;
            self.runtime.sleep(Nanos::from_secs_f64(seconds)).await;
        }
    }

    /// Everything below the durable floor is home: the table forgets it, and logs that held
    /// nothing else are free.
    fn forget_below(&self, floor: DataSequence) {
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            state.note_table_size();
            let mut gone: Vec<(LogId, u64)> = Vec::new();
            state.map.retain(|extent, mapped| {
                if mapped.sequence >= floor {
                    return true;
                }
                if let Some(log) = mapped.value.log() {
                    match gone.last_mut() {
                        Some((last, sectors)) if *last == log => *sectors += extent.len.0,
                        _ => gone.push((log, extent.len.0)),
                    }
                }
                false
            });
            for (log, sectors) in gone {
                state.sub_live(log, sectors);
            }
            for id in state.logs.ids() {
                state.logs.adjust(id, |log| log.raise_floor(floor));
                if state.logs.get(id).is_some() {
                    state.reset_candidates.push(id);
                }
            }
            state.reset_what_can_be();
            state.rewrite_after_checkpoint();
            state.counters.checkpoints += 1;
            state.counters.logged_since_checkpoint = 0;
            state.counters.logged_sectors_since_checkpoint = 0;
        }
        self.notify_progress();
    }
}
