//! Resets of logs that recovery does not need any more.

use crate::{DataSequence, Floors, Log, LogId};

use super::logs::KEPT_SHARE;
use super::{Place, Store};
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// Recovery needs `sectors` fewer of the log.
    pub fn sub_live(&mut self, log: LogId, sectors: u64) {
        self.logs.adjust(log, |log| log.sub_live(sectors));
        self.reset_candidates.push(log);
    }

    /// No version that a crash would need, and none on its way into a log, has a smaller data
    /// sequence: the floor can rise to it without loss. A version that was displaced is needed
    /// until the one that displaced it is durable. Looks at each log and each entry under way.
    ///
    /// # Panics
    /// If headers are kept apart from the logs: zeroes then keep no log, so that no log knows of
    /// them.
    #[must_use]
    pub fn oldest_needed(&self) -> DataSequence {
        assert!(self.apart.is_none(), "logs know their oldest version if their records do");
        if plant::is(Bug::FloorWithoutBarrier) {
            // What the table says was displaced is not looked for after a crash.
            let mapped = self.map.iter().map(|(_, mapped)| mapped.sequence);
            return mapped.min().unwrap_or(self.sequences.next_data);
        }
        let in_logs = self.logs.iter().filter_map(Log::oldest_needed);
        let under_way = self.entries.slots.iter().map(|slot| slot.entry.data_sequence);
        in_logs.chain(under_way).min().unwrap_or(self.sequences.next_data)
    }

    /// Everything below the floors, which are durable, is home: the map forgets it, and logs that
    /// held nothing else are free.
    pub fn forget_below(&mut self, floors: Floors) {
        self.note_table_size();
        let shape = self.logs.shape();
        let mut gone: Vec<(LogId, u64)> = Vec::new();
        let (mut kept, mut waits) = (0, false);
        let slots = &self.entries.slots;
        self.map.retain(|extent, mapped| {
            let is_kept = match mapped.value {
                Place::Buffered { slot, .. } => slots.get(slot).entry.is_kept(),
                place => place.is_kept(),
            };
            if mapped.sequence >= floors.of(is_kept) {
                waits |= !is_kept;
                return true;
            }
            kept += if is_kept { extent.len.0 } else { 0 };
            if let Some(log) = mapped.value.kept_by(shape) {
                match gone.last_mut() {
                    Some((last, sectors)) if *last == log => *sectors += extent.len.0,
                    _ => gone.push((log, extent.len.0)),
                }
            }
            false
        });
        for (log, sectors) in gone {
            self.sub_live(log, sectors);
        }
        self.kept.went_home(kept, waits);
        self.counters.kept_home_sectors += kept;
        self.floor_raised(floors);
        self.rewrite_after_checkpoint();
    }

    /// Everything in the logs is dead: `floor`, which is durable, is above all of it.
    pub fn forget_all(&mut self, floor: DataSequence) {
        for id in self.logs.ids() {
            self.logs.adjust(id, |log| log.raise_floor(Floors::both(floor)));
            if self.logs.get(id).is_some_and(Log::may_reset) {
                self.logs.with(id, Log::reset);
            }
        }
    }

    /// To be called when the floors are durable. Logs drop the supersedes below them, and those
    /// that hold nothing else are reset.
    pub fn floor_raised(&mut self, floors: Floors) {
        for id in self.logs.ids() {
            self.logs.adjust(id, |log| log.raise_floor(floors));
            if self.logs.get(id).is_some() {
                self.reset_candidates.push(id);
            }
        }
        self.reset_what_can_be();
    }

    /// Resets `log`, and others that may wait for it, if recovery does not need them any more.
    pub fn reset_if_free(&mut self, log: LogId) {
        self.reset_candidates.push(log);
        self.reset_what_can_be();
    }

    /// Resets `log` if recovery does not need it any more, however little of it was used. For
    /// systems that fill logs one after the other.
    pub fn reset_small(&mut self, log: LogId) {
        let used = self.logs.get(log).is_some_and(|log| log.may_reset() && !log.is_empty());
        if used {
            self.logs.with(log, Log::reset);
            self.counters.log_resets += 1;
        }
    }

    /// Ends the epoch of each log, as nobody knows how far a device was written behind the log's
    /// end: logs that hold nothing begin anew, and the others take no more records.
    pub fn end_epochs(&mut self) {
        for id in self.logs.ids() {
            match self.logs.get(id) {
                Some(log) if log.used().0 == 0 => {}
                Some(log) if log.is_empty() && log.may_reset() => self.logs.with(id, Log::reset),
                Some(_) => self.seal(id),
                None => {}
            }
        }
    }

    /// Number of logs that may be free and have not been looked at.
    #[must_use]
    pub fn reset_candidates(&self) -> usize {
        self.reset_candidates.len()
    }

    /// Resets the logs that recovery does not need any more.
    pub(super) fn reset_what_can_be(&mut self) {
        while let Some(log) = self.reset_candidates.pop() {
            self.try_reset(log);
        }
    }

    /// Resets a log that recovery does not need, unless it holds only a few records.
    fn try_reset(&mut self, id: LogId) {
        if plant::is(Bug::ResetDropsSupersedes) && self.logs.get(id).is_some() {
            self.logs.adjust(id, Log::clear_supersedes);
        }
        let worth = self
            .logs
            .get(id)
            .is_some_and(|log| log.may_reset() && log.used().0 > log.region().len.0 / KEPT_SHARE);
        if worth {
            self.logs.with(id, Log::reset);
            self.counters.log_resets += 1;
        }
    }
}
