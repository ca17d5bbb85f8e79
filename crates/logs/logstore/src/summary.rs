//! A summary: what the records of a log hold, without their content. With it an opening need not
//! read the log.
//!
//! It grows with the log, record by record, so that nothing is read to make one. What neighbours
//! have alike takes no room: a record begins where the one before ended, and an entry of a block
//! of 4 KiB is the difference of its address, one number of variable length. Then come checksums.
//! The bytes are in `docs/format.md`.

use manylogs_block::{Extent, Sectors, narrow, to_usize};
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::{decode_kind, encode_kind};
use crate::ondisk::equal_logs;
use crate::ondisk::snapshot::{get, put, unzigzag, zigzag};
use crate::space::is_in_one_space;
use crate::{
    Class, DataSequence, Entry, EntryKind, Epoch, LogId, LogOffset, MAX_ENTRIES, Record,
    RecordHeader, RecordSequence, RecordShape, UnitChecksums, VolumeId, units_in,
};

const MAGIC: [u8; 8] = *b"MLSUMRY1";
const CHECKSUM: std::ops::Range<usize> = 8..12;
/// Sectors of the blocks whose addresses are short.
const BLOCK: u64 = 8;
/// The lowest bits of an entry's first number.
const SEQUENCE_FOLLOWS: u64 = 1;
const ALL_FOLLOWS: u64 = 2;
const FLAG_BITS: u32 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    bytes: U32,
    volume: VolumeId,
    log: U32,
    records: U32,
    epoch: U64,
    last: U64,
    bound: U64,
    last_checksum: U32,
    used_sectors: U32,
}

/// Bytes in front of the records.
pub const SUMMARY_HEADER: usize = size_of::<Raw>();
const _: () = assert!(SUMMARY_HEADER == 72);

/// What an encoder or a decoder knows of the records so far.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    records: u32,
    epoch: Epoch,
    last: RecordSequence,
    last_checksum: u32,
    bound: DataSequence,
    end: Sectors,
    /// The block behind the last entry, and its sequence.
    block: u64,
    sequence: u64,
}

/// The summary of a log in its present epoch: see the module.
#[derive(Clone, Debug)]
pub struct Summary {
    body: Vec<u8>,
    at: Mark,
    /// Most bytes, the header counted.
    most: usize,
    /// Whether it says all that the log holds: not if that was too much, or was not known.
    is_whole: bool,
}

/// The log that a summary must be of, to count.
#[derive(Clone, Copy, Debug)]
pub struct SummaryOf {
    /// The volume.
    pub volume: VolumeId,
    /// The log.
    pub log: LogId,
    /// Length of the log.
    pub len: Sectors,
    /// No entry reaches beyond it.
    pub capacity: Sectors,
    /// Parameters of the lengths of records.
    pub shape: RecordShape,
}

impl Summary {
    /// The summary of a log without records, which takes at most so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { body: Vec::new(), at: Mark::default(), most, is_whole: true }
    }

    /// Adds the next record of the log.
    pub(crate) fn push(&mut self, record: &Record) {
        if !self.is_whole {
            return;
        }
        let header = &record.header;
        let is_next = u64::from(header.offset.0) == self.at.end.0
            && (self.at.records == 0 || self.at.epoch == header.epoch);
        if !is_next {
            return self.spoil();
        }
        put(&mut self.body, header.record_sequence.0.wrapping_sub(self.at.last.0));
        put(&mut self.body, record.entries.len() as u64);
        let mut checksums = record.unit_checksums.iter();
        for entry in &record.entries {
            self.at.put(&mut self.body, entry);
            for checksum in checksums.by_ref().take(units_of_entry(entry)) {
                self.body.extend_from_slice(&checksum.to_le_bytes());
            }
        }
        self.at.take(record);
        if SUMMARY_HEADER + self.body.len() > self.most {
            self.spoil();
        }
    }

    /// From now on it says nothing: what the log holds is not known, or too much.
    pub(crate) fn spoil(&mut self) {
        *self = Self { is_whole: false, ..Self::new(self.most) };
    }

    /// Whether it says all that the log holds.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The sequence of the last record: no other state of any log has the same.
    #[must_use]
    pub const fn last(&self) -> RecordSequence {
        self.at.last
    }

    /// Bytes of memory in use.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.body.capacity()
    }

    /// The bytes of the summary of `log`, which is of this volume; `None` if it does not say all.
    #[must_use]
    pub fn encode(&self, volume: VolumeId, log: LogId) -> Option<Vec<u8>> {
        let raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            bytes: U32::new(narrow(self.body.len())),
            volume,
            log: U32::new(log.0),
            records: U32::new(self.at.records),
            epoch: U64::new(self.at.epoch.0),
            last: U64::new(self.at.last.0),
            bound: U64::new(self.at.bound.0),
            last_checksum: U32::new(self.at.last_checksum),
            used_sectors: U32::new(narrow(self.at.end.0)),
        };
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend_from_slice(&self.body);
        let checksum = crc32c::crc32c(&bytes).to_le_bytes();
        bytes[CHECKSUM].copy_from_slice(&checksum);
        self.is_whole.then_some(bytes)
    }

    /// The records that `bytes` say `of` holds, and the sequence of the last. Their checksums are
    /// zero but for the last one's. `None` if the bytes are damaged, or of another log.
    #[must_use]
    pub fn decode(bytes: &[u8], of: &SummaryOf) -> Option<(RecordSequence, Vec<Record>)> {
        let (raw, _) = Raw::read_from_prefix(bytes).ok()?;
        let end = SUMMARY_HEADER + raw.bytes.get() as usize;
        let covered = bytes.get(..end).filter(|_| raw.magic == MAGIC)?;
        let is_sound = equal_logs::is_whole(covered);
        let is_of_it = raw.volume == of.volume && raw.log.get() == of.log.0;
        if !(is_sound || plant::is(Bug::TornSummaryBelieved))
            || !(is_of_it || plant::is(Bug::ForeignSummaryBelieved))
        {
            return None;
        }
        let records = decode_records(&covered[SUMMARY_HEADER..], &raw, of)?;
        Some((RecordSequence(raw.last.get()), records))
    }
}

