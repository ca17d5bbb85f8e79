//! One log: a region of the disk that records are appended to, epoch by epoch.

use std::collections::VecDeque;

use manylogs_block::{Extent, Lba, Payload, Sectors};
use manylogs_plant::{self as plant, Bug};
use smallvec::SmallVec;

use crate::content::{LogContent, Supersede};
use crate::{
    AppendOf, AppendSlot, DataSequence, Entry, EntryKind, Epoch, Headers, Inverse, LogId,
    LogOffset, Offsets, Payloads, Record, RecordHeader, RecordSequence, RecordShape, Summary, Unit,
    UnitTable, units_of,
};

mod forget;
mod needed;
mod summarized;

#[derive(Debug)]
struct InFlight {
    record: RecordSequence,
    start: Sectors,
    durable: bool,
}

/// A log: a region of the disk with its present use.
#[derive(Debug)]
pub struct Log {
    id: LogId,
    region: Extent,
    shape: RecordShape,
    /// Length of a record without entries.
    head: Sectors,
    epoch: Epoch,
    tail: Sectors,
    last_checksum: u32,
    /// Sectors whose newest durable version may be here. While there are some, the log is not
    /// reset.
    live: u64,
    /// No version in this epoch has a smaller data sequence.
    oldest: DataSequence,
    /// Reads that still point into the log.
    pins: u32,
    units: UnitTable,
    supersedes: Vec<Supersede>,
    in_flight: VecDeque<InFlight>,
    retired: bool,
    /// Whether the log takes no more records in this epoch.
    sealed: bool,
    /// All entries on the disk, of this epoch or earlier ones, have smaller data sequences.
    bound: DataSequence,
    /// The epoch has begun with a record without entries, and holds nothing else yet.
    only_begun: bool,
    /// How often the log began anew since the store was opened.
    resets: u32,
    /// Whether the next record begins an epoch. A log with a tail of zero may have records all the
    /// same, if headers are kept apart.
    fresh: bool,
    /// The extents of its entries, if the log keeps them.
    inverse: Option<Inverse>,
    /// What forgetting looks at, in sectors, and sectors that died since it last did.
    listed: u64,
    gone: u64,
    /// The device must be reset at this log before each epoch's first record.
    reset_first: bool,
    /// What the log holds, for an opening, if the log keeps it.
    summary: Option<Summary>,
    /// Whether the log takes no record before it is released: see [`Log::hold`].
    held: bool,
}

impl Log {
    /// A log that was never used, for records of `shape`.
    #[must_use]
    pub fn new(id: LogId, region: Extent, shape: RecordShape) -> Self {
        Self {
            id,
            region,
            shape,
            head: shape.len_of(0, 0, Sectors(0)).1,
            epoch: Epoch::default(),
            tail: Sectors(0),
            last_checksum: 0,
            live: 0,
            oldest: DataSequence(u64::MAX),
            pins: 0,
            units: UnitTable::default(),
            supersedes: Vec::new(),
            in_flight: VecDeque::new(),
            retired: false,
            sealed: false,
            bound: DataSequence(0),
            only_begun: false,
            resets: 0,
            fresh: true,
            inverse: None,
            listed: 0,
            gone: 0,
            reset_first: false,
            summary: None,
            held: false,
        }
    }

    /// From now on the device is reset for each epoch, so each must begin before its first entry.
    pub const fn reset_first(&mut self) {
        self.reset_first = true;
    }

    /// Sets the log to the state that a snapshot describes: its end and its content.
    pub fn resume(&mut self, epoch: Epoch, tail: Sectors, last_checksum: u32, content: LogContent) {
        (self.epoch, self.tail, self.last_checksum) = (epoch, tail, last_checksum);
        self.fresh = tail.0 == 0 && last_checksum == 0;
        self.bound = content.bound;
        self.units = content.units;
        self.supersedes = content.supersedes;
    }

    /// Number of the log.
    #[must_use]
    pub const fn id(&self) -> LogId {
        self.id
    }

    /// Place of the log on the device.
    #[must_use]
    pub const fn region(&self) -> Extent {
        self.region
    }

    /// Present use (epoch) of the log.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Sectors appended in this epoch.
    #[must_use]
    pub const fn used(&self) -> Sectors {
        self.tail
    }

    /// Header checksum of the last record; zero when there is none.
    #[must_use]
    pub const fn last_checksum(&self) -> u32 {
        self.last_checksum
    }

    /// Sectors still free for records with entries.
    #[must_use]
    pub fn free(&self) -> Sectors {
        self.region.len - self.tail.max(self.head)
    }

