//! The log record: a header that proves its place and its payload.

use bytes::{Bytes, BytesMut};
use manylogs_block::{Handle, Payload, SECTOR_BYTES, Sectors, narrow, to_usize};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::{ENTRY_BYTES, decode_entry, encode_entry};
use crate::shape::header_bytes;
use crate::{
    DataSequence, Entry, EntryKind, Epoch, LogId, LogOffset, RecordSequence, RecordShape,
    UnitChecksums, units_of,
};

const MAGIC: [u8; 8] = *b"MLOGREC1";
const VERSION: u16 = 3;
const CHECKSUM_RANGE: std::ops::Range<usize> = 8..12;

/// Bytes of the fixed part of a record header.
pub const HEADER_BYTES: usize = 96;
/// Most entries of a record.
pub const MAX_ENTRIES: usize = 1024;
/// Longest header in a log; [`MAX_ENTRIES`] entries with the longest payload need only 80 sectors.
pub(crate) const HEADER_SECTORS_MAX: Sectors = Sectors(128);

/// Identifies a volume: random, chosen at format.
pub type VolumeId = [u8; 16];

/// An id that no other volume has.
#[must_use]
pub fn new_volume_id(runtime: &Handle) -> VolumeId {
    let mut id = VolumeId::default();
    let (low, high) = id.split_at_mut(8);
    low.copy_from_slice(&runtime.random().to_le_bytes());
    high.copy_from_slice(&runtime.random().to_le_bytes());
    id
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    checksum: U32,
    version: U16,
    entry_count: U16,
    volume: VolumeId,
    log: U32,
    header_sectors: U32,
    epoch: U64,
    record_sequence: U64,
    floor: U64,
    payload_sectors: U32,
    previous_checksum: U32,
    record_sectors: U32,
    unit_count: U32,
    offset: U32,
    durable_tail: U32,
    next_data: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
/// The fields that bind a record to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The volume.
    pub volume: VolumeId,
    /// The log.
    pub log: LogId,
    /// The epoch of the log.
    pub epoch: Epoch,
    /// First sector of the record within the log.
    pub offset: LogOffset,
    /// The order of records in the volume.
    pub record_sequence: RecordSequence,
    /// Every entry with a smaller data sequence, in any log, is dead (see `docs/semantics.md`).
    pub floor: DataSequence,
    /// Header checksum of the record before it in this epoch; zero for the first.
    pub previous_checksum: u32,
    /// The durable tail: everything in the log before this offset was durable when the record was
    /// built. A place before it that is not whole now is damaged, not torn.
    pub durable_tail: LogOffset,
    /// Every entry of this record, and of all records before it in any log, has a smaller data
    /// sequence. If this is not above the floor, all of them are dead.
    pub next_data: DataSequence,
}

/// A record without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Place of the record.
    pub header: RecordHeader,
    /// Entries of the record. The payload of data entries follows in this order.
    pub entries: Vec<Entry>,
    /// Checksums of the payload, unit by unit, data entries only.
    pub unit_checksums: UnitChecksums,
    /// Length of the encoded header, padding included.
    pub header_sectors: Sectors,
    /// Length of header, payload and padding.
    pub record_sectors: Sectors,
    /// Checksum of the header.
    pub checksum: u32,
}

