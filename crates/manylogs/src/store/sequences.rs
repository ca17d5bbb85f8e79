//! Sequences that are handed out, and how many are left of those that were set aside.

use manylogs_logstore::{DataSequence, SequenceLimit};

use super::Store;
use manylogs_plant::{self as plant, Bug};

/// When so many are left the next step is set aside.
pub(crate) const LOW: u64 = SequenceLimit::STEP / 2;
/// And when only so many are left, which is never seen unless the device does not take a root for
/// hours, no more writes are accepted: those under way may need some.
pub(crate) const LAST: u64 = 1 << 20;

impl Store {
    /// The next version's number.
    pub(crate) fn take_data_sequence(&mut self) -> DataSequence {
        let sequence = self.next_data;
        self.next_data = sequence.next();
        self.note_sequences();
        sequence
    }

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

    pub(crate) fn are_sequences_low(&self) -> bool {
        let next = self.next_data.0.max(self.next_record.0);
        self.root.sequence_limit.0.saturating_sub(next) <= LOW
    }
}
