//! The pointer to a log file: 28 bytes of the superblock that no program of ext4 uses.
//!
//! They lie in the superblock's second sector, beside its checksum, so that a torn write of the
//! superblock leaves the old pointer or the new one.

use crate::checksum::{NO_SEED, crc};
use crate::ondisk::bytes::{high32, join32, le16, le32, low16, low32, put_le16, put_le32};
use crate::units::{BlockNo, Ino, Run};

/// Its byte range in the superblock.
pub(crate) const POINTER: std::ops::Range<usize> = 0x3E0..0x3FC;

const MAGIC: u16 = u16::from_le_bytes(*b"ML");
const CHECKSUM: usize = 24;

/// The stage of a file system on its way to MLFS, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A log file is being allocated. The file system is ext4 for every program.
    TakingOver,
    /// The file system belongs to MLFS: the newest durable versions may be only in the logs.
    Adopted,
    /// The logs are empty, and the log file is being removed. The file system is ext4 for every
    /// program.
    GivingBack,
}

/// The pointer to the log file, with the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// See [`Stage`].
    pub stage: Stage,
    /// The log file's inode; `None` if there may be no log file.
    pub ino: Option<Ino>,
    /// The first block of its first run.
    pub first: BlockNo,
    /// The first block of its last run.
    pub last: BlockNo,
    /// CRC-32C of its runs, see [`Pointer::sum`].
    pub map_sum: u32,
}

impl Stage {
    const ALL: [Self; 3] = [Self::TakingOver, Self::Adopted, Self::GivingBack];

    const fn code(self) -> u8 {
        match self {
            Self::TakingOver => 1,
            Self::Adopted => 2,
            Self::GivingBack => 3,
        }
    }
}

impl Pointer {
    /// A pointer without a log file.
    #[must_use]
    pub const fn empty(stage: Stage) -> Self {
        Self { stage, ino: None, first: BlockNo(0), last: BlockNo(0), map_sum: 0 }
    }

    /// CRC-32C of runs: for each its first block (8 bytes) and its length (4 bytes).
    #[must_use]
    pub fn sum(runs: &[Run]) -> u32 {
        let add =
            |sum, run: &Run| crc(crc(sum, &run.start.0.to_le_bytes()), &run.blocks.to_le_bytes());
        !runs.iter().fold(NO_SEED, add)
    }

    /// The pointer in a superblock's bytes, if there is a whole one; `uuid` is the file system's.
    pub(crate) fn decode(bytes: &[u8], uuid: [u8; 16]) -> Option<Self> {
        let bytes = &bytes[POINTER];
        let whole = le16(bytes, 0) == MAGIC && le32(bytes, CHECKSUM) == checksum(bytes, uuid);
        let stage = Stage::ALL.into_iter().find(|stage| stage.code() == bytes[2]);
        stage.filter(|_| whole).map(|stage| Self {
            stage,
            ino: Some(Ino(le32(bytes, 4))).filter(|ino| ino.0 != 0),
            first: BlockNo(join32(le32(bytes, 8), le16(bytes, 16).into())),
            last: BlockNo(join32(le32(bytes, 12), le16(bytes, 18).into())),
            map_sum: le32(bytes, 20),
        })
    }

    /// Writes it into a superblock's bytes.
    pub(crate) fn encode(self, bytes: &mut [u8], uuid: [u8; 16]) {
        let bytes = &mut bytes[POINTER];
        bytes.fill(0);
        put_le16(bytes, 0, MAGIC);
        bytes[2] = self.stage.code();
        put_le32(bytes, 4, self.ino.map_or(0, |ino| ino.0));
        put_le32(bytes, 8, low32(self.first.0));
        put_le32(bytes, 12, low32(self.last.0));
        put_le16(bytes, 16, low16(high32(self.first.0)));
        put_le16(bytes, 18, low16(high32(self.last.0)));
        put_le32(bytes, 20, self.map_sum);
        let sum = checksum(bytes, uuid);
        put_le32(bytes, CHECKSUM, sum);
    }
}

/// The checksum covers the UUID, so that the pointer of another file system is not whole.
fn checksum(bytes: &[u8], uuid: [u8; 16]) -> u32 {
    !crc(crc(NO_SEED, &uuid), &bytes[..CHECKSUM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_survive_encoding_and_every_flipped_bit_is_noticed() {
        let pointer = Pointer {
            stage: Stage::Adopted,
            ino: Some(Ino(12)),
            first: BlockNo(0xABCD_1234_5678),
            last: BlockNo(0xFEDC_8765_4321),
            map_sum: 77,
        };
        let (uuid, mut bytes) = ([3; 16], [0xFF; 1024]);
        pointer.encode(&mut bytes, uuid);
        assert_eq!(Pointer::decode(&bytes, uuid), Some(pointer));
        assert_eq!(Pointer::decode(&bytes, [4; 16]), None);
        assert!(bytes[..POINTER.start].iter().all(|byte| *byte == 0xFF));
        for bit in 8 * POINTER.start..8 * POINTER.end {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Pointer::decode(&flipped, uuid), None, "bit {bit}");
        }
        Pointer::empty(Stage::TakingOver).encode(&mut bytes, uuid);
        assert_eq!(Pointer::decode(&bytes, uuid), Some(Pointer::empty(Stage::TakingOver)));
        assert_eq!(Pointer::decode(&[0; 1024], [0; 16]), None);
    }

    #[test]
    fn the_sum_tells_runs_apart() {
        let run = |start, blocks| Run { start: BlockNo(start), blocks };
        let one = Pointer::sum(&[run(5, 6), run(7, 8)]);
        assert_ne!(one, Pointer::sum(&[run(7, 8), run(5, 6)]));
        assert_ne!(one, Pointer::sum(&[run(5, 6)]));
        assert_eq!(Pointer::sum(&[]), 0);
    }
}
