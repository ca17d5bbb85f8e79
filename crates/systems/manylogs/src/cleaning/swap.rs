//! Log swapping (the Manylogs paper, section III-G): in idle time the content of a full hot log
//! moves to an empty cold one. So small writes near the head still find room.

use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;

use manylogs_engine::{Moved, Unmoved, move_log};
use manylogs_logstore::store::{Cleaner, Job, Logs, Store};
use manylogs_logstore::{Epoch, Log, LogId};

use crate::records::placement::cold_empty;
use crate::state::{Inner, State};

/// Logs above the swap threshold.
#[derive(Debug, Default)]
pub(crate) struct FullLogs {
    /// Each with the epoch in which clients filled it. A log that has begun another no longer
    /// counts.
    logs: BTreeMap<LogId, Epoch>,
    /// Of the log of which a move was interrupted last.
    unmoved: Unmoved,
}

impl FullLogs {
    /// Notes that `log` is full; false if that was known.
    pub(crate) fn insert(&mut self, log: &Log) -> bool {
        self.logs.insert(log.id(), log.epoch()) != Some(log.epoch())
    }

    fn remove(&mut self, log: LogId) {
        self.logs.remove(&log);
    }

    /// The logs that are still full.
    fn iter<'a>(&'a self, logs: &'a Logs) -> impl Iterator<Item = &'a Log> {
        let full = self.logs.iter().filter_map(|(id, epoch)| Some((logs.get(*id)?, *epoch)));
        let full = full.filter(|(log, epoch)| log.epoch() == *epoch && log.used().0 > 0);
        full.map(|(log, _)| log)
    }
}

impl State {
    /// Whether there are logs to swap.
    pub(crate) fn has_full_logs(&self) -> bool {
        self.full.iter(self.store.logs()).next().is_some()
    }
}

impl Inner {
    /// Moves the fullest log above the threshold, if there is such a log and a place for it. True
    /// if a log was moved.
    pub(crate) async fn swap_one(self: &Rc<Self>) -> bool {
        let _turn = self.cleaning.take().await;
        let Some((from, to)) = self.choose_swap() else { return false };
        let mut found = {
            let mut state = self.engine.state.borrow_mut();
            state.store.set_aside(from);
            mem::take(&mut state.full.unmoved)
        };
        let moved = move_log(self, (from, to), &mut found).await;
        let mut state = self.engine.state.borrow_mut();
        state.full.unmoved = found;
        state.store.put_back();
        if !matches!(moved, Ok(Moved::InPart)) {
            // Trying again would not help: the log is free, or waits for newer versions to become
            // durable, or is damaged, which a checkpoint will find.
            state.full.remove(from);
        }
        if let Ok(Moved::All) = moved {
            state.counters.log_swaps += 1;
            state.store.reset_if_free(from);
        }
        drop(state);
        self.engine.notify_progress();
        matches!(moved, Ok(Moved::All))
    }

    fn choose_swap(&self) -> Option<(LogId, LogId)> {
        let state = self.engine.state.borrow();
        if state.store.read_only().is_some() {
            return None;
        }
        let Some(Job::Move { from, to }) = SwapFullest(&state.full).next(&state.store) else {
            return None;
        };
        let used = state.store.logs().get(from).map_or(0, |log| log.used().0);
        if !state.store.is_ready(to) {
            // The target must be opened first. In the next idle moment it is chosen again.
            self.engine.open_log(to);
            return None;
        }
        // During the move the content takes room in both logs.
        let enough = state.store.reserved().log.0 + 2 * used <= state.store.logs().room();
        enough.then_some((from, to))
    }
}

/// Moves the fullest log that clients filled to an empty one, see [`cold_empty`].
struct SwapFullest<'a>(&'a FullLogs);

impl Cleaner for SwapFullest<'_> {
    fn next(&mut self, store: &Store) -> Option<Job> {
        let can_move = |log: &&Log| !log.is_busy() && !log.is_retired();
        let hot = self.0.iter(store.logs());
        let from = hot.filter(can_move).max_by_key(|log| log.used())?;
        let to = cold_empty(store.logs(), from.id())?;
        Some(Job::Move { from: from.id(), to })
    }
}