    /// All entries of this epoch, and of earlier ones that may still be found on the disk, have
    /// smaller data sequences.
    #[must_use]
    pub const fn bound(&self) -> DataSequence {
        self.bound
    }

    /// Whether the log holds no entries in this epoch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tail.0 == 0 || self.only_begun
    }

    /// Whether entries may be appended. `floor` is the durable floor of kept versions. If an
    /// earlier epoch has entries that are not below it, the new epoch must first begin durably
    /// ([`Log::begin`]): otherwise a torn first record could not be told from damage to the earlier
    /// epoch. If the device must be reset first, each epoch must begin so.
    #[must_use]
    pub fn is_begun(&self, floor: DataSequence) -> bool {
        if self.shape.headers == Headers::Apart {
            return true;
        }
        if self.held {
            return false;
        }
        if self.tail.0 == 0 {
            return self.bound <= floor && !self.reset_first;
        }
        !self.only_begun || self.in_flight.is_empty()
    }

    /// Whether the log is out of use after an I/O error.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        self.retired
    }

    /// How often the log began anew since the store was opened.
    #[must_use]
    pub const fn resets(&self) -> u32 {
        self.resets
    }

    /// Whether the log takes no more records before it begins anew.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Ends the appends of this epoch: the rest of the region stays unused until the log begins
    /// anew. For policies that fill logs one after the other.
    pub const fn seal(&mut self) {
        self.sealed = true;
    }

    /// Takes the log out of use: it takes no more records, but its content can still be read.
    pub const fn retire(&mut self) {
        self.retired = true;
    }

    /// Whether records are being written to it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether a record of `len` sectors can be appended.
    #[must_use]
    pub fn accepts(&self, len: Sectors) -> bool {
        !self.retired && !self.sealed && len <= self.free()
    }

    /// Begins an epoch with a record without entries. It fills one physical sector, so it is never
    /// torn. Entries may follow when it is durable.
    ///
    /// # Panics
    /// If the log is not empty.
    #[must_use]
    pub fn begin(&mut self, of: &AppendOf) -> AppendSlot {
        assert!(self.tail.0 == 0, "an epoch begins in an empty log");
        self.push(of, Vec::new(), Payloads::new())
    }

    /// Gives `entries` a place behind the last record. The caller writes the slot and then calls
    /// [`Log::finish_append`]. Several appends may be in flight.
    ///
    /// # Panics
    /// If the record does not fit, or the epoch must begin first; ask [`Log::accepts`] and
    /// [`Log::is_begun`].
    #[must_use]
    pub fn append(&mut self, of: &AppendOf, entries: Vec<Entry>, payloads: Payloads) -> AppendSlot {
        assert!(self.is_begun(of.kept_floor), "log {} takes entries before its epoch", self.id.0);
        self.push(of, entries, payloads)
    }

    fn push(&mut self, of: &AppendOf, entries: Vec<Entry>, payloads: Payloads) -> AppendSlot {
        if self.fresh {
            self.epoch = of.sequence.epoch();
        }
        let durable = self.in_flight.front().map_or(self.tail, |first| first.start);
        let durable = if plant::is(Bug::NoDurableTail) { Sectors(0) } else { durable };
        let header = RecordHeader {
            volume: of.volume,
            log: self.id,
            epoch: self.epoch,
            offset: offset_of(self.tail),
            record_sequence: of.sequence,
            floor: of.floor,
            previous_checksum: self.last_checksum,
            durable_tail: offset_of(durable),
            next_data: of.next_data,
        };
        let (record, encoded) = Record::build(header, entries, &payloads, self.shape);
        assert!(record.record_sectors <= self.region.len - self.tail, "record exceeds the log");
        let target = Extent { start: self.region.start + self.tail, len: record.record_sectors };
        // Header, its padding, the parts, and padding behind them.
        let mut payload = Payload::with_room_for(payloads.len() + 3);
        if self.shape.headers == Headers::InLog {
            payload.append(Payload::bytes(encoded));
            payload.append_zeroes(record.header_sectors - payload.len());
        }
        payloads.into_iter().for_each(|part| payload.append(part));
        payload.append_zeroes(record.record_sectors - payload.len());
        let start = self.tail;
        let offsets = self.take_up(&record);
        self.in_flight.push_back(InFlight { record: of.sequence, start, durable: false });
        AppendSlot { target, payload, record, offsets }
    }

    /// Books a record at the tail, new or found by a scan: its units, supersedes and length.
    /// Returns where the payload of each data entry begins.
    pub fn take_up(&mut self, record: &Record) -> Offsets {
        if self.epoch != record.header.epoch {
            // Where headers are kept apart, headers of the epoch before may come first.
            self.units = UnitTable::default();
        }
        self.fresh = false;
        // A scan may have skipped a damaged part.
        self.tail = Sectors(record.header.offset.0.into());
        let mut at = self.tail + record.header_sectors;
        let mut checksums = record.unit_checksums.iter();
        let mut offsets = Offsets::new();
        for entry in &record.entries {
            self.listed += forget::weight_of(entry);
            if entry.kind != EntryKind::Supersede {
                self.oldest = self.oldest.min(entry.data_sequence);
                self.inverse.iter_mut().for_each(|inverse| inverse.push(entry.extent));
            }
            match entry.kind {
                EntryKind::Data => {
                    offsets.push(offset_of(at));
                    for ((start, len), checksum) in units_of(entry.extent.len).zip(&mut checksums) {
                        let offset = offset_of(at + start);
                        self.units.push(Unit { offset, len, checksum: *checksum });
                    }
                    at += entry.extent.len;
                }
                EntryKind::Supersede | EntryKind::Zeroes | EntryKind::Lost => {}
            }
            if entry.kind == EntryKind::Supersede || entry.over_kept {
                let (extent, data_sequence) = (entry.extent, entry.data_sequence);
                self.supersedes.push(Supersede { extent, data_sequence, kept: entry.over_kept });
            }
        }
        self.summary.iter_mut().for_each(|summary| summary.push(record));
        self.epoch = record.header.epoch;
        self.bound = self.bound.max(record.header.next_data);
        self.only_begun = self.tail.0 == 0 && record.entries.is_empty();
        self.tail += record.record_sectors;
        self.last_checksum = record.checksum;
        offsets
    }

    /// Notes that a record's write ended well. Returns the records that become durable by this, in
    /// order: a record is durable only if all records before it in the log are (no holes).
    pub fn finish_append(&mut self, record: RecordSequence) -> SmallVec<[RecordSequence; 4]> {
        if let Some(entry) = self.in_flight.iter_mut().find(|entry| entry.record == record) {
            entry.durable = true;
        }
        let mut durable = SmallVec::new();
        while self.in_flight.front().is_some_and(|entry| entry.durable) {
            durable.extend(self.in_flight.pop_front().map(|entry| entry.record));
        }
        durable
    }

    /// Notes that a record's write failed. The record and all behind it in the log are void and are
    /// returned; the caller appends their entries elsewhere. The log is retired.
    pub fn fail_append(&mut self, record: RecordSequence) -> Vec<RecordSequence> {
        self.retired = true;
        let Some(first) = self.in_flight.iter().position(|entry| entry.record == record) else {
            return Vec::new();
        };
        self.forgo_summary();
        self.in_flight.drain(first..).map(|entry| entry.record).collect()
    }

    /// Whether the log may begin a new epoch: recovery needs none of its entries, no read points
    /// into it, and no write is under way.
    #[must_use]
    pub fn may_reset(&self) -> bool {
        self.live == 0 && self.pins == 0 && self.supersedes.is_empty() && self.in_flight.is_empty()
    }

    /// Makes the whole region free. Nothing is written: the first record of the next epoch
    /// overwrites the first record of this epoch, and so ends its chain.
    ///
    /// # Panics
    /// If [`Log::may_reset`] does not hold.
    pub fn reset(&mut self) {
        assert!(self.may_reset(), "reset of a log that is still needed");
        self.tail = Sectors(0);
        self.fresh = true;
        self.only_begun = false;
        self.sealed = false;
        self.resets += 1;
        self.last_checksum = 0;
        self.oldest = DataSequence(u64::MAX);
        // Dropped, not cleared: most logs of a volume are not in use at a time.
        self.units = UnitTable::default();
        self.inverse = self.inverse.take().map(|_| Inverse::default());
        (self.listed, self.gone) = (0, 0);
        self.summary = None;
    }

    /// Checksums of the log's content. Those of dead versions may be left out.
    #[must_use]
    pub const fn units(&self) -> &UnitTable {
        &self.units
    }

    /// The device address of an offset in the log.
    #[must_use]
    pub fn address(&self, offset: u64) -> Lba {
        Lba(self.region.start.0 + offset)
    }
}

fn offset_of(at: Sectors) -> LogOffset {
    LogOffset(u32::try_from(at.0).unwrap_or_else(|_| panic!("log larger than 2^32 sectors")))
}