/// Why sectors do not hold the record that belongs there. At the end of a log one of these is
/// normal.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// There is no record.
    #[error("no record header")]
    NoHeader,
    /// The sectors cannot be read.
    #[error("the medium cannot be read where a record may begin")]
    Unreadable,
    /// A record of another volume, log, epoch or place, or one that does not follow its
    /// predecessor.
    #[error("a record of another place: {0} differs")]
    Misplaced(&'static str),
    /// Written by a newer version.
    #[error("record version {0}, this program knows {VERSION}")]
    Version(u16),
    /// Lengths that contradict one another or the log.
    #[error("impossible {0} in a record header")]
    Impossible(&'static str),
    /// Header torn or damaged.
    #[error("header checksum mismatch")]
    HeaderChecksum,
    /// Payload torn or damaged.
    #[error("payload checksum mismatch")]
    PayloadChecksum,
}

fn field(n: u64) -> U32 {
    U32::new(narrow(n))
}

impl Record {
    /// Builds the record, and encodes its header up to the end of the last sector in use; the rest
    /// of the header is zeroes. `payloads` are those of the data entries, in order. A record
    /// without entries is allowed: it begins an epoch.
    ///
    /// # Panics
    /// If there are more than [`MAX_ENTRIES`] entries, or the payloads do not match the entries.
    #[must_use]
    pub fn build(
        header: RecordHeader,
        entries: Vec<Entry>,
        payloads: &[Payload],
        shape: RecordShape,
    ) -> (Self, Bytes) {
        assert!(entries.len() <= MAX_ENTRIES, "{} entries", entries.len());
        let data = entries.iter().filter(|entry| entry.kind == EntryKind::Data);
        let mut unit_checksums = UnitChecksums::new();
        let (mut payloads, mut payload_len) = (payloads.iter(), Sectors(0));
        for entry in data {
            let payload = payloads.next().unwrap_or_else(|| panic!("payload missing"));
            assert!(payload.len() == entry.extent.len, "payload of another length");
            payload_len += entry.extent.len;
            for (start, len) in units_of(entry.extent.len) {
                unit_checksums.push(payload.checksum(start, len));
            }
        }
        let units = unit_checksums.len() as u64;
        let (header_sectors, record_sectors) = shape.len_of(entries.len(), units, payload_len);
        let mut record =
            Self { header, entries, unit_checksums, header_sectors, record_sectors, checksum: 0 };
        let mut bytes = record.used_bytes();
        record.checksum = checksum_of(&bytes);
        bytes[CHECKSUM_RANGE].copy_from_slice(&record.checksum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(to_usize(SECTOR_BYTES)), 0);
        (record, bytes.into())
    }

    /// The header's bytes, padded to whole sectors if it is in the log.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = self.used_bytes();
        bytes[CHECKSUM_RANGE].copy_from_slice(&self.checksum.to_le_bytes());
        let padded = to_usize(self.header_sectors.bytes()).max(bytes.len());
        bytes.resize(padded, 0);
        bytes.into()
    }

    /// The bytes of the header, with zeroes for the checksum. The buffer has room for whole
    /// sectors.
    fn used_bytes(&self) -> Vec<u8> {
        let used = header_bytes(self.entries.len(), self.unit_checksums.len());
        let mut bytes = Vec::with_capacity(used.next_multiple_of(to_usize(SECTOR_BYTES)));
        bytes.extend_from_slice(self.raw_header().as_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&encode_entry(entry));
        }
        for checksum in &self.unit_checksums {
            bytes.extend_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    fn raw_header(&self) -> RawHeader {
        let payload = self.entries.iter().fold(0, |sum, entry| sum + entry.payload_sectors().0);
        RawHeader {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U16::new(VERSION),
            entry_count: U16::new(narrow(self.entries.len())),
            volume: self.header.volume,
            log: U32::new(self.header.log.0),
            header_sectors: field(self.header_sectors.0),
            epoch: U64::new(self.header.epoch.0),
            record_sequence: U64::new(self.header.record_sequence.0),
            floor: U64::new(self.header.floor.0),
            payload_sectors: field(payload),
            previous_checksum: U32::new(self.header.previous_checksum),
            record_sectors: field(self.record_sectors.0),
            unit_count: field(self.unit_checksums.len() as u64),
            offset: U32::new(self.header.offset.0),
            durable_tail: U32::new(self.header.durable_tail.0),
            next_data: U64::new(self.header.next_data.0),
        }
    }

    /// The length of the header that begins with `first_sector`, as the header itself states it.
    /// Only magic, version and plausible lengths have been checked then, not the checksum.
    ///
    /// # Errors
    /// If the sector does not begin a header.
    pub fn announced_header(first_sector: &[u8]) -> Result<Sectors, RecordError> {
        let raw = raw_of(first_sector)?;
        let (entries, units) = (usize::from(raw.entry_count.get()), raw.unit_count.get() as usize);
        let least = header_bytes(entries, units);
        let len = Sectors(raw.header_sectors.get().into());
        let most = HEADER_SECTORS_MAX;
        if entries > MAX_ENTRIES || len.bytes() < least as u64 || len > most {
            return Err(RecordError::Impossible("header length"));
        }
        Ok(len)
    }

    /// Decodes the header in `bytes`, which has at least [`Record::announced_header`] sectors.
    ///
    /// # Errors
    /// If it is damaged or contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let header_sectors = Self::announced_header(bytes)?;
        Self::decode_from(bytes, header_sectors)
    }

    /// Decodes a header that is kept apart from its payload.
    ///
    /// # Errors
    /// If it is damaged or contradicts itself, or if it is a header of a record in a log.
    pub fn decode_apart(bytes: &[u8]) -> Result<Self, RecordError> {
        let raw = raw_of(bytes)?;
        if raw.header_sectors.get() != 0 || usize::from(raw.entry_count.get()) > MAX_ENTRIES {
            return Err(RecordError::Impossible("header length"));
        }
        Self::decode_from(bytes, Sectors(0))
    }

    fn decode_from(bytes: &[u8], header_sectors: Sectors) -> Result<Self, RecordError> {
        let raw = raw_of(bytes)?;
        let used = header_bytes(usize::from(raw.entry_count.get()), raw.unit_count.get() as usize);
        let used = bytes.get(..used).ok_or(RecordError::Impossible("header length"))?;
        let mut zeroed = BytesMut::from(used);
        zeroed[CHECKSUM_RANGE].fill(0);
        if checksum_of(&zeroed) != raw.checksum.get() {
            return Err(RecordError::HeaderChecksum);
        }
        let (entries, unit_checksums) = decode_body(&raw, &used[HEADER_BYTES..])?;
        let record = Self {
            header: RecordHeader {
                volume: raw.volume,
                log: LogId(raw.log.get()),
                epoch: Epoch(raw.epoch.get()),
                offset: LogOffset(raw.offset.get()),
                record_sequence: RecordSequence(raw.record_sequence.get()),
                floor: DataSequence(raw.floor.get()),
                previous_checksum: raw.previous_checksum.get(),
                durable_tail: LogOffset(raw.durable_tail.get()),
                next_data: DataSequence(raw.next_data.get()),
            },
            entries,
            unit_checksums,
            header_sectors,
            record_sectors: Sectors(raw.record_sectors.get().into()),
            checksum: raw.checksum.get(),
        };
        record.check_lengths(raw.payload_sectors.get().into())?;
        Ok(record)
    }

    fn check_lengths(&self, payload: u64) -> Result<(), RecordError> {
        let sum = self
            .entries
            .iter()
            .fold(0u64, |sum, entry| sum.saturating_add(entry.payload_sectors().0));
        let units: u64 =
            self.entries.iter().map(|entry| entry.payload_sectors().0.div_ceil(8)).sum();
        if sum != payload || units != self.unit_checksums.len() as u64 {
            return Err(RecordError::Impossible("payload length"));
        }
        if self.record_sectors.0 < self.header_sectors.0 + payload {
            return Err(RecordError::Impossible("record length"));
        }
        Ok(())
    }
}

