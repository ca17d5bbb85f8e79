//! Versions kept in the logs, in a pass: which of them go home nevertheless, how far their floor
//! rises, and which of their logs are emptied when room is short.

use std::rc::Rc;

use manylogs_block::{Lba, Nanos, Sectors};
use manylogs_engine::{Moved, Unmoved, move_log};
use manylogs_logstore::store::{KeptIn, Place, Store};
use manylogs_logstore::{DataSequence, Floors, Log, LogId};
use manylogs_plant::{self as plant, Bug};

use super::owners::Leaving;
use super::{Pass, Progress};
use crate::state::{Inner, State};

/// Logs with kept versions are emptied, if room is short, when they use more than this multiple of
/// their live sectors (numerator and divisor), and this many logs more.
const PINNED: (u64, u64) = (3, 2);
const PINNED_LOGS: u64 = 2;
/// If there are few logs, these logs more count for at most this share of the log space, as a
/// divisor: two of four logs are no small allowance.
const PINNED_SHARE: u64 = 4;
/// The share of the log space that counts as taken by kept versions is at most this.
const PINNED_MOST: f64 = 0.9;
/// If kept metadata exceeds its budget, this part of the budget goes home as well, as a divisor, so
/// that passes are not small.
const METADATA_PART: u64 = 8;
/// Room is short when less than this share of the log space is left, as a divisor. A quarter was
/// too much: half-live logs were emptied although their files were about to be deleted.
const SHORT: u64 = 8;
/// If there are few logs, room is also short when less than this many of them is left. That counts
/// for at most this share of the log space, as a divisor.
const SHORT_LOGS: (u64, u64) = (4, 4);

/// Number of requests to open a log for moved versions, and the wait after each of them.
const OPENINGS: u32 = 32;
const LOOK: Nanos = Nanos::from_millis(100);

/// The next step in emptying logs.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Move the live versions of the first log to the second.
    Move(LogId, LogId),
    /// Open this log first.
    Open(LogId),
}

/// Sectors of the logs that hold kept versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Sectors of kept versions that are live there.
    pub(crate) live: Sectors,
    /// Sectors appended to these logs.
    pub(crate) used: Sectors,
}

impl State {
    /// Sectors of kept versions, and of the logs that hold them.
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
    /// Most sectors of content and metadata together that may be kept in the logs; versions beyond
    /// that go home, oldest first.
    fn durable_budget(&self) -> Sectors {
        let share = self.config().durable_budget;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        let sectors = (self.layout.log_sectors().0 as f64 * share) as u64;
        Sectors(sectors)
    }

    /// The most content, and the most metadata, that may be kept. Each may have what the other does
    /// not use, and half of the budget at least. So neither displaces all of the other, and they
    /// never have more than the budget together.
    fn budgets(&self, store: &Store) -> (Sectors, Sectors) {
        let all = self.durable_budget();
        let half = Sectors(all.0 / 2);
        let besides = |other: Sectors| match plant::is(Bug::BudgetTwice) {
            true => all,
            false => all - other.min(half),
        };
        (besides(store.kept_metadata_sectors()), besides(store.kept_sectors()))
    }

    /// Whether more is kept than the budget allows.
    pub(crate) fn keeps_too_much(&self, state: &State) -> bool {
        let store = &state.store;
        let (content, metadata) = self.budgets(store);
        store.kept_sectors() > content
            || (store.keeps_metadata() && store.kept_metadata_sectors() > metadata)
    }

    /// Kept versions from this sequence on stay in the logs in a pass. Of the older ones all leave
    /// them, or, beyond the budget, those of some owners.
    pub(super) fn keeps_from(
        &self,
        state: &State,
        pass: Pass,
        floor: DataSequence,
    ) -> (DataSequence, Option<Leaving>) {
        let store = &state.store;
        if pass.materialise && !plant::is(Bug::DrainLeavesKept) {
            return (floor, None);
        }
        // A request waits for room, and passes have not made any.
        if state.futility.has_failed() && !state.starved.is_empty() {
            return (floor, None);
        }
        let (content, _) = self.budgets(store);
        let exceeds = store.kept_sectors() > content;
        let leaving = exceeds.then(|| self.leaving(store, content, floor));
        // One floor for all kept versions: what is older than the metadata that goes home goes too.
        let content = leaving.as_ref().and_then(Leaving::before).unwrap_or(store.floors().kept);
        (content.max(self.metadata_from(store, pass, floor)), leaving)
    }

    /// Kept metadata from this sequence on may stay.
    fn metadata_from(&self, store: &Store, pass: Pass, floor: DataSequence) -> DataSequence {
        let (kept, stays) = (store.kept_metadata_sectors().0, store.floors().kept);
        if kept == 0 {
            return stays;
        }
        let other_mode = !store.keeps_metadata() && !plant::is(Bug::MetadataStaysInOtherMode);
        let leaves = pass.all_metadata || other_mode;
        if leaves {
            return store.newest_kept_metadata().map_or(stays, |newest| newest.next().min(floor));
        }
        let budget = self.budgets(store).1.0;
        if kept <= budget {
            return stays;
        }
        let beyond = kept - budget + budget / METADATA_PART;
        behind_oldest(store, |_, place| place.is_kept_metadata(), beyond, floor)
    }

