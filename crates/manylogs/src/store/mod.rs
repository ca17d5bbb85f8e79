//! The log-structured store: which version of a block counts, where it is, and which entries are on
//! their way into a log. Nothing here does I/O, or knows why an entry is written.

pub(crate) mod apart;
mod append;
mod entries;
mod failure;
mod fits;
mod home;
mod log_set;
mod logs;
pub(crate) mod place;
mod placement;
mod ready;
mod relocate;
mod reset;
mod room;
mod roots;
mod sequences;
mod settle;
mod slots;
mod versions;

pub(crate) use entries::Entries;
pub(crate) use home::HomeWrites;
pub(crate) use logs::Logs;
pub(crate) use place::{Displaced, Place};
pub(crate) use placement::{Choice, Placement};
pub(crate) use room::Room;
pub(crate) use roots::Roots;
pub(crate) use sequences::Sequences;
#[cfg(test)]
pub(crate) use sequences::{LAST, LOW};
pub(crate) use slots::{InFlightRecord, Origin, RecordSlots, SlotId, Ticket};
pub(crate) use versions::Versions;

use std::collections::BTreeSet;

use manylogs_logstore::{ExtentMap, LogId, VolumeId};

use crate::ondisk::root::Root;
use apart::NvTable;

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreCounters {
    pub(crate) records: u64,
    pub(crate) record_sectors: u64,
    pub(crate) supersedes: u64,
    pub(crate) log_resets: u64,
    pub(crate) table_bytes_max: u64,
}

/// See the module.
pub(crate) struct Store {
    pub(crate) volume: VolumeId,
    pub(crate) map: ExtentMap<Place>,
    pub(crate) logs: Logs,
    /// Where the headers of records are, if not in the logs.
    pub(crate) apart: Option<NvTable>,
    pub(crate) entries: Entries,
    /// Room promised to entries and to bypassing writes.
    pub(crate) reserved: Room,
    pub(crate) sequences: Sequences,
    pub(crate) roots: Roots,
    pub(crate) home: HomeWrites,
    pub(crate) read_only: Option<&'static str>,
    /// Log that placement would like to use but may not before it is marked in the root.
    pub(crate) unopened: Option<LogId>,
    /// Entries that displaced versions of the log whose content moves now, and how much.
    pub(crate) overtakers: Vec<(SlotId, Ticket, u64)>,
    /// Logs that lost live sectors: freed when the change under way is complete.
    pub(crate) reset_candidates: Vec<LogId>,
    /// Logs that the policy has taken note of, until they begin anew.
    pub(crate) noted: BTreeSet<LogId>,
    pub(crate) counters: StoreCounters,
}

impl Store {
    /// A store in which nothing is logged yet.
    pub(crate) fn new(volume: VolumeId, logs: Logs, root: Root, root_slot: usize) -> Self {
        Self {
            volume,
            map: ExtentMap::new(),
            logs,
            apart: None,
            entries: Entries::default(),
            reserved: Room::default(),
            sequences: Sequences::default(),
            roots: Roots::new(root, root_slot),
            home: HomeWrites::default(),
            read_only: None,
            unopened: None,
            overtakers: Vec::new(),
            reset_candidates: Vec::new(),
            noted: BTreeSet::new(),
            counters: StoreCounters::default(),
        }
    }

    /// Memory of the table: the map itself, and the checksums of what logs hold.
    pub(crate) fn table_bytes(&self) -> u64 {
        let checksums: usize = self.logs.iter().map(|log| log.units().bytes()).sum();
        (self.map.bytes() + checksums) as u64
    }

    /// Notes the table's size if it is the largest so far; called where it shrinks.
    pub(crate) fn note_table_size(&mut self) {
        self.counters.table_bytes_max = self.counters.table_bytes_max.max(self.table_bytes());
    }
}
