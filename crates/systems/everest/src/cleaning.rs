//! Cleaning from the tail: live versions in the oldest log are appended at the head, and then the
//! floor rises.

use std::rc::Rc;

use manylogs_block::{IoError, Sectors};
use manylogs_engine::{lose_member, raise_floor_to_oldest, renew_log};
use manylogs_logstore::store::{Cleaner, Device, Job};

use crate::ring::FromTail;
use crate::store::Inner;

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
        let _turn = self.cleaning.take().await;
        if self.is_over() {
            return Ok(false);
        }
        let job = {
            let state = self.engine.state.borrow();
            if state.store.read_only().is_some() {
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
            Ok(false) => return Ok(false),
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
        self.engine.notify_progress();
        Ok(resets() > before)
    }
}
