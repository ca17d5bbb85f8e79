//! Versions that are kept in the logs, in a pass: which go home all the same, how far their floor
//! rises, and which logs are emptied for those who need room.

use std::rc::Rc;

use manylogs_block::{Nanos, Sectors};
use manylogs_engine::{Moved, move_log};
use manylogs_logstore::store::KeptIn;
use manylogs_logstore::{DataSequence, Floors, Log, LogId};
use manylogs_plant::{self as plant, Bug};

use super::{Pass, Progress};
use crate::state::{Inner, State};

/// Logs that are kept for so much more than what lives in them are emptied when room is short, as
/// a numerator and a divisor, and this many logs beside.
const PINNED: (u64, u64) = (3, 2);
const PINNED_LOGS: u64 = 2;
/// What is taken for kept versions counts as no more than this share of the log space.
const PINNED_MOST: f64 = 0.9;
/// Room is short when less than this share of the log space is left, as a divisor. With a quarter,
/// logs that hold as much of others as of what is kept were emptied before the files were deleted.
const SHORT: u64 = 8;
/// Where logs are few so many of them must be left, as far as they are no more than a quarter.
const SHORT_LOGS: (u64, u64) = (4, 4);

/// A log that takes what is moved is asked to be opened so often, and waited for so long each time.
const OPENINGS: u32 = 32;
const LOOK: Nanos = Nanos::from_millis(100);

/// What is done next to empty logs.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// What lives in the first moves to the second.
    Move(LogId, LogId),
    /// This log must be opened first.
    Open(LogId),
}

/// The logs that are there for kept versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Sectors that live there.
    pub(crate) live: Sectors,
    /// What was appended to them.
    pub(crate) used: Sectors,
}

impl State {
    /// What is kept, and what the logs take that are there for it.
    pub(crate) fn pinned(&self) -> Pinned {
        let mut pinned = Pinned::default();
        for kept in self.store.logs_that_keep().values() {
            pinned.used += Sectors(kept.used);
            pinned.live += Sectors(kept.live);
        }
        pinned
    }
}

impl Inner {
    /// What may be kept in the logs; what is beyond goes home, oldest first.
    pub(crate) fn durable_budget(&self) -> Sectors {
        let share = self.config().durable_budget;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        let sectors = (self.layout.log_sectors().0 as f64 * share) as u64;
        Sectors(sectors)
    }

    /// Whether more is kept than may be.
    pub(crate) fn keeps_too_much(&self, state: &State) -> bool {
        state.store.kept_sectors() > self.durable_budget()
    }

    /// The kept versions that a pass leaves in the logs are not older than this.
    pub(super) fn keeps_from(
        &self,
        state: &State,
        pass: Pass,
        floor: DataSequence,
    ) -> DataSequence {
        let store = &state.store;
        if pass.materialise && !plant::is(Bug::DrainLeavesKept) {
            return floor;
        }
        // Somebody waits for room that passes do not make.
        if state.futility.has_failed() && !state.starved.is_empty() {
            return floor;
        }
        let Some(mut beyond) = store.kept_sectors().0.checked_sub(self.durable_budget().0) else {
            return store.floors().kept;
        };
        let mut by_age: Vec<(DataSequence, u64)> =
            store.kept().map(|(extent, mapped)| (mapped.sequence, extent.len.0)).collect();
        by_age.sort_unstable();
        for (sequence, sectors) in by_age {
            if beyond == 0 || sequence >= floor {
                return sequence.min(floor);
            }
            beyond = beyond.saturating_sub(sectors);
        }
        floor
    }

    /// The oldest kept version that the pass leaves. Asked before the barrier of the pass: what
    /// displaces a version afterwards may not be durable when the floor rises.
    pub(super) fn oldest_kept(&self, progress: &Progress) -> Option<DataSequence> {
        let state = self.engine.state.borrow();
        let kept = state.store.kept().map(|(_, mapped)| mapped.sequence);
        kept.filter(|sequence| *sequence >= progress.keeps_from).min()
    }

    /// The floors after a pass that raises the first to `home`. `kept` is the oldest version that
    /// it left.
    pub(super) fn floors_of_pass(
        &self,
        home: DataSequence,
        kept: Option<DataSequence>,
        progress: &Progress,
    ) -> Floors {
        let kept = match plant::is(Bug::KeptFloorWithoutBarrier) {
            true => self.oldest_kept(progress),
            false => kept,
        };
        let kept = kept.filter(|_| !plant::is(Bug::KeptFloorOverKept));
        let oldest = kept.into_iter().chain(progress.kept_back).min().unwrap_or(home);
        Floors { home, kept: oldest.min(home) }
    }

