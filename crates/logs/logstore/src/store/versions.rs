//! What a recovery has found so far: the newest version of each block, and the content of the logs.

use std::collections::BTreeMap;

use crate::{
    DataSequence, EntryKind, ExtentMap, Floors, Log, LogId, LogOffset, MapValue, Mapped, Record,
};
use manylogs_block::{Extent, Sectors};

use super::{Logs, Place, Store};
use crate::ondisk::snapshot::Snapshot;
use manylogs_plant::{self as plant, Bug};

/// A version that recovery found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// `None` if the version was superseded: the version at home is newer, or the same.
    place: Option<Place>,
    /// Sequence of the version's record, or of the first record of its epoch. Of two copies of a
    /// version the later one counts, because it was moved from the earlier one.
    record: u64,
}

impl MapValue for Found {
    fn advance(self, by: Sectors) -> Self {
        Self { place: self.place.map(|place| place.advance(by)), ..self }
    }

    fn pack(self) -> [u64; 2] {
        [self.place.map_or(Place::NOWHERE, Place::to_word), self.record]
    }

    fn unpack([place, record]: [u64; 2]) -> Self {
        Self { place: Place::from_word(place), record }
    }
}

/// Versions and contents of logs that a recovery has found so far.
#[derive(Debug)]
pub struct Versions {
    map: ExtentMap<Found>,
    /// The logs with what was found in them.
    pub logs: Logs,
}

impl Versions {
    /// No versions yet. Records that are taken are booked in `logs`.
    pub fn new(logs: Logs) -> Self {
        Self { map: ExtentMap::new(), logs }
    }

    /// Takes the versions of a snapshot, but only those in logs for which `stands` is true.
    pub fn take_snapshot(&mut self, snapshot: Snapshot, stands: impl Fn(LogId) -> bool) {
        let count = self.logs.count();
        let stands = |log: LogId| (log.0 as usize) < count && stands(log);
        let mut epochs = BTreeMap::new();
        for log in snapshot.logs {
            if stands(log.id) {
                epochs.insert(log.id, log.epoch.0);
                for supersede in &log.content.supersedes {
                    let found = Found { place: None, record: 0 };
                    self.add(supersede.extent, supersede.data_sequence, found);
                }
                self.logs.with(log.id, |target| {
                    target.resume(log.epoch, log.tail, log.last_checksum, log.content);
                });
            }
        }
        for (extent, mapped) in snapshot.map {
            if let Some(log) = mapped.value.log().filter(|log| stands(*log)) {
                // A snapshot does not name the record; the epoch of the log is no later than the
                // record.
                let record = epochs.get(&log).copied().unwrap_or(0);
                let found = Found { place: Some(mapped.value), record };
                self.add(extent, mapped.sequence, found);
            }
        }
    }

    /// Takes the entries of a record that are not below the floors. An entry below its own floor,
    /// but not below that of kept versions, is home; it still displaces older kept versions. If the
    /// record is not `whole`, other copies of its versions are preferred: copies that they were
    /// moved from may still be there.
    pub fn take_record(&mut self, log: LogId, record: &Record, floors: Floors, whole: bool) {
        let offsets = self.logs.with(log, |log| log.take_up(record));
        let mut offsets = offsets.into_iter();
        for entry in &record.entries {
            let place = match entry.kind {
                EntryKind::Data => {
                    let offset = offsets.next().unwrap_or(LogOffset(0));
                    Some(Place::Log { log, offset, class: entry.class })
                }
                EntryKind::Zeroes => Some(Place::Zeroes { log }),
                EntryKind::Lost => Some(Place::Lost { log }),
                EntryKind::Supersede => None,
            };
            let rank = if whole || plant::is(Bug::DamagedCopyPreferred) {
                record.header.record_sequence.0
            } else {
                0
            };
            let counts = entry.data_sequence >= floors.of(entry.is_kept());
            let found = Found { place: place.filter(|_| counts), record: rank };
            let buries = entry.data_sequence >= floors.kept && !plant::is(Bug::DeadBuryNothing);
            if counts || buries {
                self.add(entry.extent, entry.data_sequence, found);
            }
        }
    }

    /// The versions in logs that are not below the floors, by address.
    pub fn logged(&self, floors: Floors) -> impl Iterator<Item = (Extent, Mapped<Place>)> {
        self.map.iter().filter_map(move |(extent, mapped)| {
            let place = mapped.value.place?;
            let value = Some(place).filter(|_| mapped.sequence >= floors.of(place.is_kept()))?;
            Some((extent, Mapped { sequence: mapped.sequence, value }))
        })
    }

    /// Whether every logged version is in the present epoch of its log. After a scan this always
    /// holds.
    pub fn are_of_present_epochs(&self, floor: DataSequence) -> bool {
        self.map.iter().filter(|(_, mapped)| mapped.sequence >= floor).all(|(_, mapped)| {
            let Some(Place::Log { log, .. }) = mapped.value.place else { return true };
            self.logs.get(log).is_some_and(|log| mapped.value.record >= log.epoch().0)
        })
    }

    /// Books the live sectors of each log, and drops the supersedes that are not needed.
    pub fn book_live(&mut self, floors: Floors) {
        let shape = self.logs.shape();
        let live: Vec<(LogId, u64, DataSequence)> = self
            .logged(floors)
            .filter_map(|(extent, mapped)| {
                Some((mapped.value.kept_by(shape)?, extent.len.0, mapped.sequence))
            })
            .collect();
        for (log, sectors, sequence) in live {
            self.logs.adjust(log, |log| log.add_found(sectors, sequence));
        }
        for id in self.logs.ids() {
            self.logs.adjust(id, |log| log.raise_floor(floors));
        }
    }

    fn add(&mut self, extent: Extent, sequence: DataSequence, found: Found) {
        // A version's mark may have moved as a supersede entry with the version's own sequence: the
        // version wins then.
        let rank = |found: &Found| (found.place.is_some(), found.record);
        let newer =
            |old: &Mapped<Found>| (old.sequence, rank(&old.value)) < (sequence, rank(&found));
        let wins = |old: &Mapped<Found>| plant::is(Bug::RecoveryTakesLast) || newer(old);
        self.map.insert_where(extent, Mapped { sequence, value: found }, wins, |_, _| ());
    }
}

impl Store {
    /// Fills the table of a new store with what recovery found. Entries below the durable floor do
    /// not count.
    pub fn fill(&mut self, mut versions: Versions) {
        let floors = self.floors();
        versions.book_live(floors);
        for (extent, mapped) in versions.logged(floors) {
            self.kept.found(extent, mapped.value);
            self.map.insert(extent, mapped, |_, _| ());
        }
        self.logs = versions.logs;
        for id in self.logs.ids() {
            if self.logs.get(id).is_some() {
                self.logs.adjust(id, Log::keep_found);
                self.reset_candidates.push(id);
            }
        }
        self.reset_what_can_be();
    }
}
