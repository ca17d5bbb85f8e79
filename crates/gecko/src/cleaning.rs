//! Cleaning by move-to-tail: live versions of the drive that the tail comes to next are appended at
//! the tail, segment by segment.

use std::rc::Rc;

use manylogs_block::{IoError, Sectors};
use manylogs_engine::{begin_epoch, renew_log, wait_durable};
use manylogs_logstore::store::Store;
use manylogs_logstore::{Log, LogId};

use crate::pace::is_dirty;
use crate::state::{Inner, State};
use crate::tail::is_blank;

impl Inner {
    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        loop {
            let asked = self.engine.wanted.wait();
            if self.engine.is_closed() {
                return;
            }
            let Some(victim) = self.next_victim() else {
                asked.await;
                continue;
            };
            if !matches!(self.clean(victim).await, Ok(true)) {
                // Those who wait for room would ask again at once: only a record or a read that
                // ends can change anything.
                self.engine.progress.wait().await;
            }
        }
    }

    fn next_victim(&self) -> Option<LogId> {
        let mut state = self.engine.state.borrow_mut();
        if state.store.read_only().is_some() {
            return None;
        }
        let victim = self.victim(&mut state)?;
        let live = state.store.logs().get(victim).map_or(0, Log::live);
        state.pace.begin(victim, Sectors(live.min(self.geometry.segment.0)));
        Some(victim)
    }

    /// Empties a segment; false if it is still needed, or there is no way to do it now.
    async fn clean(self: &Rc<Self>, victim: LogId) -> Result<bool, IoError> {
        let emptied = self.empty(victim).await;
        self.engine.state.borrow_mut().pace.end();
        self.engine.notify_progress();
        self.offer_room_to_clients();
        emptied
    }

    async fn empty(self: &Rc<Self>, victim: LogId) -> Result<bool, IoError> {
        if !renew_log(&**self, victim).await? {
            return Ok(false);
        }
        // The segment is needed until what displaced its content is durable.
        let last = self.engine.state.borrow_mut().store.force_all();
        self.engine.commit.notify();
        if let Some(last) = last {
            wait_durable(&**self, last).await?;
        }
        let freed = free(&mut self.engine.state.borrow_mut().store, victim);
        if freed {
            // Now, while the drive is not the tail's: the first record finds the epoch begun.
            let _ = begin_epoch(&**self, victim).await;
        }
        Ok(freed)
    }

    /// The segment to clean next: one of the next drive while cleaning is behind; and if room runs
    /// short all the same, one of another drive, the tail's last.
    fn victim(&self, state: &mut State) -> Option<LogId> {
        let is_due = self.cleaning_is_due(state);
        let next = self.next_drive(state);
        let (logs, tail) = (state.store.logs(), state.tail);
        let can_be_cleaned = |id: &LogId| {
            *id != tail && is_dirty(logs, *id) && logs.get(*id).is_some_and(|log| !log.is_busy())
        };
        if is_due && let Some(victim) = self.segments_of(next).find(can_be_cleaned) {
            return Some(victim);
        }
        let wanted = self.spared.log.0 + 4 * self.geometry.largest().log.0;
        if logs.room() >= wanted + state.store.reserved().log.0 {
            return None;
        }
        let drives = (0..self.geometry.drives).map(|i| (next + i) % self.geometry.drives);
        drives.flat_map(|drive| self.segments_of(drive)).find(can_be_cleaned)
    }

    /// Whether the cleaner may append more: it goes no faster than the tail needs it.
    pub(crate) async fn waits_for_its_turn(&self) -> bool {
        loop {
            let wanted = self.engine.wanted.wait();
            if self.engine.is_closed() {
                return false;
            }
            let short = {
                let mut state = self.engine.state.borrow_mut();
                let wanted = self.spared.log.0 + 4 * self.geometry.largest().log.0;
                let short = state.store.logs().room() < wanted + state.store.reserved().log.0;
                short || self.cleaning_is_due(&mut state)
            };
            if short {
                return true;
            }
            wanted.await;
        }
    }
}

/// Frees a segment that nothing needs any more, however little of it was used; false if it is
/// still needed.
fn free(store: &mut Store, segment: LogId) -> bool {
    store.reset_small(segment);
    is_blank(store.logs(), segment)
}
