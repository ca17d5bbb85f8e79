//! The marks as other programs see them: read with offsets of this module's own, not the driver's.

use manylogs_ext4check::{BLOCK_BYTES, Block, BlockNo, Source};
use manylogs_sim::DiskImage;

use crate::ext4::{ImageSource, SMALL_MIB};

/// Where fields of a superblock lie.
const INCOMPAT_TOP: usize = 0x63;
const RO_COMPAT: usize = 0x65;
const SUM: usize = 0x3FC;
const STAGE: usize = 0x3E2;

/// One superblock.
pub(super) struct Seen {
    /// Whether it has the feature bit that keeps other programs away.
    pub(super) bit: bool,
    /// Whether its checksum is right, or it has none.
    pub(super) whole: bool,
    /// The pointer's byte for the stage.
    pub(super) stage: u8,
}

/// The superblocks of a file system.
pub(super) struct Superblocks {
    pub(super) primary: Seen,
    pub(super) backups: Vec<Seen>,
}

impl Superblocks {
    /// Reads all superblocks; copies are at the beginning of groups of `per_group` blocks.
    pub(super) fn of(image: &DiskImage) -> Result<Self, String> {
        let source = ImageSource::new(image, SMALL_MIB);
        let mut block: Block = [0; BLOCK_BYTES];
        let mut read = |number: u64| {
            let told = |error: std::io::Error| format!("reading {number}: {error}");
            source.read(BlockNo(number), &mut block).map(|()| block).map_err(told)
        };
        let first = read(0)?;
        let primary = &first[1024..2048];
        let uuid = primary[0x68..0x78].to_vec();
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| primary[at + byte]));
        let (blocks, per_group) = (u64::from(number(4)), u64::from(number(0x20)));
        let mut backups = Vec::new();
        for start in (per_group..blocks).step_by(usize::try_from(per_group).unwrap_or(1)) {
            let block = read(start)?;
            // A copy has the file system's id; data at the beginning of a group does not.
            if block[0x38..0x3A] == [0x53, 0xEF] && block[0x68..0x78] == uuid {
                backups.push(Seen::of(&block[..1024]));
            }
        }
        Ok(Self { primary: Seen::of(primary), backups })
    }

    /// Checks what must hold at every moment.
    pub(super) fn check(&self) -> Result<(), String> {
        let in_backups = self.backups.iter().any(|backup| backup.bit);
        if in_backups && !self.primary.bit {
            return Err("copies of the superblock have the bit, and the first has not".to_owned());
        }
        Ok(())
    }

    /// Whether only MLFS mounts or checks it, whichever superblock is used.
    pub(super) fn is_guarded(&self) -> bool {
        self.primary.bit && self.backups.iter().all(|backup| backup.bit)
    }

    /// Whether the kernel and e2fsck take it for ext4.
    pub(super) fn is_plain(&self) -> bool {
        !self.primary.bit && self.primary.whole
    }

    /// Whether no trace of MLFS is left, and every superblock is whole.
    pub(super) fn is_clean(&self) -> bool {
        let mut all = self.backups.iter().chain([&self.primary]);
        all.all(|seen| !seen.bit && seen.whole && seen.stage == 0)
    }
}

impl Seen {
    fn of(bytes: &[u8]) -> Self {
        let summed = bytes[RO_COMPAT] & 4 != 0;
        let sum = !crc32c(&bytes[..SUM]);
        Self {
            bit: bytes[INCOMPAT_TOP] & 0x40 != 0,
            whole: !summed || bytes[SUM..] == sum.to_le_bytes(),
            stage: bytes[STAGE],
        }
    }
}

/// CRC-32C of bytes, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_comes_out() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
