//! The choice of the log for the next record.

use crate::LogId;
use manylogs_block::Sectors;
use manylogs_plant::{self as plant, Bug};

use super::{Logs, Store};

/// Chooses the log for a record: a policy of the system that uses the store.
pub trait Placement {
    /// A log with room for a record of `needed` sectors for which `ready` holds, if there is one.
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId>;
}

/// The result of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The record goes to `log`. `unopened` is a better log, if there is one, that must be opened
    /// before use.
    Log {
        /// The best log that is ready.
        log: LogId,
        /// The best log of all, if it is not ready.
        unopened: Option<LogId>,
    },
    /// No log is ready: this one must be opened before the record can go there.
    Open(LogId),
    /// The batch must wait: its stream has records in flight in a log that cannot take the batch.
    /// They must be durable before it may go elsewhere.
    Wait,
    /// No log can take the record. Room was set aside for it, so logs must have failed.
    Nowhere,
}

impl Store {
    /// Chooses the log for the next record, and names a better one that must be opened first.
    /// `None` if no entry waits.
    pub fn choose_log(&self, placement: &impl Placement) -> Option<Choice> {
        let first = *self.entries.pending.front()?;
        let slot = self.entries.slots.get(first);
        let needed = slot.reserved.log;
        if let Some(bound) = self.entries.streams.bound_to(slot.stream)
            && !plant::is(Bug::StreamSwitchesLog)
        {
            let takes = self.logs.takes(bound, needed) && self.is_ready(bound);
            return Some(match takes {
                true => Choice::Log { log: bound, unopened: None },
                false => Choice::Wait,
            });
        }
        let best = placement.choose(&self.logs, needed, &|_| true);
        let log = match best {
            Some(log) if self.is_ready(log) => best,
            _ => placement.choose(&self.logs, needed, &|log| self.is_ready(log)),
        };
        let unopened = best.filter(|_| best != log);
        Some(match (log, unopened) {
            (Some(log), unopened) => Choice::Log { log, unopened },
            (None, Some(unopened)) => Choice::Open(unopened),
            (None, None) => Choice::Nowhere,
        })
    }

    /// The log of the newest record in flight, if the next batch fits there.
    pub fn log_in_use(&self) -> Option<LogId> {
        let record = self.entries.records.last()?;
        let first = *self.entries.pending.front()?;
        let needed = self.entries.slots.get(first).reserved.log;
        let log = self.logs.get(record.log)?;
        (self.logs.is_open(record.log)
            && log.accepts(needed)
            && self.is_ready(record.log)
            && self.may_follow(first, record.log))
        .then_some(record.log)
    }
}