fn raw_of(bytes: &[u8]) -> Result<RawHeader, RecordError> {
    let (raw, _) = RawHeader::read_from_prefix(bytes).map_err(|_| RecordError::NoHeader)?;
    if raw.magic != MAGIC {
        return Err(RecordError::NoHeader);
    }
    if raw.version.get() != VERSION {
        return Err(RecordError::Version(raw.version.get()));
    }
    Ok(raw)
}

/// Entries and checksums, which follow the fixed part of a header.
type BodyOfHeader = (Vec<Entry>, UnitChecksums);

fn decode_body(raw: &RawHeader, body: &[u8]) -> Result<BodyOfHeader, RecordError> {
    let split = usize::from(raw.entry_count.get()) * ENTRY_BYTES;
    let (entries, checksums) = body.split_at(split);
    let entries = entries.chunks_exact(ENTRY_BYTES).map(decode_entry).collect::<Result<_, _>>()?;
    let checksums = checksums
        .chunks_exact(4)
        .map(|bytes| U32::read_from_bytes(bytes).map_or(0, U32::get))
        .collect();
    Ok((entries, checksums))
}

fn checksum_of(used: &[u8]) -> u32 {
    crc32c::crc32c(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Space};
    use manylogs_block::Extent;
    use proptest::prelude::*;

    fn sample(shape: RecordShape) -> (Record, Vec<Payload>) {
        let entry = |start, len, sequence, kind| {
            Entry::new(Extent::new(start, len), DataSequence(sequence), kind)
        };
        let entries = vec![
            entry(1000, 8, 21, EntryKind::Data),
            entry(5, 20, 22, EntryKind::Data),
            entry(0, 1 << 36, 23, EntryKind::Zeroes),
            Entry {
                version: u64::MAX,
                class: Class::Metadata,
                ..entry(Space(9).address(Extent::new(77, 3)).start.0, 3, 24, EntryKind::Supersede)
            },
        ];
        let payloads = vec![Payload::tags(1, Sectors(8)), Payload::tags(90, Sectors(20))];
        let header = RecordHeader {
            volume: *b"0123456789abcdef",
            log: LogId(3),
            epoch: Epoch(17),
            offset: LogOffset(64),
            record_sequence: RecordSequence(19),
            floor: DataSequence(4),
            previous_checksum: 0xdead_beef,
            durable_tail: LogOffset(48),
            next_data: DataSequence(25),
        };
        (Record::build(header, entries, &payloads, shape).0, payloads)
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        for physical in [1, 8] {
            let (record, _) = sample(RecordShape::in_log(Sectors(physical)));
            let bytes = record.encode();
            assert_eq!(bytes.len() as u64, record.header_sectors.bytes());
            assert_eq!(record.record_sectors.0 % physical, 0);
            assert_eq!(Record::decode(&bytes).unwrap(), record);
            assert!(Record::decode_apart(&bytes).is_err());
        }
    }

    #[test]
    fn a_header_apart_takes_no_sectors() {
        let (record, _) = sample(RecordShape::apart(Sectors(8)));
        assert_eq!((record.header_sectors.0, record.record_sectors.0), (0, 32));
        let bytes = record.encode();
        assert_eq!(Record::decode_apart(&bytes).unwrap(), record);
        assert!(Record::decode(&bytes).is_err());
    }

    #[test]
    fn every_single_bit_flip_of_the_used_header_is_noticed() {
        let (record, _) = sample(RecordShape::in_log(Sectors(1)));
        let good = record.encode();
        let used = HEADER_BYTES + record.entries.len() * ENTRY_BYTES + 4 * 4;
        for bit in 0..used * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..2048),
                                       with_magic in any::<bool>()) {
            if with_magic && bytes.len() >= 14 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
            }
            let _ = Record::decode(&bytes);
            let _ = Record::decode_apart(&bytes);
        }
    }
}
