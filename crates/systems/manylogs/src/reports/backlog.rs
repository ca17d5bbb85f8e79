//! The lengths of an open volume's queues.

use std::rc::Rc;

use crate::volume::Volume;

/// Lengths of the volume's internal queues. All are zero when the volume has been idle for a while.
/// A queue that does not become empty would grow as long as the volume is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Client requests that have not been answered.
    pub requests: usize,
    /// Entries that wait for a record.
    pub pending: usize,
    /// Entries on their way into a log, including those that wait.
    pub entries: usize,
    /// Tickets from the oldest entry that is not durable to the newest.
    pub tickets: usize,
    /// Records in flight.
    pub records: usize,
    /// Supersede entries that wait for a flush, or are not durable yet.
    pub supersedes: usize,
    /// Flushes that wait.
    pub flushes: usize,
    /// Writes that wait for room in the logs.
    pub starved: usize,
    /// Sectors of log space that are reserved.
    pub reserved_sectors: u64,
    /// Bytes of non-volatile RAM that are reserved.
    pub reserved_nvram_bytes: u64,
    /// Acknowledged sectors that are only in memory.
    pub volatile_sectors: u64,
    /// Extents whose homes are locked.
    pub locked_homes: usize,
    /// Logs that may be free but have not been checked.
    pub reset_candidates: usize,
}

impl Volume {
    /// Requests and entries that wait inside the volume now.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let inner = self.shared();
        let state = inner.engine.state.borrow();
        Backlog {
            requests: Rc::strong_count(&inner.activity) - 1,
            pending: state.store.entries().pending.len(),
            entries: state.store.entries().slots.len(),
            tickets: state.store.entries().tickets.len(),
            records: state.store.entries().records.len(),
            supersedes: state.home.supersedes(&state.store),
            flushes: state.flushes.len(),
            starved: state.starved.len(),
            reserved_sectors: state.store.reserved().log.0,
            reserved_nvram_bytes: state.store.reserved().apart_bytes,
            volatile_sectors: state.volatile_sectors(),
            locked_homes: inner.locks.len(),
            reset_candidates: state.store.reset_candidates(),
        }
    }
}
