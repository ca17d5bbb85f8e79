//! The log-structured store: the newest version of each block, its place, and the entries on their
//! way into a log. The store does no I/O, and does not know why an entry is written.

pub mod apart;
mod append;
mod around;
mod batch;
mod cleaner;
mod entries;
mod failure;
mod fits;
mod forget;
mod homebound;
mod kept;
mod log_set;
mod logs;
pub mod place;
mod placement;
mod read;
mod ready;
mod relocate;
mod reset;
mod room;
mod roots;
mod sequences;
mod settle;
mod slots;
mod summaries;
mod versions;

pub use around::Around;
pub use batch::{Batch, NewEntry, Stream, StreamsInFlight};
pub use cleaner::{Cleaner, Job};
pub use entries::Entries;
pub use kept::KeptIn;
pub use logs::{Device, Logs};
pub use place::{Displaced, Place};
pub use placement::{Choice, Placement};
pub use read::{LogRead, Source};
pub use relocate::{Live, Relocated, chunk_len, span_of};
pub use room::Room;
pub use roots::Roots;
pub use sequences::Sequences;
pub use sequences::{LAST, LOW};
pub use slots::{InFlightRecord, InFlightRecords, Origin, RecordSlots, SlotId, Ticket};
pub use versions::Versions;

use crate::{ExtentMap, Inverse, Log, LogId, Summary, VolumeId};

use crate::ondisk::root::Root;
use apart::NvTable;
use around::ByPlace;
use kept::Kept;

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreCounters {
    /// Records appended.
    pub records: u64,
    /// Length of these records, headers and padding included.
    pub record_sectors: u64,
    /// Supersede entries among their entries.
    pub supersedes: u64,
    /// Logs that began anew.
    pub log_resets: u64,
    /// Sectors of kept content that went home nevertheless.
    pub kept_home_sectors: u64,
    /// Sectors of kept content, and of what leads to it, that moved from log to log.
    pub kept_moved_sectors: u64,
    /// Sectors of metadata that stays in the logs, and went home nevertheless.
    pub kept_metadata_home_sectors: u64,
    /// Sectors of such metadata that moved from log to log.
    pub kept_metadata_moved_sectors: u64,
    /// Largest size of the table, measured when it was about to shrink.
    pub table_bytes_max: u64,
}

/// A log-structured store: logs, the map of versions and entries on their way.
#[derive(Debug)]
pub struct Store {
    /// Id of the volume whose records these are.
    volume: VolumeId,
    /// Place of the newest version of each logged block.
    map: ExtentMap<Place>,
    /// Where the versions in logs belong, once somebody has asked.
    by_place: ByPlace,
    /// The logs and their room.
    logs: Logs,
    /// Headers of records that lie apart from the logs, if the store keeps them so.
    apart: Option<NvTable>,
    /// Entries on their way into a log.
    entries: Entries,
    /// Room promised to entries and to bypassing writes.
    reserved: Room,
    /// Sequences that are handed out.
    sequences: Sequences,
    /// The root on the device, and changes of it that are being prepared.
    roots: Roots,
    /// Why the store takes no more entries; `None` while it takes some.
    read_only: Option<&'static str>,
    /// Entries that displaced versions in the log that is set aside, and the sectors displaced.
    overtakers: Vec<(SlotId, Ticket, u64)>,
    /// Logs that lost live sectors. They are freed when the change under way is complete.
    reset_candidates: Vec<LogId>,
    /// Account of versions kept in the logs.
    kept: Kept,
    /// Counters for reports.
    counters: StoreCounters,
}

impl Store {
    /// A store in which nothing is logged yet.
    pub fn new(volume: VolumeId, logs: Logs, root: Root, root_slot: usize) -> Self {
        Self {
            volume,
            map: ExtentMap::new(),
            by_place: ByPlace::default(),
            logs,
            apart: None,
            entries: Entries::default(),
            reserved: Room::default(),
            sequences: Sequences::default(),
            roots: Roots::new(root, root_slot),
            read_only: None,
            overtakers: Vec::new(),
            reset_candidates: Vec::new(),
            kept: Kept::default(),
            counters: StoreCounters::default(),
        }
    }

    /// Id of the volume whose records these are.
    #[must_use]
    pub const fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Place of the newest version of each logged block.
    #[must_use]
    pub const fn map(&self) -> &ExtentMap<Place> {
        &self.map
    }

    /// The logs and their room.
    #[must_use]
    pub const fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Entries on their way into a log.
    #[must_use]
    pub const fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Room promised to entries and to bypassing writes.
    #[must_use]
    pub const fn reserved(&self) -> Room {
        self.reserved
    }

    /// Why the store takes no more entries; `None` while it takes some.
    #[must_use]
    pub const fn read_only(&self) -> Option<&'static str> {
        self.read_only
    }

    /// Counters for reports.
    #[must_use]
    pub const fn counters(&self) -> &StoreCounters {
        &self.counters
    }

    /// Bytes of memory of the table: the map itself, the checksums of the logs' content, the
    /// extents of the logs' entries and their summaries if they are kept, and what leads from
    /// places to addresses.
    pub fn table_bytes(&self) -> u64 {
        let inverse = |log: &Log| log.inverse().map_or(0, Inverse::bytes);
        let summary = |log: &Log| log.summary().map_or(0, Summary::bytes);
        let of_logs = self.logs.iter();
        let of_logs = of_logs.map(|log| log.units().bytes() + inverse(log) + summary(log));
        (self.map.bytes() + self.by_place.bytes() + of_logs.sum::<usize>()) as u64
    }

    /// Notes the table's size if it is the largest so far. Called before it shrinks.
    pub fn note_table_size(&mut self) {
        self.counters.table_bytes_max = self.counters.table_bytes_max.max(self.table_bytes());
    }
}
