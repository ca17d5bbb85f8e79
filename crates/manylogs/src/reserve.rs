//! Setting sequences aside while a volume is in use.

use std::rc::Rc;

use manylogs_logstore::SequenceLimit;

use crate::phase::Phase;
use crate::state::{Inner, State};
use manylogs_plant::{self as plant, Bug};

/// When so many are left the next step is set aside.
const LOW: u64 = SequenceLimit::STEP / 2;
/// And when only so many are left, which is never seen unless the device does not take a root for
/// hours, no more writes are accepted: those under way may need some.
const LAST: u64 = 1 << 20;

impl State {
    /// Looks after sequences when some were taken.
    pub(crate) fn note_sequences(&mut self) {
        let next = self.next_data.0.max(self.next_record.0);
        let left = self.root.sequence_limit.0.saturating_sub(next);
        if left > LOW || plant::is(Bug::SequencesNotSetAside) {
            return;
        }
        self.sequences_low.notify();
        if left < LAST && self.read_only.is_none() {
            self.fail("no more sequence numbers could be set aside");
        }
    }

    fn are_sequences_low(&self) -> bool {
        let next = self.next_data.0.max(self.next_record.0);
        self.root.sequence_limit.0.saturating_sub(next) <= LOW
    }
}

impl Inner {
    /// Sets more sequences aside whenever they run low, until the volume is closed.
    pub(crate) async fn run_reserver(self: Rc<Self>) {
        let low = self.state.borrow().sequences_low.clone();
        loop {
            let asked = low.wait();
            if self.state.borrow().closed {
                return;
            }
            if self.state.borrow().are_sequences_low() {
                let extended = self.state.borrow().root.sequence_limit.extended();
                let Some(limit) = extended else { return };
                let update = self.update_root(Phase::Open, |root| root.sequence_limit = limit);
                // Without it the volume takes no more writes.
                let _ = update.await;
            }
            asked.await;
        }
    }
}
