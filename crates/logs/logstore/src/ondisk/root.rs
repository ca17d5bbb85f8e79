//! The root: the small part of a volume's state that changes and must be durable ahead of its use.
//!
//! There are two slots, at either end of the device. An update first writes the slot that does not
//! hold the newest root, then the other one. The update takes effect when the first write is
//! durable. Once the second is durable, too, it survives the loss of either slot.

use crate::{DataSequence, Floors, Incarnation, LogId, Record, SequenceLimit, VolumeId};
use bytes::Bytes;
use manylogs_block::{Extent, Payload, Request, Sectors, to_usize};
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ondisk::log_bitmap::{LOG_BITMAP_BYTES, LogBitmap, OPENED_TOGETHER, USED_TOGETHER};

/// Sectors of a root slot.
pub const ROOT_SECTORS: Sectors = Sectors(24);
const MAGIC: [u8; 8] = *b"MLOGROOT";
/// Most logs that may be out of use; a drive with more bad places should be replaced.
pub const RETIRED_MAX: usize = 512;
/// Largest plausible generation: no root is written more often.
const GENERATION_MAX: u64 = 1 << 56;
const FLAG_CLOSED: u32 = 1;
const FLAG_DRAINED: u32 = 2;
const FLAG_NOTES_COPIES: u32 = 4;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    incarnation: U32,
    volume: VolumeId,
    generation: U64,
    floor: U64,
    snapshot_bytes: U64,
    snapshot_checksum: U32,
    snapshot_slot: U32,
    logs_per_bit: U32,
    flags: U32,
    retired_count: U32,
    sequence_limit: U64,
    kept_floor: U64,
    reserved: [u8; 36],
    opened: [u8; LOG_BITMAP_BYTES],
    used: [u8; LOG_BITMAP_BYTES],
    retired: [U32; RETIRED_MAX],
}

const _: () = assert!(size_of::<Raw>() == 128 + 2 * LOG_BITMAP_BYTES + 4 * RETIRED_MAX);
/// Bytes that the checksum covers.
pub const ROOT_BYTES: usize = size_of::<Raw>();
const _: () = assert!(size_of::<Raw>() as u64 <= ROOT_SECTORS.bytes());

/// Place of a table snapshot: `bytes` in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRef {
    /// Number of the slot, 0 or 1.
    pub slot: u32,
    /// Length of the encoded table.
    pub bytes: u64,
    /// CRC-32C of those bytes.
    pub checksum: u32,
}

/// State in which the store was left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Left {
    /// The store is open, or was left by a crash.
    #[default]
    Open,
    /// Closed in order: the snapshot is complete.
    Closed,
    /// Drained: the logs hold no live versions, all data is home.
    Drained,
}

/// A root: the small structure that says where recovery begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Grows with every update; the larger of two whole roots counts.
    pub generation: u64,
    /// How many times the store was opened.
    pub incarnation: Incarnation,
    /// All sequences that were ever used are below it.
    pub sequence_limit: SequenceLimit,
    /// Entries with smaller data sequences are dead, wherever they are found.
    pub floor: DataSequence,
    /// The floor of versions that are kept in the logs: never above `floor`.
    pub kept_floor: DataSequence,
    /// The snapshot that recovery may begin with.
    pub snapshot: Option<SnapshotRef>,
    /// Logs that may have changed since the snapshot; or those that `notes_copies` speaks of.
    pub opened: LogBitmap,
    /// Whether `opened` names all logs of which copies on several drives may differ, though there
    /// is no snapshot. An older program writes roots that do not say so.
    pub notes_copies: bool,
    /// Logs that may ever have been used: recovery does not even look at the others.
    pub used: LogBitmap,
    /// Logs that failed and take no more records.
    pub retired: Vec<LogId>,
    /// State in which the store was left.
    pub left: Left,
}

impl Root {
    /// The root of a new volume with `logs` logs.
    pub fn first(logs: usize) -> Self {
        Self {
            generation: 1,
            incarnation: Incarnation(1),
            sequence_limit: SequenceLimit(SequenceLimit::NONE_USED.0 + SequenceLimit::STEP),
            floor: DataSequence(0),
            kept_floor: DataSequence(0),
            snapshot: None,
            opened: LogBitmap::none(logs),
            notes_copies: false,
            used: LogBitmap::none(logs),
            retired: Vec::new(),
            left: Left::Open,
        }
    }

    /// Both floors.
    #[must_use]
    pub const fn floors(&self) -> Floors {
        Floors { home: self.floor, kept: self.kept_floor }
    }

    /// Raises the floors; none is lowered.
    pub fn raise(&mut self, floors: Floors) {
        self.floor = self.floor.max(floors.home);
        self.kept_floor = self.kept_floor.max(floors.kept);
    }

    /// Marks `log` and its neighbours as opened.
    pub fn open_around(&mut self, log: LogId, logs: usize) {
        if !self.used.contains(log) {
            self.used.add_around(log, logs, USED_TOGETHER);
        }
        if self.names_opened() {
            self.opened.add_around(log, logs, OPENED_TOGETHER);
            self.used.add_all(&self.opened);
        }
    }

    /// Whether a log takes records only when `opened` names it.
    #[must_use]
    pub const fn names_opened(&self) -> bool {
        self.snapshot.is_some() || self.notes_copies
    }

