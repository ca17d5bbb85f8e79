//! The root: the little of a volume's state that changes and must be durable ahead of its use.
//!
//! Two slots; an update writes first the slot that does not hold the newest root, then the other.
//! It is effective when the first write is durable, and survives the loss of either slot when the
//! second is.

use bytes::Bytes;
use manylogs_block::{IoError, Payload, Request, to_usize};
use manylogs_logstore::{DataSequence, Incarnation, LogId, VolumeId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{Layout, ROOT_SECTORS};
use crate::phase::{Below, Phase};
use crate::state::Inner;

const MAGIC: [u8; 8] = *b"MLOGROOT";
const BITMAP_BYTES: usize = 4096;
const BITS: u32 = 8 * 4096;
/// Logs to either side that are opened together, ahead of use: a sixteenth, at most this many.
const BATCH_MAX: u32 = 32;

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
    reserved: [u8; 60],
    touched: [u8; BITMAP_BYTES],
}

const _: () = assert!(size_of::<Raw>() == 128 + BITMAP_BYTES);

/// A table snapshot: `bytes` in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRef {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) generation: u64,
    pub(crate) incarnation: Incarnation,
    /// Entries with smaller data sequences are dead, wherever they are found.
    pub(crate) floor: DataSequence,
    pub(crate) snapshot: Option<SnapshotRef>,
    pub(crate) touched: Touched,
}

/// Logs that may have changed since the snapshot.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Touched {
    logs_per_bit: u32,
    bits: Box<[u8; BITMAP_BYTES]>,
}

impl Touched {
    pub(crate) fn none(logs: usize) -> Self {
        let logs = u32::try_from(logs).unwrap_or(u32::MAX);
        Self { logs_per_bit: logs.div_ceil(BITS).max(1), bits: Box::new([0; BITMAP_BYTES]) }
    }

    pub(crate) fn contains(&self, log: LogId) -> bool {
        let bit = log.0 / self.logs_per_bit;
        self.bits[(bit / 8) as usize] & (1 << (bit % 8)) != 0
    }

    pub(crate) fn add(&mut self, log: LogId) {
        self.add_bit(log.0 / self.logs_per_bit);
    }

    /// Adds the log and its neighbours, so that a head that wanders finds them open. `logs` is how
    /// many the volume has.
    pub(crate) fn add_around(&mut self, log: LogId, logs: usize) {
        let bit = log.0 / self.logs_per_bit;
        let logs = u32::try_from(logs).unwrap_or(u32::MAX);
        let batch = (logs / self.logs_per_bit / 16).min(BATCH_MAX);
        for bit in bit.saturating_sub(batch)..=(bit + batch).min(BITS - 1) {
            self.add_bit(bit);
        }
    }

    fn add_bit(&mut self, bit: u32) {
        self.bits[(bit / 8) as usize] |= 1 << (bit % 8);
    }
}

impl std::fmt::Debug for Touched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count: u32 = self.bits.iter().map(|byte| byte.count_ones()).sum();
        write!(f, "Touched({count} x {} logs)", self.logs_per_bit)
    }
}

impl Inner {
    /// Changes the root, durably in both slots. Changes follow one another.
    pub(crate) async fn update_root(
        &self,
        phase: Phase,
        change: impl FnOnce(&mut Root),
    ) -> Result<(), IoError> {
        let _turn = self.root_turn.take().await;
        let (root, first) = {
            let mut state = self.state.borrow_mut();
            let mut root = state.root.clone();
            change(&mut root);
            state.root_generation += 1;
            root.generation = state.root_generation;
            (root, 1 - state.root_slot)
        };
        write_root(&self.device, phase, &root, self.volume, first).await?;
        self.state.borrow_mut().root_slot = first;
        write_root(&self.device, phase, &root, self.volume, 1 - first).await?;
        self.state.borrow_mut().root = root;
        Ok(())
    }
}

pub(crate) async fn write_root(
    device: &Below,
    phase: Phase,
    root: &Root,
    volume: VolumeId,
    slot: usize,
) -> Result<(), IoError> {
    let payload = Payload::bytes(root.encode(volume));
    device.submit(phase, Request::write_fua(Layout::root(slot), payload)).await.map(drop)
}

impl Root {
    pub(crate) fn encode(&self, volume: VolumeId) -> Bytes {
        let snapshot = self.snapshot.unwrap_or(SnapshotRef { slot: 0, bytes: 0, checksum: 0 });
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
            logs_per_bit: U32::new(self.touched.logs_per_bit),
            reserved: [0; 60],
            touched: *self.touched.bits,
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(to_usize(ROOT_SECTORS.bytes()), 0);
        bytes.into()
    }

    /// The root in `bytes`, if it is whole and of this volume.
    pub(crate) fn decode(bytes: &[u8], volume: VolumeId) -> Option<Self> {
        let (mut raw, _) = Raw::read_from_prefix(bytes).ok()?;
        let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
        if raw.magic != MAGIC
            || raw.volume != volume
            || crc32c::crc32c(raw.as_bytes()) != checksum
            || raw.logs_per_bit.get() == 0
        {
            return None;
        }
        let snapshot = (raw.snapshot_bytes.get() > 0).then_some(SnapshotRef {
            slot: raw.snapshot_slot.get(),
            bytes: raw.snapshot_bytes.get(),
            checksum: raw.snapshot_checksum.get(),
        });
        Some(Self {
            generation: raw.generation.get(),
            incarnation: Incarnation(raw.incarnation.get()),
            floor: DataSequence(raw.floor.get()),
            snapshot,
            touched: Touched { logs_per_bit: raw.logs_per_bit.get(), bits: Box::new(raw.touched) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_survives_encoding_and_no_bit_flip_passes() {
        let mut touched = Touched::none(200_000);
        touched.add_around(LogId(70_000), 200_000);
        let root = Root {
            generation: 9,
            incarnation: Incarnation(4),
            floor: DataSequence(77),
            snapshot: Some(SnapshotRef { slot: 1, bytes: 1000, checksum: 5 }),
            touched,
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

    #[test]
    fn marks_cover_the_log_and_its_neighbours() {
        for (logs, batch) in [(100, 6), (10_000, 32), (8, 0)] {
            let mut touched = Touched::none(logs);
            touched.add_around(LogId(4 + batch), logs);
            assert!((4..=4 + 2 * batch).all(|log| touched.contains(LogId(log))));
            assert!(!touched.contains(LogId(3)));
            assert!(!touched.contains(LogId(5 + 2 * batch)));
        }
    }
}