    /// The oldest kept version that the pass leaves. It must be asked for before the pass's
    /// barrier: entries that displace a version later may not be durable when the floor rises.
    pub(super) fn oldest_kept(&self, progress: &Progress) -> Option<DataSequence> {
        let state = self.engine.state.borrow();
        let counts =
            |place: Place| !place.is_kept_metadata() || !plant::is(Bug::MetadataFloorOverKept);
        let kept = state.store.kept().filter(|(_, mapped)| counts(mapped.value));
        let sequences = kept.map(|(_, mapped)| mapped.sequence);
        sequences.filter(|sequence| *sequence >= progress.keeps_from).min()
    }

    /// The floors after a pass that raises the home floor to `home`. `kept` is the oldest kept
    /// version that the pass left.
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

    /// Ends a pass. If room is short, kept versions move to fewer logs. The caller holds the
    /// cleaning lock.
    pub(super) async fn settle_kept(self: &Rc<Self>) {
        if self.engine.state.borrow().store.keeps() {
            self.empty_kept_logs().await;
            let mut state = self.engine.state.borrow_mut();
            let share = state.pinned().used.0 as f64 / self.layout.log_sectors().0.max(1) as f64;
            // The kept versions must not count as all of the logs.
            state.pinned_share = share.min(PINNED_MOST);
        }
    }

    /// Empties sparse logs if room is short: their kept versions move unchanged, until the logs
    /// with kept versions hold little else.
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
            let moved = move_log(self, (from, to), &mut Unmoved::default()).await;
            self.hurries.set(false);
            let mut state = self.engine.state.borrow_mut();
            state.store.put_back();
            state.store.reset_if_free(from);
            drop(state);
            self.engine.notify_progress();
            match moved {
                Ok(Moved::All | Moved::Nothing | Moved::InPart) => {}
                // Versions that cannot be read stay in their log.
                Err(error) if error.is_local() => {}
                Err(_) => return,
            }
        }
    }

    /// A log to empty, and another that takes its live versions.
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
        // Whoever waits needs room more than the logs need rest. Otherwise all kept versions would
        // go home, although most of the logs with kept versions is dead.
        let waits = is_short && !state.starved.is_empty();
        let is_wanted = waits || is_sparse(&kept, store, all);
        if store.read_only().is_some() || state.closing || !is_needed || !is_wanted {
            return None;
        }
        let can_move = |log: &Log| !log.is_busy() && !log.is_retired();
        let movable =
            |id: &LogId| !tried.contains(id) && store.logs().get(*id).is_some_and(can_move);
        let gains = |kept: &KeptIn| 2 * kept.live <= kept.used;
        let sparsest = kept.iter().filter(|(id, kept)| movable(id) && gains(kept));
        let (from, what) = sparsest.min_by_key(|(_, kept)| kept.live * 1000 / kept.used.max(1))?;
        let takes = |id: &LogId| {
            let log = store.logs().get(*id);
            let free = log.map_or(store.logs().region(*id).len, Log::free);
            *id != *from && store.logs().is_open(*id) && free.0 > what.live
        };
        // The fullest log that can take them, so that moved versions stay together.
        let used = |id: &LogId| store.logs().get(*id).map_or(0, |log| log.used().0);
        let takers = || store.logs().ids().filter(takes);
        let ready = takers().filter(|id| store.is_ready(*id)).max_by_key(used);
        ready.map(|to| Next::Move(*from, to)).or_else(|| takers().max_by_key(used).map(Next::Open))
    }
}

/// The sequence from which versions stay if the oldest `beyond` sectors of those that `is` chooses
/// go home; `floor` if all of them do.
pub(super) fn behind_oldest(
    store: &Store,
    is: impl Fn(Lba, Place) -> bool,
    mut beyond: u64,
    floor: DataSequence,
) -> DataSequence {
    let chosen = store.kept().filter(|(extent, mapped)| is(extent.start, mapped.value));
    let mut by_age: Vec<(DataSequence, u64)> =
        chosen.map(|(extent, mapped)| (mapped.sequence, extent.len.0)).collect();
    by_age.sort_unstable();
    for (sequence, sectors) in by_age {
        if beyond == 0 || sequence >= floor {
            return sequence.min(floor);
        }
        beyond = beyond.saturating_sub(sectors);
    }
    floor
}

/// Whether kept versions occupy more of the log space, which has `all` sectors, than they may.
fn is_sparse(kept: &std::collections::BTreeMap<LogId, KeptIn>, store: &Store, all: u64) -> bool {
    let sum = |of: fn(&KeptIn) -> u64| kept.values().map(of).sum::<u64>();
    let (used, live) = (sum(|kept| kept.used), sum(|kept| kept.live));
    let more = (PINNED_LOGS * longest(store)).min(all / PINNED_SHARE);
    used > live * PINNED.0 / PINNED.1 + more
}

/// Sectors of the longest log.
fn longest(store: &Store) -> u64 {
    store.logs().iter().map(|log| log.region().len.0).max().unwrap_or(0)
}
