//! Checkpoint: the newest versions go home in order of address. Then one number, the floor,
//! declares all older versions dead at once.

mod band;
mod copy;
pub(crate) mod futility;
mod home;
mod kept;
mod leading;
mod owners;
mod pace;
pub(crate) mod ration;
mod read;
mod rows;
pub(crate) mod suspect;
mod zeroes;

pub use leading::HomeForm;
pub use owners::{Owner, Owners};
pub(crate) use suspect::{CONFIRM_AFTER, CONFIRM_AT_ONCE};

use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Sectors, Time};
use manylogs_logstore::store::Place;
use manylogs_logstore::{DataSequence, Floors};

use self::copy::{Batch, Part};
use self::futility::Outcome;
use self::leading::Stage;
use self::owners::Leaving;
use crate::error::VolumeError;
use crate::reports::home_pace::HomeWork;
use crate::state::Inner;
use manylogs_engine::{Phase, raise_floor};
use manylogs_plant::{self as plant, Bug};

/// Limits of a batch: they bound memory, and the time for which clients may be locked out.
const BATCH_SECTORS: u64 = 8192;
const BATCH_RUNS: usize = 512;
/// Reads, or writes, in the device together while clients wait for the pass, so that their requests
/// need not wait for a whole batch. Otherwise the device gets the whole batch, to order it well.
const AT_ONCE_PRESSED: usize = 16;
/// Longest home write. Zeroed extents up to this length go home like data; longer ones stay in the
/// table.
const HOME_WRITE_MAX: Sectors = Sectors(2048);

/// Degree to which a checkpoint yields to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Between batches it waits until the volume is idle.
    Gentle,
    /// As fast as its rate limit allows.
    Steady,
    /// As fast as it can, because requests wait for room.
    Urgent,
}

/// Result of a checkpoint (the Manylogs paper, section VI, Fig. 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Time from the start to the durable floor.
    pub duration: Nanos,
    /// Client writes that were logged since the last checkpoint, and their length.
    pub logged_writes: u64,
    /// See `logged_writes`.
    pub logged_sectors: Sectors,
    /// Reads from logs, and their length.
    pub log_reads: u64,
    /// See `log_reads`.
    pub log_read_sectors: Sectors,
    /// Writes home, and their length: less than was logged, if blocks were overwritten or became
    /// neighbours.
    pub home_writes: u64,
    /// See `home_writes`.
    pub home_write_sectors: Sectors,
    /// Time spent reading logs.
    pub log_read_time: Nanos,
    /// Time spent writing home.
    pub home_write_time: Nanos,
    /// Extents that could not be written home: they stay logged, and the next pass tries again.
    pub kept_extents: u64,
    /// Extents whose logged copy is damaged: reads of them fail until they are overwritten.
    pub lost_extents: u64,
    /// Extents whose logged copy could not be read this time: they stay logged, and the next pass
    /// tries again.
    pub unread_extents: u64,
}

/// The purpose of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Degree to which the pass yields to clients.
    pub(crate) pace: Pace,
    /// Whether long zeroed extents are written out too, so that nothing is left in the logs.
    pub(crate) materialise: bool,
    /// Whether metadata that stays in the logs goes home as well.
    pub(crate) all_metadata: bool,
    /// Time for which a medium error must persist before the extent counts as lost.
    pub(crate) confirm_after: Nanos,
}

impl Pass {
    /// A pass that the volume begins on its own, at this pace.
    pub(crate) const fn at(pace: Pace) -> Self {
        let (materialise, all_metadata) = (false, false);
        Self { pace, materialise, all_metadata, confirm_after: CONFIRM_AFTER }
    }
}

/// A pass under way.
#[derive(Debug)]
struct Progress {
    pass: Pass,
    /// Versions below this sequence go home.
    floor: DataSequence,
    /// Versions that are kept in the logs go home only if they are older than this.
    keeps_from: DataSequence,
    /// Beyond the budget, whose kept content goes home; that of others is logged anew.
    leaving: Option<Leaving>,
    /// The home floor when the pass began: homes of older leading versions have their form.
    last_floor: DataSequence,
    /// What goes home now.
    stage: Stage,
    /// Whether homes of leading versions have a form of their own.
    has_form: bool,
    /// Whether kept content went home since the last pass, so that these forms may change.
    looks_again: bool,
    /// The oldest version that stays in a log unread: the floor may not rise above it.
    held_back: Option<DataSequence>,
    /// The same for the kept versions and their floor.
    kept_back: Option<DataSequence>,
    /// Long zeroed extents that must be written out.
    zeroed: Vec<Extent>,
    /// Number of versions found so far.
    versions: u64,
    /// Work to bring these versions home, for the estimate of the pace.
    work: HomeWork,
    /// Time that the pass spent waiting for clients or for its rate limit.
    waited: Nanos,
    report: CheckpointReport,
}

