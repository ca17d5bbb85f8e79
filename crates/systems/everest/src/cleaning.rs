//! Cleaning from the tail: live versions in the oldest log are appended at the head, and then the
//! floor rises.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{IoError, Sectors, TaskLock};
use manylogs_engine::{lose_member, raise_floor_to_oldest, renew_log};
use manylogs_logstore::store::{Cleaner, Device, Job};
use manylogs_plant::{self as plant, Bug};

use crate::ring::FromTail;
use crate::store::{Inner, State};

/// Cleaning, and what it has gained since clients last changed something: a store whose versions
/// fill records badly, however they are arranged, has nothing to gain from logs that look sparse.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// Held while a log is cleaned.
    pub(crate) turns: TaskLock,
    /// Changes of clients so far.
    changes: Cell<u64>,
    /// The most room that there was between two logs since the last change.
    most: Cell<u64>,
    /// Logs that were emptied, or whose versions found no room, since there was so much.
    in_vain: Cell<usize>,
}

impl Cleaning {
    /// Whether a whole round of the ring has gained nothing since the clients' last change.
    fn is_in_vain(&self, state: &State) -> bool {
        if self.changes.replace(state.versions.changes()) != state.versions.changes() {
            self.most.set(0);
            self.in_vain.set(0);
        }
        let (room, count) = (state.store.logs().room(), state.store.logs().count());
        if room > self.most.get() {
            self.most.set(room);
            self.in_vain.set(0);
        }
        self.in_vain.get() > count && !plant::is(Bug::CleansForEver)
    }

    /// Counts a log that was emptied, or for which there was no room. If there is more room after
    /// it, the count begins anew. An error does not count: the disk may read again.
    fn counts(&self) {
        self.in_vain.set(self.in_vain.get() + 1);
    }
}

impl Inner {
    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        loop {
            let asked = self.engine.wanted.wait();
            while !self.is_over() && self.clean_one().await.unwrap_or(false) {}
            if self.is_over() {
                return;
            }
            asked.await;
        }
    }

    fn is_over(&self) -> bool {
        self.engine.is_closed() || self.closing.get()
    }

    /// Empties one log; false if there is nothing to gain.
    async fn clean_one(&self) -> Result<bool, IoError> {
        let _turn = self.cleaning.turns.take().await;
        if self.is_over() {
            return Ok(false);
        }
        let job = {
            let state = self.engine.state.borrow();
            if state.store.read_only().is_some() || self.cleaning.is_in_vain(&state) {
                return Ok(false);
            }
            let [for_cleaning, for_deletions] = self.spared;
            // A few of the longest writes should find room without waiting.
            let wanted = for_cleaning.log + for_deletions.log + Sectors(4 * self.record.0);
            let devices = (0..).map(Device).zip(self.engine.members.iter());
            let gone = devices.filter(|(_, member)| member.is_gone()).map(|(device, _)| device);
            FromTail { head: state.head, wanted, gone: gone.collect() }.next(&state.store)
        };
        let Some(Job::Renew(log)) = job else { return Ok(false) };
        let resets = || self.engine.state.borrow().store.counters().log_resets;
        let before = resets();
        match renew_log(self, log).await {
            Ok(true) => {}
            Ok(false) => {
                self.cleaning.counts();
                return Ok(false);
            }
            Err(error) => {
                // Perhaps nobody writes to that device any more, so that no record would find out
                // that it is gone.
                if error == IoError::Gone {
                    let device = self.engine.state.borrow().store.logs().device(log);
                    lose_member(self, device);
                }
                return Err(error);
            }
        }
        raise_floor_to_oldest(self).await?;
        self.cleaning.counts();
        self.engine.notify_progress();
        Ok(resets() > before)
    }
}
