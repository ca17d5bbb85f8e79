//! The sequences to hand out, and the number left of those that were set aside.

use crate::{DataSequence, RecordSequence, SequenceLimit};
use manylogs_block::Signal;

use super::Store;
use manylogs_plant::{self as plant, Bug};

/// The next step is set aside when no more than this many are left.
pub const LOW: u64 = SequenceLimit::STEP / 2;
/// When fewer are left, the store takes no more entries, because those under way may need some.
/// That happens only if the device has accepted no root for hours.
pub const LAST: u64 = 1 << 20;

/// Sequence numbers of versions and records.
#[derive(Debug)]
pub struct Sequences {
    /// The next version's number.
    pub(super) next_data: DataSequence,
    /// The next record's number.
    pub(super) next_record: RecordSequence,
    /// Notified when more sequences must be set aside.
    pub(super) low: Signal,
}

impl Default for Sequences {
    fn default() -> Self {
        let first = SequenceLimit::NONE_USED.0;
        let (next_data, next_record) = (DataSequence(first), RecordSequence(first));
        Self { next_data, next_record, low: Signal::default() }
    }
}

impl Sequences {
    /// Number of sequences that are left below `limit`.
    fn left(&self, limit: SequenceLimit) -> u64 {
        limit.0.saturating_sub(self.next_data.0.max(self.next_record.0))
    }
}

impl Store {
    /// The data sequence of the next version.
    #[must_use]
    pub const fn next_data(&self) -> DataSequence {
        self.sequences.next_data
    }

    /// The sequence before that of the next record. No record that was begun has a greater one.
    #[must_use]
    pub const fn last_record(&self) -> RecordSequence {
        RecordSequence(self.sequences.next_record.0.saturating_sub(1))
    }

    /// Makes versions and records take sequences from `first` on.
    pub const fn number_from(&mut self, first: u64) {
        self.sequences.next_data = DataSequence(first);
        self.sequences.next_record = RecordSequence(first);
    }

    /// Notified when more sequences must be set aside.
    #[must_use]
    pub fn sequences_low(&self) -> Signal {
        self.sequences.low.clone()
    }

    /// Takes the data sequence for the next version.
    pub fn take_data_sequence(&mut self) -> DataSequence {
        let sequence = self.sequences.next_data;
        self.sequences.next_data = sequence.next();
        self.note_sequences();
        sequence
    }

    /// Asks for more sequences if few are left, and stops the store if almost none are.
    pub fn note_sequences(&mut self) {
        let left = self.sequences.left(self.roots.on_disk.sequence_limit);
        if left > LOW || plant::is(Bug::SequencesNotSetAside) {
            return;
        }
        self.sequences.low.notify();
        if left < LAST && self.read_only.is_none() {
            self.fail("no more sequence numbers could be set aside");
        }
    }

    /// Whether more sequences should be set aside.
    pub fn are_sequences_low(&self) -> bool {
        self.sequences.left(self.roots.on_disk.sequence_limit) <= LOW
    }
}