    /// Ends a pass. Where room is short what is kept moves to fewer logs; the caller holds the turn
    /// of cleaning.
    pub(super) async fn settle_kept(self: &Rc<Self>) {
        if self.engine.state.borrow().store.keeps() {
            self.empty_kept_logs().await;
            let mut state = self.engine.state.borrow_mut();
            let share = state.pinned().used.0 as f64 / self.layout.log_sectors().0.max(1) as f64;
            // All of the logs cannot be.
            state.pinned_share = share.min(PINNED_MOST);
        }
    }

    /// Empties logs of which little lives, if room is short: what is kept moves as it is, until the
    /// logs are there for little else.
    async fn empty_kept_logs(self: &Rc<Self>) {
        let (mut tried, mut asked) = (Vec::new(), 0);
        while let Some(next) = self.choose_emptying(&tried) {
            let (from, to) = match next {
                Next::Move(from, to) => (from, to),
                Next::Open(_) if asked == OPENINGS => return,
                Next::Open(log) => {
                    asked += 1;
                    let progress = self.engine.progress.wait();
                    self.engine.open_log(log);
                    self.engine.runtime.within(LOOK, progress).await;
                    continue;
                }
            };
            tried.push(from);
            self.engine.state.borrow_mut().store.set_aside(from);
            self.hurries.set(true);
            let moved = move_log(self, from, to).await;
            self.hurries.set(false);
            let mut state = self.engine.state.borrow_mut();
            state.store.put_back();
            state.store.reset_if_free(from);
            drop(state);
            self.engine.notify_progress();
            match moved {
                Ok(Moved::All | Moved::Nothing | Moved::InPart) => {}
                // What cannot be read stays where it is.
                Err(error) if error.is_local() => {}
                Err(_) => return,
            }
        }
    }

    /// A log to empty, and one that takes what lives there.
    fn choose_emptying(&self, tried: &[LogId]) -> Option<Next> {
        let state = self.engine.state.borrow();
        let store = &state.store;
        let (room, all) = (store.logs().room(), self.layout.log_sectors().0);
        let (logs, share) = SHORT_LOGS;
        let short = (all / SHORT).max((all / share).min(logs * longest(store)));
        let is_short = room.saturating_sub(store.reserved().log.0) < short;
        let kept = store.logs_that_keep();
        let has_begun = !tried.is_empty();
        let is_needed = has_begun || !state.starved.is_empty() || is_short;
        if store.read_only().is_some() || state.closing || !is_needed || !is_sparse(&kept, store) {
            return None;
        }
        let can_move = |log: &Log| !log.is_busy() && !log.is_retired();
        let movable =
            |id: &LogId| !tried.contains(id) && store.logs().get(*id).is_some_and(can_move);
        let sparsest = kept.iter().filter(|(id, _)| movable(id));
        let (from, what) = sparsest.min_by_key(|(_, kept)| kept.live * 1000 / kept.used.max(1))?;
        let takes = |id: &LogId| {
            let log = store.logs().get(*id);
            let free = log.map_or(store.logs().region(*id).len, Log::free);
            *id != *from && store.logs().is_open(*id) && free.0 > what.live
        };
        // The fullest that takes it: what was moved together stays together.
        let used = |id: &LogId| store.logs().get(*id).map_or(0, |log| log.used().0);
        let takers = || store.logs().ids().filter(takes);
        let ready = takers().filter(|id| store.is_ready(*id)).max_by_key(used);
        ready.map(|to| Next::Move(*from, to)).or_else(|| takers().max_by_key(used).map(Next::Open))
    }
}

/// Whether kept versions pin more than they may.
fn is_sparse(
    kept: &std::collections::BTreeMap<LogId, KeptIn>,
    store: &manylogs_logstore::store::Store,
) -> bool {
    let sum = |of: fn(&KeptIn) -> u64| kept.values().map(of).sum::<u64>();
    let (used, live) = (sum(|kept| kept.used), sum(|kept| kept.live));
    used > live * PINNED.0 / PINNED.1 + PINNED_LOGS * longest(store)
}

/// Sectors of the longest log.
fn longest(store: &manylogs_logstore::store::Store) -> u64 {
    store.logs().iter().map(|log| log.region().len.0).max().unwrap_or(0)
}
