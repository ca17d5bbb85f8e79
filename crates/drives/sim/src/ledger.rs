//! Every write that was sent to a disk, and when the disk acknowledged it as durable. Tests rely on
//! the ledger, not on the volume under test.

use std::rc::Rc;

use manylogs_block::{Extent, Payload, Time};

/// A moment in the life of an image: the number of the run, and the time in that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    run: u32,
    at: Time,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentWrite {
    /// Extent of the write.
    pub extent: Extent,
    /// Content of the write.
    pub payload: Payload,
    /// Time at which the write was submitted.
    pub submitted: Moment,
    /// When the disk acknowledged the write itself as durable: flushes do not count. A write
    /// without this is durable all the same when the next run begins, because each run flushes the
    /// disk first.
    pub durable: Option<Moment>,
    id: u64,
}

/// The writes that an image has seen, oldest first. Clones share what they do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    writes: Rc<Vec<SentWrite>>,
    run: u32,
}

impl SentWrite {
    /// Whether this write was certainly durable when `later` was sent, so that every task that
    /// waited for its answer had run by then.
    #[must_use]
    pub fn is_durable_before(&self, later: &Self) -> bool {
        self.submitted.run < later.submitted.run
            || self.durable.is_some_and(|durable| durable < later.submitted)
    }
}

impl Ledger {
    /// All writes, oldest first.
    pub fn writes(&self) -> impl DoubleEndedIterator<Item = &SentWrite> + ExactSizeIterator {
        self.writes.iter()
    }

    pub(crate) const fn begin_run(&mut self) {
        self.run += 1;
    }

    pub(crate) fn submitted(&mut self, id: u64, extent: Extent, payload: &Payload, at: Time) {
        let submitted = Moment { run: self.run, at };
        let payload = payload.clone();
        let write = SentWrite { extent, payload, submitted, durable: None, id };
        Rc::make_mut(&mut self.writes).push(write);
    }

    pub(crate) fn durable(&mut self, id: u64, at: Time) {
        let durable = Moment { run: self.run, at };
        let ours = |write: &&mut SentWrite| write.id == id && write.submitted.run == durable.run;
        let mut newest_first = Rc::make_mut(&mut self.writes).iter_mut().rev();
        if let Some(write) = newest_first.find(ours) {
            write.durable = Some(durable);
        }
    }
}
