//! The log-structured store: which version of a block counts, where it is, and which entries are on
//! their way into a log. Nothing here does I/O, or knows why an entry is written.

mod entries;
mod failure;
mod logs;
mod place;
mod ready;
mod relocate;
mod reset;
mod sequences;
mod settle;
mod slots;
mod versions;

pub(crate) use logs::Logs;
pub(crate) use place::{Displaced, Place};
#[cfg(test)]
pub(crate) use sequences::{LAST, LOW};
pub(crate) use slots::{InFlightRecord, Origin, SlotId, Slots, Ticket, Tickets};
pub(crate) use versions::Versions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use manylogs_block::{Extent, Signal, Time};
use manylogs_logstore::{DataSequence, ExtentMap, LogId, RecordSequence, SequenceLimit};

use crate::nvram::NvTable;
use crate::ondisk::root::Root;
use crate::ondisk::touched::Touched;
use crate::room::Room;

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
    pub(crate) map: ExtentMap<Place>,
    pub(crate) logs: Logs,
    /// Where the headers of records are, if not in the logs.
    pub(crate) nvram: Option<NvTable>,
    pub(crate) slots: Slots,
    pub(crate) tickets: Tickets,
    /// Slots that wait for a record, in order of their tickets.
    pub(crate) pending: VecDeque<SlotId>,
    /// How many of them have a waiter.
    pub(crate) pending_waiters: usize,
    /// Everything up to this ticket must go into records now.
    pub(crate) force: Option<Ticket>,
    /// Sectors of answered writes that are only in memory, and until when.
    pub(crate) volatile: u64,
    pub(crate) volatile_until: Option<Time>,
    /// Room promised to slots and to bypassing writes.
    pub(crate) reserved: Room,
    pub(crate) records: BTreeMap<RecordSequence, InFlightRecord>,
    pub(crate) next_data: DataSequence,
    pub(crate) next_record: RecordSequence,
    /// More sequences must be set aside.
    pub(crate) sequences_low: Signal,
    /// The root as it is on the disk.
    pub(crate) root: Root,
    /// The newest generation that was ever sent to the disk.
    pub(crate) root_generation: u64,
    /// The slot that holds the newest root.
    pub(crate) root_slot: usize,
    /// While a snapshot is captured and written: the logs appended to since.
    pub(crate) capturing: Option<Touched>,
    /// While the root that names the snapshot is written: the set of opened logs it will have.
    pub(crate) next_touched: Option<Touched>,
    /// Home writes were acknowledged that a power cut may still take.
    pub(crate) dirty_home: bool,
    /// Supersede slots that wait for the flush that makes their home writes durable.
    pub(crate) deferred: Vec<SlotId>,
    /// Supersede slots that are not durable yet, deferred or not, and their extents.
    pub(crate) unsettled_supersedes: Vec<(SlotId, Extent)>,
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
    pub(crate) fn new(logs: Logs, root: Root, root_slot: usize) -> Self {
        let first = SequenceLimit::NONE_USED.0;
        Self {
            map: ExtentMap::new(),
            logs,
            nvram: None,
            slots: Slots::default(),
            tickets: Tickets::default(),
            pending: VecDeque::new(),
            pending_waiters: 0,
            force: None,
            volatile: 0,
            volatile_until: None,
            reserved: Room::default(),
            records: BTreeMap::new(),
            next_data: DataSequence(first),
            next_record: RecordSequence(first),
            sequences_low: Signal::default(),
            root_generation: root.generation,
            root,
            root_slot,
            capturing: None,
            next_touched: None,
            dirty_home: false,
            deferred: Vec::new(),
            unsettled_supersedes: Vec::new(),
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
