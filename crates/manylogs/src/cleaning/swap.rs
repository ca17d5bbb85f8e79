//! Log swapping (seed 000 section III-G): in idle time the content of a full hot log moves to an
//! empty cold one, so that small writes near the head go on finding room.

use std::rc::Rc;

use manylogs_engine::{Moved, move_log};
use manylogs_logstore::store::{Cleaner, Job, Store};
use manylogs_logstore::{Log, LogId};

use crate::records::placement::farthest_empty;
use crate::state::Inner;

impl Inner {
    /// Moves the fullest log above the threshold, if there is one and a place for it; true if a
    /// log was moved.
    pub(crate) async fn swap_one(self: &Rc<Self>) -> bool {
        let _turn = self.cleaning.take().await;
        let Some((from, to)) = self.choose_swap() else { return false };
        self.engine.state.borrow_mut().store.logs.set_aside(from);
        let moved = move_log(self, from, to).await;
        let mut state = self.engine.state.borrow_mut();
        state.store.logs.put_back();
        state.store.overtakers.clear();
        if !matches!(moved, Ok(Moved::InPart)) {
            // The log is free, or waits for newer versions to become durable, or is damaged, which
            // a checkpoint will find. Trying again would not help.
            state.store.noted.remove(&from);
        }
        if let Ok(Moved::All) = moved {
            state.counters.log_swaps += 1;
            state.store.reset_candidates.push(from);
            state.store.reset_what_can_be();
        }
        drop(state);
        self.engine.notify_progress();
        matches!(moved, Ok(Moved::All))
    }

    fn choose_swap(&self) -> Option<(LogId, LogId)> {
        let state = self.engine.state.borrow();
        if state.store.read_only.is_some() {
            return None;
        }
        let Some(Job::Move { from, to }) = SwapFullest.next(&state.store) else { return None };
        let used = state.store.logs.get(from).map_or(0, |log| log.used().0);
        if !state.store.is_ready(to) {
            // The target must be opened first. The next idle moment finds it again.
            self.engine.open_log(to);
            return None;
        }
        // While the log moves, its content takes room twice.
        let enough = state.store.reserved.log.0 + 2 * used <= state.store.logs.room();
        enough.then_some((from, to))
    }
}

/// The fullest log that clients filled moves to an empty one as far away as there is.
struct SwapFullest;

impl Cleaner for SwapFullest {
    fn next(&mut self, store: &Store) -> Option<Job> {
        let can_move = |log: &&Log| !log.is_busy() && !log.is_retired();
        let hot = store.noted.iter().filter_map(|id| store.logs.get(*id));
        let from = hot.filter(can_move).max_by_key(|log| log.used())?;
        let to = farthest_empty(&store.logs, from.region().start, from.id())?;
        Some(Job::Move { from: from.id(), to })
    }
}