fn units_of_entry(entry: &Entry) -> usize {
    to_usize(units_in(std::slice::from_ref(entry)))
}

fn decode_records(mut body: &[u8], raw: &Raw, of: &SummaryOf) -> Option<Vec<Record>> {
    let mut at = Mark::default();
    let mut records = Vec::new();
    for _ in 0..raw.records.get() {
        let sequence = at.last.0.wrapping_add(get(&mut body)?);
        let count = get(&mut body).filter(|count| *count <= MAX_ENTRIES as u64)?;
        let (mut entries, mut unit_checksums) = (Vec::new(), UnitChecksums::new());
        for _ in 0..count {
            let entry = at.get(&mut body)?;
            let is_sane =
                entry.extent.end().0 <= of.capacity.0 && entry.data_sequence.0 < raw.bound.get();
            if !is_sane {
                return None;
            }
            for _ in 0..units_of_entry(&entry) {
                let (checksum, rest) = body.split_first_chunk()?;
                unit_checksums.push(u32::from_le_bytes(*checksum));
                body = rest;
            }
            entries.push(entry);
        }
        let (header_sectors, record_sectors) = of.shape.measure(&entries);
        let header = RecordHeader {
            volume: raw.volume,
            log: of.log,
            epoch: Epoch(raw.epoch.get()),
            offset: LogOffset(narrow(at.end.0)),
            record_sequence: RecordSequence(sequence),
            floor: DataSequence(0),
            previous_checksum: 0,
            durable_tail: LogOffset(0),
            next_data: DataSequence(raw.bound.get()),
        };
        let checksum = if records.len() as u64 + 1 == u64::from(raw.records.get()) {
            raw.last_checksum.get()
        } else {
            0
        };
        let record =
            Record { header, entries, unit_checksums, header_sectors, record_sectors, checksum };
        at.take(&record);
        records.push(record);
    }
    let is_all = body.is_empty()
        && at.end <= of.len
        && at.end.0 == u64::from(raw.used_sectors.get())
        && at.last.0 == raw.last.get();
    is_all.then_some(records)
}

impl Mark {
    /// Notes a record whose entries were added.
    fn take(&mut self, record: &Record) {
        let header = &record.header;
        self.records += 1;
        (self.epoch, self.last) = (header.epoch, header.record_sequence);
        self.last_checksum = record.checksum;
        self.bound = self.bound.max(header.next_data);
        self.end += record.record_sectors;
    }

    /// Notes an entry.
    const fn pass(&mut self, entry: &Entry) {
        self.block = entry.extent.start.0.wrapping_add(entry.extent.len.0) / BLOCK;
        self.sequence = entry.data_sequence.0;
    }

    fn put(&mut self, body: &mut Vec<u8>, entry: &Entry) {
        let (start, len) = (entry.extent.start.0, entry.extent.len.0);
        let follows = entry.data_sequence.0 == self.sequence.wrapping_add(1);
        let is_plain = (entry.kind, entry.class) == (EntryKind::Data, Class::Data)
            && (len, start % BLOCK) == (BLOCK, 0)
            && entry.version == 0
            && !entry.over_kept;
        let flags = if follows { 0 } else { SEQUENCE_FOLLOWS };
        let flags = flags | if is_plain { 0 } else { ALL_FOLLOWS };
        put(body, zigzag(start / BLOCK, self.block) << FLAG_BITS | flags);
        if !follows {
            put(body, zigzag(entry.data_sequence.0, self.sequence));
        }
        if !is_plain {
            put(body, start % BLOCK);
            put(body, len);
            put(body, entry.version);
            body.extend_from_slice(&encode_kind(entry));
        }
        self.pass(entry);
    }

    fn get(&mut self, body: &mut &[u8]) -> Option<Entry> {
        let first = get(body)?;
        let block = self.block.checked_add_signed(unzigzag(first >> FLAG_BITS))?;
        let difference = match first & SEQUENCE_FOLLOWS {
            0 => 1,
            _ => unzigzag(get(body)?),
        };
        let sequence = DataSequence(self.sequence.wrapping_add_signed(difference));
        let start = block.checked_mul(BLOCK)?;
        let plain = Entry::new(Extent::new(start, BLOCK), sequence, EntryKind::Data);
        let entry = if first & ALL_FOLLOWS == 0 {
            plain
        } else {
            let start = start.checked_add(get(body)?)?;
            let (len, version) = (get(body)?, get(body)?);
            let (kind, rest) = body.split_first_chunk()?;
            *body = rest;
            let (kind, class, over_kept) = decode_kind(*kind).ok()?;
            Entry { extent: Extent::new(start, len), version, kind, class, over_kept, ..plain }
        };
        let is_possible = entry.extent.len.0 > 0 && is_in_one_space(entry.extent);
        self.pass(&entry);
        is_possible.then_some(entry)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