impl Inner {
    pub(crate) async fn checkpoint(
        self: &Rc<Self>,
        pass: Pass,
    ) -> Result<CheckpointReport, VolumeError> {
        let resets = self.engine.state.borrow().store.counters().log_resets;
        let result = self.run_pass(pass).await;
        self.note_pass(&result, resets);
        result
    }

    /// Repeats passes until every logged copy is read, or is lost for good.
    ///
    /// If the device fails, or keeps failing reads for other reasons than the medium
    /// ([`VolumeError::Unread`]): these versions stay logged.
    pub(crate) async fn checkpoint_all(
        self: &Rc<Self>,
        pass: Pass,
    ) -> Result<CheckpointReport, VolumeError> {
        let mut unread_since = None;
        loop {
            let report = self.checkpoint(pass).await?;
            if report.unread_extents == 0 {
                return Ok(report);
            }
            let now = self.engine.runtime.now();
            let unread_for = now.since(*unread_since.get_or_insert(now));
            // Medium errors have been confirmed by now, or are gone. The extents left failed for
            // other reasons.
            if unread_for.0 > 2 * pass.confirm_after.0 {
                return Err(VolumeError::Unread { extents: report.unread_extents });
            }
            self.engine.runtime.sleep(Nanos(pass.confirm_after.0 / 4)).await;
        }
    }

    /// Counts passes that fail, so that writes do not wait for ever if passes make no room.
    /// `resets` is the number of log resets before the pass.
    fn note_pass(&self, result: &Result<CheckpointReport, VolumeError>, resets: u64) {
        let mut guard = self.engine.state.borrow_mut();
        let state = &mut *guard;
        state.pass_at = Lba(0);
        let waiting = !state.starved.is_empty();
        let served = state.starved.any_served_by(&mut state.store);
        // Only the room for the waiting requests matters, not the room for later ones.
        let starved = waiting && !served;
        let mut reason = "the logs are full and what they hold cannot be written home";
        let outcome = match result {
            Ok(report) => {
                state.counters.kept_extents += report.kept_extents;
                state.counters.lost_extents += report.lost_extents;
                state.counters.unread_extents = report.unread_extents;
                if report.unread_extents > 0 {
                    reason = "the logs are full and what they hold cannot be read";
                }
                let left = report.kept_extents + report.unread_extents;
                let reset = state.store.counters().log_resets > resets;
                let moved = reset || report.home_write_sectors.0 > 0;
                match left {
                    0 if moved && !starved => Outcome::Useful,
                    0 => Outcome::Home { moved },
                    _ => Outcome::Kept,
                }
            }
            Err(VolumeError::Closed) => return,
            Err(_) => {
                state.counters.failed_checkpoints += 1;
                Outcome::Kept
            }
        };
        let enough = state.futility.note(self.engine.runtime.now(), outcome, starved);
        if enough {
            state.store.fail(reason);
        }
        drop(guard);
        if enough || served {
            self.engine.notify_progress();
        }
        // Wakes maintenance, which tries the left extents again later.
        self.engine.wanted.notify();
    }

    async fn run_pass(self: &Rc<Self>, pass: Pass) -> Result<CheckpointReport, VolumeError> {
        let _turn = self.cleaning.take().await;
        let result = self.bring_home(pass).await;
        self.engine.state.borrow_mut().ration = None;
        match result {
            Ok(_) => self.settle_kept().await,
            Err(_) => self.engine.state.borrow_mut().kept_left = true,
        }
        result
    }

    async fn bring_home(self: &Rc<Self>, pass: Pass) -> Result<CheckpointReport, VolumeError> {
        self.may_go_on(pass)?;
        let started = self.engine.runtime.now();
        let mut progress = self.begin_pass(pass);
        // After this, no version below the floor is on its way into a record.
        if !plant::is(Bug::NoBarrierBeforePass) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        self.copy_batches(&mut progress).await?;
        if self.ends_content(&mut progress).await? {
            self.copy_batches(&mut progress).await?;
        }
        self.finish_pass(started, progress).await
    }

    /// Brings home what the pass takes, in order of address.
    async fn copy_batches(self: &Rc<Self>, progress: &mut Progress) -> Result<(), VolumeError> {
        let pass = progress.pass;
        let mut cursor = Lba(0);
        while let Some(batch) = self.next_batch(&mut cursor, progress) {
            self.engine.state.borrow_mut().pass_at = cursor;
            self.give_out_room(pass, progress.versions, batch.versions);
            let asked = self.engine.runtime.now();
            self.yield_to_clients(pass).await?;
            let (began, before) = (self.engine.runtime.now(), progress.report.home_write_sectors);
            let extents = batch.parts.iter().map(|part| part.extent);
            progress.work = progress.work.and(self.home_work(extents));
            self.copy_home(&batch, progress).await?;
            self.write_zeroes_home(progress).await?;
            let moved = progress.report.home_write_sectors - before;
            progress.versions += batch.versions;
            let done = self.engine.runtime.now();
            self.limit_rate(pass, began, moved).await?;
            let limited = self.engine.runtime.now().since(done);
            progress.waited = progress.waited + began.since(asked) + limited;
        }
        Ok(())
    }