    /// Whether the record was written under a later root. A record carries the floor that was
    /// durable before it, and its sequences had been set aside before it.
    #[must_use]
    pub fn is_older_than(&self, record: &Record) -> bool {
        let (header, limit) = (&record.header, self.sequence_limit.0);
        !plant::is(Bug::StaleRootBelieved)
            && (header.floor > self.floor
                || header.record_sequence.0 >= limit
                || header.next_data.0 > limit)
    }

    /// The bytes of a slot, with their checksum.
    pub fn encode(&self, volume: VolumeId) -> Bytes {
        let snapshot = self.snapshot.unwrap_or(SnapshotRef { slot: 0, bytes: 0, checksum: 0 });
        let flags = match self.left {
            Left::Open => 0,
            Left::Closed => FLAG_CLOSED,
            Left::Drained => FLAG_CLOSED | FLAG_DRAINED,
        };
        let flags = flags | if self.notes_copies { FLAG_NOTES_COPIES } else { 0 };
        let retired = &self.retired[..self.retired.len().min(RETIRED_MAX)];
        let mut raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            incarnation: U32::new(self.incarnation.0),
            volume,
            generation: U64::new(self.generation),
            floor: U64::new(self.floor.0),
            snapshot_bytes: U64::new(snapshot.bytes),
            snapshot_checksum: U32::new(snapshot.checksum),
            snapshot_slot: U32::new(snapshot.slot),
            logs_per_bit: U32::new(self.opened.logs_per_bit()),
            flags: U32::new(flags),
            retired_count: U32::new(u32::try_from(retired.len()).unwrap_or(0)),
            sequence_limit: U64::new(self.sequence_limit.0),
            // Zero stands for "as `floor`": then the bytes are the same as those of older programs.
            kept_floor: U64::new(if self.kept_floor < self.floor { self.kept_floor.0 } else { 0 }),
            reserved: [0; 36],
            opened: *self.opened.bits(),
            used: *self.used.bits(),
            retired: [U32::ZERO; RETIRED_MAX],
        };
        for (slot, log) in raw.retired.iter_mut().zip(retired) {
            *slot = U32::new(log.0);
        }
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(to_usize(ROOT_SECTORS.bytes()), 0);
        bytes.into()
    }

    /// The durable write of this root to `slot`.
    pub fn write_to(&self, slot: Extent, volume: VolumeId) -> Request {
        Request::write_fua(slot, Payload::bytes(self.encode(volume)))
    }

    /// The root in `bytes`, if it is whole and belongs to this volume.
    pub fn decode(bytes: &[u8], volume: VolumeId) -> Option<Self> {
        let (mut raw, _) = Raw::read_from_prefix(bytes).ok()?;
        let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
        if raw.magic != MAGIC
            || raw.volume != volume
            || crc32c::crc32c(raw.as_bytes()) != checksum
            || raw.snapshot_slot.get() > 1
        {
            return None;
        }
        let snapshot = (raw.snapshot_bytes.get() > 0).then_some(SnapshotRef {
            slot: raw.snapshot_slot.get(),
            bytes: raw.snapshot_bytes.get(),
            checksum: raw.snapshot_checksum.get(),
        });
        let incarnation = Incarnation(raw.incarnation.get());
        let sequence_limit = SequenceLimit(raw.sequence_limit.get());
        if raw.generation.get() > GENERATION_MAX
            || incarnation > Incarnation::MAX
            || raw.floor.get() > sequence_limit.0
            || raw.kept_floor.get() > raw.floor.get()
        {
            return None;
        }
        let retired = raw.retired.get(..raw.retired_count.get() as usize)?;
        let left = match raw.flags.get() {
            flags if flags & FLAG_DRAINED != 0 => Left::Drained,
            flags if flags & FLAG_CLOSED != 0 => Left::Closed,
            _ => Left::Open,
        };
        Some(Self {
            generation: raw.generation.get(),
            incarnation,
            sequence_limit,
            floor: DataSequence(raw.floor.get()),
            kept_floor: DataSequence(match raw.kept_floor.get() {
                0 => raw.floor.get(),
                kept => kept,
            }),
            snapshot,
            opened: LogBitmap::from_raw(raw.logs_per_bit.get(), raw.opened)?,
            notes_copies: raw.flags.get() & FLAG_NOTES_COPIES != 0,
            used: LogBitmap::from_raw(raw.logs_per_bit.get(), raw.used)?,
            retired: retired.iter().map(|log| LogId(log.get())).collect(),
            left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_survives_encoding_and_no_bit_flip_passes() {
        let mut opened = LogBitmap::none(200_000);
        opened.add_around(LogId(70_000), 200_000, 32);
        let root = Root {
            generation: 9,
            incarnation: Incarnation(4),
            sequence_limit: SequenceLimit(1 << 50),
            floor: DataSequence(77),
            kept_floor: DataSequence(75),
            snapshot: Some(SnapshotRef { slot: 1, bytes: 1000, checksum: 5 }),
            used: opened.clone(),
            opened,
            notes_copies: true,
            retired: vec![LogId(5), LogId(199_999)],
            left: Left::Closed,
        };
        let volume = [7; 16];
        let bytes = root.encode(volume);
        assert_eq!(Root::decode(&bytes, volume), Some(root));
        assert_eq!(Root::decode(&bytes, [8; 16]), None);
        for bit in (0..size_of::<Raw>() * 8).step_by(13) {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Root::decode(&bad, volume), None, "bit {bit}");
        }
    }
}
