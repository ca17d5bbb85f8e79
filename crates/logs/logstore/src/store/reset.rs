//! Resets of logs that recovery no longer needs.

use crate::{DataSequence, Floors, Log, LogId};

use super::kept::KeptHome;
use super::logs::KEPT_SHARE;
use super::{Place, Store};
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// Notes that recovery needs `sectors` fewer sectors of the log.
    pub fn sub_live(&mut self, log: LogId, sectors: u64) {
        self.logs.adjust(log, |log| log.sub_live(sectors));
        self.reset_candidates.push(log);
    }

    /// The floor that can be raised without loss: no version that recovery would need, and none on
    /// its way into a log, has a smaller data sequence. A displaced version is needed until the
    /// version that displaced it is durable. Looks at each log and each entry under way.
    ///
    /// # Panics
    /// If headers are kept apart from the logs: then zeroes need no log, and no log knows of them.
    #[must_use]
    pub fn oldest_needed(&self) -> DataSequence {
        assert!(self.apart.is_none(), "logs know their oldest version if their records do");
        if plant::is(Bug::FloorWithoutBarrier) {
            // This ignores displaced versions, although their successors may not be durable.
            let mapped = self.map.iter().map(|(_, mapped)| mapped.sequence);
            return mapped.min().unwrap_or(self.sequences.next_data);
        }
        let in_logs = self.logs.iter().filter_map(Log::oldest_needed);
        let under_way = self.entries.slots.iter().map(|slot| slot.entry.data_sequence);
        in_logs.chain(under_way).min().unwrap_or(self.sequences.next_data)
    }

    /// Forgets all versions below the floors, which are durable: they are home. Logs that held no
    /// other versions become free.
    pub fn forget_below(&mut self, floors: Floors) {
        self.note_table_size();
        let shape = self.logs.shape();
        let mut gone: Vec<(LogId, u64)> = Vec::new();
        let (mut gone_home, mut waits) = (KeptHome::default(), false);
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
            let (is_content, is_metadata) = match mapped.value {
                Place::Buffered { slot, .. } => {
                    let entry = &slots.get(slot).entry;
                    (entry.is_kept_content(), entry.is_kept_metadata())
                }
                place => (place.is_kept_content(), place.is_kept_metadata()),
            };
            gone_home.content += if is_content { extent.len.0 } else { 0 };
            gone_home.metadata += if is_metadata { extent.len.0 } else { 0 };
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
        self.kept.went_home(gone_home, waits);
        self.counters.kept_home_sectors += gone_home.content;
        self.counters.kept_metadata_home_sectors += gone_home.metadata;
        self.floor_raised(floors);
        self.rewrite_after_checkpoint();
    }

    /// Resets the logs after a drain: `floor`, which is durable, is above all entries.
    pub fn forget_all(&mut self, floor: DataSequence) {
        for id in self.logs.ids() {
            self.logs.adjust(id, |log| log.raise_floor(Floors::both(floor)));
            if self.logs.get(id).is_some_and(Log::may_reset) {
                self.begin_anew(id);
            }
        }
    }

    /// Must be called when the floors are durable. Logs drop the supersedes below them, and logs
    /// that held nothing else are reset.
    pub fn floor_raised(&mut self, floors: Floors) {
        for id in self.logs.ids() {
            self.logs.adjust(id, |log| log.raise_floor(floors));
            if self.logs.get(id).is_some() {
                self.reset_candidates.push(id);
            }
        }
        self.reset_what_can_be();
    }

    /// Resets `log`, and other candidates, if recovery no longer needs them.
    pub fn reset_if_free(&mut self, log: LogId) {
        self.reset_candidates.push(log);
        self.reset_what_can_be();
    }

    /// Resets `log` if recovery no longer needs it, even if little of it was used. For systems that
    /// fill logs one after the other.
    pub fn reset_small(&mut self, log: LogId) {
        let used = self.logs.get(log).is_some_and(|log| log.may_reset() && !log.is_empty());
        if used {
            self.begin_anew(log);
            self.counters.log_resets += 1;
        }
    }

    /// Ends the epochs of which all entries are below the kept floor, however small they are. After
    /// a crash the next epoch of such a log may have begun, on a copy of the device that was not
    /// read: where it lies, records of the old epoch are overwritten there.
    pub fn end_dead_epochs(&mut self) {
        let floor = self.floors().kept;
        for id in self.logs.ids() {
            let is_dead = |log: &Log| log.used().0 > 0 && log.bound() <= floor && log.may_reset();
            if self.logs.get(id).is_some_and(is_dead) {
                self.begin_anew(id);
                self.counters.log_resets += 1;
            }
        }
    }

    /// Ends the epoch of each log, because it is unknown how far the device was written behind the
    /// log's end. Logs without entries begin anew, and the others take no more records.
    pub fn end_epochs(&mut self) {
        for id in self.logs.ids() {
            match self.logs.get(id) {
                Some(log) if log.used().0 == 0 => {}
                Some(log) if log.is_empty() && log.may_reset() => self.begin_anew(id),
                Some(_) => self.seal(id),
                None => {}
            }
        }
    }

    /// Number of logs that may be free but have not been checked.
    #[must_use]
    pub fn reset_candidates(&self) -> usize {
        self.reset_candidates.len()
    }

    /// Resets a log.
    fn begin_anew(&mut self, log: LogId) {
        self.by_place.forget(log);
        self.logs.with(log, Log::reset);
        if self.logs.keep_summaries() {
            self.logs.adjust(log, Log::hold);
        }
    }

    /// Resets the candidates that recovery no longer needs.
    pub(super) fn reset_what_can_be(&mut self) {
        while let Some(log) = self.reset_candidates.pop() {
            self.try_reset(log);
        }
    }

    /// Resets a log that recovery does not need, unless only a small part of it is used.
    fn try_reset(&mut self, id: LogId) {
        if plant::is(Bug::ResetDropsSupersedes) && self.logs.get(id).is_some() {
            self.logs.adjust(id, Log::clear_supersedes);
        }
        let worth = self
            .logs
            .get(id)
            .is_some_and(|log| log.may_reset() && log.used().0 > log.region().len.0 / KEPT_SHARE);
        if worth {
            self.begin_anew(id);
            self.counters.log_resets += 1;
        } else {
            self.forget_dead(id);
        }
    }
}