    /// Raises the floors over what the pass has brought home.
    async fn finish_pass(
        self: &Rc<Self>,
        started: Time,
        progress: Progress,
    ) -> Result<CheckpointReport, VolumeError> {
        self.engine.state.borrow_mut().suspects.end();
        // Versions that were overwritten before the pass reached them were not copied. The versions
        // that replaced them must be durable before the floor rises. So must the copies at home.
        self.engine.state.borrow_mut().home.is_dirty |= self.below.volatile_cache;
        let kept = self.oldest_kept(&progress);
        if !plant::is(Bug::FloorBeforeHomeDurable) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        // The oldest version that could not be read stays logged, and so does all that is newer.
        let floor = progress.held_back.map_or(progress.floor, |oldest| oldest.min(progress.floor));
        let floor = if plant::is(Bug::FloorOverUnread) { progress.floor } else { floor };
        let before = self.engine.state.borrow().store.floors();
        let floors = self.floors_of_pass(floor.max(before.home), kept, &progress);
        if plant::is(Bug::ForgetBeforeFloor) {
            self.forget_below(floors);
        }
        if floors.rise_above(before) {
            raise_floor(&**self, Phase::Checkpoint, floors).await?;
            self.forget_below(floors);
        }
        let duration = self.engine.runtime.now().since(started);
        let took = Nanos(duration.0.saturating_sub(progress.waited.0));
        let pace = self.pace();
        self.engine.state.borrow_mut().passes_seen.note(pace, progress.work, took);
        Ok(CheckpointReport { duration, ..progress.report })
    }

    fn begin_pass(&self, pass: Pass) -> Progress {
        let mut state = self.engine.state.borrow_mut();
        state.suspects.begin();
        let report = CheckpointReport {
            logged_writes: state.counters.logged_since_checkpoint,
            logged_sectors: Sectors(state.counters.logged_sectors_since_checkpoint),
            ..CheckpointReport::default()
        };
        let floor = state.store.next_data();
        let (keeps_from, leaving) = self.keeps_from(&state, pass, floor);
        let last_floor = state.store.floors().home;
        let mut progress = Progress {
            pass,
            floor,
            keeps_from,
            leaving,
            last_floor,
            stage: Stage::Content,
            has_form: false,
            looks_again: false,
            held_back: None,
            kept_back: None,
            zeroed: Vec::new(),
            versions: 0,
            work: HomeWork::default(),
            waited: Nanos(0),
            report,
        };
        self.begin_leading(&mut state, &mut progress);
        progress
    }

    /// The next extents with versions that go home, in order of address.
    fn next_batch(&self, cursor: &mut Lba, progress: &Progress) -> Option<Batch> {
        let band = self.band();
        if band > Sectors(0) {
            return self.next_bands(cursor, progress, band);
        }
        let state = self.engine.state.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        let mut sectors = 0;
        for (extent, mapped) in state.store.map().iter_from(*cursor) {
            if sectors >= BATCH_SECTORS || extents.len() >= BATCH_RUNS {
                break;
            }
            *cursor = extent.end();
            if progress.takes(&mapped) {
                let copied = match mapped.value {
                    Place::Log { .. } => extent.len.0,
                    Place::Zeroes { .. } if extent.len <= HOME_WRITE_MAX => extent.len.0,
                    Place::Zeroes { .. } | Place::Lost { .. } | Place::Buffered { .. } => 0,
                };
                sectors += copied;
                extents.push(extent);
            }
        }
        let versions = extents.len() as u64;
        let parts = extents.into_iter().map(|extent| Part { extent, whole: None }).collect();
        (versions > 0).then_some(Batch { parts, versions })
    }

    /// Forgets all versions below the durable floors: they are home. Logs that held no other
    /// versions become free.
    fn forget_below(&self, floors: Floors) {
        {
            let mut state = self.engine.state.borrow_mut();
            let state = &mut *state;
            let before = state.store.counters().kept_home_sectors;
            state.store.forget_below(floors);
            state.kept_left |= state.store.counters().kept_home_sectors > before;
            state.counters.checkpoints += 1;
            state.counters.logged_since_checkpoint = 0;
            state.counters.logged_sectors_since_checkpoint = 0;
        }
        self.engine.notify_progress();
    }
}
