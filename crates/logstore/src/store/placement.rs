//! Which log takes the next record.

use crate::LogId;
use manylogs_block::Sectors;

use super::{Logs, Store};

/// Chooses the log for a record: the policy of whoever uses the store.
pub trait Placement {
    /// A log with room for a record of `needed` sectors for which `ready` holds, if there is one.
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId>;
}

/// What a placement came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The best log that is ready.
    pub log: Option<LogId>,
    /// The best log of all, if it must be opened first.
    pub unopened: Option<LogId>,
}

impl Store {
    /// The log that takes the next record, and the one that should; `None` if no entry waits.
    pub fn choose_log(&self, placement: &impl Placement) -> Option<Choice> {
        let first = *self.entries.pending.front()?;
        let needed = self.entries.slots.get(first).reserved.log;
        let best = placement.choose(&self.logs, needed, &|_| true);
        let log = match best {
            Some(log) if self.is_ready(log) => best,
            _ => placement.choose(&self.logs, needed, &|log| self.is_ready(log)),
        };
        Some(Choice { log, unopened: best.filter(|_| best != log) })
    }

    /// The log of the newest record in flight, if the next entry fits there.
    pub fn log_in_use(&self) -> Option<LogId> {
        let (_, record) = self.entries.records.last_key_value()?;
        let first = self.entries.slots.get(*self.entries.pending.front()?);
        let log = self.logs.get(record.log)?;
        (self.logs.is_open(record.log)
            && log.accepts(first.reserved.log)
            && self.is_ready(record.log))
        .then_some(record.log)
    }
}
