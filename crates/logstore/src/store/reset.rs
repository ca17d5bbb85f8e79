//! Logs that begin anew when recovery needs nothing of them any more.

use crate::{DataSequence, Log, LogId};

use super::Store;
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// A log holds `sectors` fewer that recovery needs.
    pub fn sub_live(&mut self, log: LogId, sectors: u64) {
        self.logs.adjust(log, |log| log.sub_live(sectors));
        self.reset_candidates.push(log);
    }

    /// Everything older than this is dead: the smallest number of a version that counts, or is on
    /// its way. A floor there loses nothing. Takes a look at the whole table.
    #[must_use]
    pub fn oldest_needed(&self) -> DataSequence {
        let mapped = self.map.iter().map(|(_, mapped)| mapped.sequence);
        let under_way = self.entries.slots.iter().map(|slot| slot.entry.data_sequence);
        mapped.chain(under_way).min().unwrap_or(self.sequences.next_data)
    }

    /// The floor is durable at `floor`: logs drop the supersedes below it, and those that hold
    /// nothing else begin anew.
    pub fn floor_raised(&mut self, floor: DataSequence) {
        for id in self.logs.ids() {
            self.logs.adjust(id, |log| log.raise_floor(floor));
            if self.logs.get(id).is_some() {
                self.reset_candidates.push(id);
            }
        }
        self.reset_what_can_be();
    }

    /// Frees the logs that recovery needs nothing of any more.
    pub fn reset_what_can_be(&mut self) {
        while let Some(log) = self.reset_candidates.pop() {
            self.try_reset(log);
        }
    }

    /// An epoch is not ended for a few records.
    fn try_reset(&mut self, id: LogId) {
        if plant::is(Bug::ResetDropsSupersedes) && self.logs.get(id).is_some() {
            self.logs.adjust(id, Log::clear_supersedes);
        }
        let worth = self
            .logs
            .get(id)
            .is_some_and(|log| log.may_reset() && log.used().0 > log.region().len.0 / 16);
        if worth {
            self.logs.with(id, Log::reset);
            self.noted.remove(&id);
            self.counters.log_resets += 1;
        }
    }
}
