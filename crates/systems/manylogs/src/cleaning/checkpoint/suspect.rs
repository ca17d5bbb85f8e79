//! Logged copies that could not be read. A device may fail a read and serve it a moment later, so a
//! checkpoint gives up no version at the first failure. The version stays logged, and the floor
//! stays below it. A block is lost only if the medium itself reports an error, and reports it again
//! later.

use std::collections::BTreeMap;

use manylogs_block::{IoError, Lba, Nanos, Time};
use manylogs_logstore::DataSequence;
use manylogs_plant::{self as plant, Bug};

/// A medium error is believed if it is reported again after this time.
pub(crate) const CONFIRM_AFTER: Nanos = Nanos::from_secs(60);
/// The same for a repair, for which the owner has given up on the device.
pub(crate) const CONFIRM_AT_ONCE: Nanos = Nanos::from_secs(2);

/// The first sector that could not be read, and the sequence of its version.
pub(crate) type Which = (Lba, DataSequence);

/// Decision about a logged copy that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The copy stays logged, and a later pass tries again.
    Wait,
    /// The medium has confirmed that the copy is gone.
    Lost,
}

/// The copies that the present pass, or the last one, could not read. Each has the time of the
/// first medium error, or `None` while the device has given other reasons only.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    now: BTreeMap<Which, Option<Time>>,
    before: BTreeMap<Which, Option<Time>>,
}

impl Suspects {
    /// Notes the begin of a pass.
    pub(super) fn begin(&mut self) {
        self.before.append(&mut self.now);
    }

    /// Notes the end of a pass: copies that it did not meet again have been read or overwritten.
    pub(super) fn end(&mut self) {
        self.before.clear();
    }

    /// Whether no copy has been unreadable lately.
    pub(crate) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.before.is_empty()
    }

    /// Decides about a copy whose read has failed again with `error`.
    pub(super) fn judge(
        &mut self,
        which: Which,
        error: &IoError,
        at: Time,
        confirm_after: Nanos,
    ) -> Verdict {
        let spoken = error.is_damage();
        if plant::is(Bug::TransientIsLoss) && !spoken {
            return Verdict::Lost;
        }
        let known = self.before.get(&which).copied().flatten();
        let since = if spoken { known.or(Some(at)) } else { known };
        if spoken && since.is_some_and(|since| at.since(since) >= confirm_after) {
            return Verdict::Lost;
        }
        self.now.insert(which, since);
        Verdict::Wait
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Extent;

    use super::*;

    const WHICH: Which = (Lba(8), DataSequence(5));
    const MEDIUM: IoError = IoError::Medium { extent: Extent::new(0, 1) };
    const TRANSIENT: IoError = IoError::Transient { extent: Extent::new(0, 1) };

    fn pass(suspects: &mut Suspects, error: &IoError, second: u64) -> Verdict {
        suspects.begin();
        let at = Time(0) + Nanos::from_secs(second);
        let verdict = suspects.judge(WHICH, error, at, CONFIRM_AFTER);
        suspects.end();
        verdict
    }

    #[test]
    fn the_medium_must_say_it_twice_a_minute_apart() {
        let mut suspects = Suspects::default();
        for second in [0, 1, 59] {
            assert_eq!(pass(&mut suspects, &MEDIUM, second), Verdict::Wait);
        }
        assert_eq!(pass(&mut suspects, &MEDIUM, 60), Verdict::Lost);
        assert!(suspects.is_empty());
    }

    #[test]
    fn other_errors_never_make_a_loss_and_confirm_none() {
        let mut suspects = Suspects::default();
        assert_eq!(pass(&mut suspects, &MEDIUM, 0), Verdict::Wait);
        assert_eq!(pass(&mut suspects, &TRANSIENT, 1000), Verdict::Wait);
        assert_eq!(pass(&mut suspects, &MEDIUM, 1001), Verdict::Lost, "as it said at first");
        assert_eq!(pass(&mut suspects, &TRANSIENT, 2000), Verdict::Wait);
        assert_eq!(pass(&mut suspects, &MEDIUM, 3000), Verdict::Wait, "for the first time");
    }

    #[test]
    fn a_copy_that_was_read_meanwhile_is_no_suspect() {
        let mut suspects = Suspects::default();
        assert_eq!(pass(&mut suspects, &MEDIUM, 0), Verdict::Wait);
        suspects.begin();
        suspects.end();
        assert!(suspects.is_empty());
        assert_eq!(pass(&mut suspects, &MEDIUM, 100), Verdict::Wait);
    }
}
