//! Which log takes the next record, and which is cleaned. Logs are filled one after the other, and
//! the oldest is emptied first (the Everest paper, section 3.1).

use manylogs_block::Sectors;
use manylogs_logstore::store::{Cleaner, Device, Job, Logs, Placement, Store};
use manylogs_logstore::{Log, LogId};
use manylogs_plant::{self as plant, Bug};

/// A log with at least this live share is not worth cleaning for its room.
const DENSE: f64 = 0.75;

/// The log at the head as long as it takes records, then the next empty one around the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) head: LogId,
}

impl Placement for Ring {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let takes = |id: &LogId| logs.takes(*id, needed) && ready(*id);
        if takes(&self.head) {
            return Some(self.head);
        }
        let around = logs.ids().skip_while(|id| *id <= self.head).chain(logs.ids());
        let blank = |id: &LogId| logs.is_blank(*id) && logs.takes(*id, needed);
        // The next empty log or none: a log that is passed over would later be cleaned before older
        // ones.
        around.take(logs.count()).find(blank).filter(|id| ready(*id))
    }
}

/// Cleans the oldest log that is worth it, when less room than `wanted` is left.
#[derive(Clone, Debug)]
pub(crate) struct FromTail {
    pub(crate) head: LogId,
    pub(crate) wanted: Sectors,
    /// Devices that are gone: what their logs hold cannot be read.
    pub(crate) gone: Vec<Device>,
}

impl Cleaner for FromTail {
    fn next(&mut self, store: &Store) -> Option<Job> {
        let logs = store.logs();
        if logs.room() >= self.wanted.0 + store.reserved().log.0 {
            return None;
        }
        let others = logs.iter().filter(|log| log.id() != self.head);
        // Live versions in a retired log keep the floor from rising.
        let can_be_read = |log: &Log| !self.gone.contains(&logs.device(log.id()));
        let counts = |log: &&Log| !log.is_retired() || (log.live() > 0 && can_be_read(log));
        let is_used = |log: &&Log| !log.is_empty() && !log.is_busy() && counts(log);
        let mut used: Vec<&Log> = others.filter(is_used).collect();
        used.sort_unstable_by_key(|log| log.epoch());
        // Logs that hold only old supersede entries become free when the floor passes these
        // entries.
        let waits_for_floor = used.iter().any(|log| log.live() == 0);
        let sparse = |log: &Log| (log.live() as f64) < DENSE * log.used().0 as f64;
        let oldest = used.first()?.id();
        // A log between others that has such entries does not become free by being emptied. What
        // is moved out of it takes room that is spared for cleaning, and then the oldest log might
        // find none: nothing could be written or deleted any more.
        let frees = |log: &Log| {
            log.id() == oldest || log.supersedes().is_empty() || plant::is(Bug::ReserveSpentBetween)
        };
        // Until such a log is the oldest, what keeps the floor from rising is emptied. That is not
        // always in the log that was begun first: it may be empty already.
        let tail = used.iter().min_by_key(|log| (log.live() == 0, log.oldest_needed()));
        let chosen = match used.iter().find(|log| sparse(log)) {
            Some(first) if !waits_for_floor && frees(first) => Some(first),
            None if !waits_for_floor => None,
            _ => tail,
        };
        chosen.map(|log| Job::Renew(log.id()))
    }
}
