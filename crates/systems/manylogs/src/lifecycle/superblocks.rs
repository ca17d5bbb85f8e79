//! Writing superblocks, and zeroes.

use manylogs_block::{Extent, IoError, Payload, Request, to_usize};

use crate::error::VolumeError;
use crate::ondisk::superblock::Superblock;
use manylogs_engine::{Member, Phase};

/// Longest request for zeroes.
const ZERO_SECTORS: u64 = 1 << 16;

/// Writes both copies, the last one first. So one copy is always whole, and the first copy keeps
/// the old state until the change is durable in the last.
pub(crate) async fn write_superblock(
    device: &Member,
    superblock: &Superblock,
) -> Result<(), VolumeError> {
    for copy in [1, 0] {
        write_superblock_copy(device, superblock, copy).await?;
    }
    Ok(())
}

/// Writes the first copy (0) or the last (1).
pub(crate) async fn write_superblock_copy(
    device: &Member,
    superblock: &Superblock,
    copy: usize,
) -> Result<(), IoError> {
    let place = superblock.layout.superblocks()[copy];
    let write = Request::write_fua(place, Payload::bytes(superblock.encode()));
    device.submit(Phase::Open, write).await.map(drop)
}

/// Writes zeroes; they are durable when this returns. Returns the number of bytes.
pub(crate) async fn zero(
    device: &Member,
    phase: Phase,
    places: impl IntoIterator<Item = Extent>,
) -> Result<u64, IoError> {
    let mut bytes = 0;
    for place in places {
        for start in place.range().step_by(to_usize(ZERO_SECTORS)) {
            let extent = Extent::new(start, ZERO_SECTORS.min(place.end().0 - start));
            device.submit(phase, Request::write_zeroes(extent, false)).await?;
            bytes += extent.len.bytes();
        }
    }
    device.submit(phase, Request::Flush).await?;
    Ok(bytes)
}
