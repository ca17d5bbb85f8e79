//! Which logs may take records.

use crate::LogId;

use super::Store;
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// Whether records may be appended to `log`: it is opened in the root, and its epoch has begun.
    pub fn is_ready(&self, log: LogId) -> bool {
        (self.is_opened(log) || plant::is(Bug::OpenedSetLate)) && self.has_begun(log)
    }

    /// Whether the log's epoch has begun durably, so that records may follow.
    pub fn has_begun(&self, log: LogId) -> bool {
        let floor = self.roots.on_disk.floor;
        if plant::is(Bug::EpochNotBegun) {
            return true;
        }
        self.logs.get(log).is_none_or(|log| log.is_begun(floor))
    }

    /// Whether the root allows records in `log`.
    pub fn is_opened(&self, log: LogId) -> bool {
        if self.apart.is_some() {
            // Recovery does not look for records in the logs.
            return true;
        }
        let opened =
            self.roots.on_disk.snapshot.is_none() || self.roots.on_disk.opened.contains(log);
        opened
            && self.roots.on_disk.used.contains(log)
            && self.roots.next_opened.as_ref().is_none_or(|next| next.contains(log))
    }
}
