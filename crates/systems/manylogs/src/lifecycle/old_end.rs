//! Hides the structures that a volume had at its end before it grew, because the space is for data
//! now.

use manylogs_block::{Extent, IoError};
use manylogs_logstore::VolumeId;

use crate::error::VolumeError;
use crate::lifecycle::superblocks::{write_superblock, zero};
use crate::ondisk::layout::Layout;
use crate::ondisk::superblock::Superblock;
use manylogs_engine::{Member, Phase, Reader};
use manylogs_plant::{self as plant, Bug};

/// Writes zeroes over the root and the superblock at the old end, where the new layout has data.
/// Their first physical sectors are zeroed last, so that an interrupted change can be noticed.
pub(crate) async fn hide_old_end(
    device: &Member,
    old: &Layout,
    new: &Layout,
) -> Result<(), IoError> {
    if plant::is(Bug::OldEndExposed) {
        return Ok(());
    }
    let old_end = Extent::between(old.parts().space.end(), old.superblocks()[1].end());
    let [root, superblock] = marks(device, old);
    let rest = [
        Extent::between(old_end.start, root.start),
        Extent::between(root.end(), superblock.start),
        Extent::between(superblock.end(), old_end.end()),
    ];
    zero(device, Phase::Open, rest.into_iter().flat_map(|part| homes_in(new, part))).await?;
    zero(device, Phase::Open, homes_in(new, superblock)).await?;
    zero(device, Phase::Open, homes_in(new, root)).await.map(drop)
}

/// Hides the old end if a crash interrupted that. A superblock copy may also be older because its
/// write was lost. Then the old end holds data already, which must stay.
pub(crate) async fn finish_hiding(
    device: &Member,
    volume: VolumeId,
    old: &Layout,
    new: &Layout,
) -> Result<(), IoError> {
    if new.anchors().is_some() {
        // Such a volume never grew, and its structures lie among the homes.
        return Ok(());
    }
    for mark in marks(device, old) {
        if homes_in(new, mark).any(|part| part == mark) && is_marked(device, volume, mark).await? {
            return hide_old_end(device, old, new).await;
        }
    }
    Ok(())
}

/// The first physical sectors of the root and of the superblock at the old end. Each is zeroed as a
/// whole or not at all.
fn marks(device: &Member, old: &Layout) -> [Extent; 2] {
    let len = device.capabilities().physical_sector;
    [old.roots()[1], old.superblocks()[1]].map(|place| Extent { len, ..place })
}

/// The parts of `place` that are data in `layout`. If the device has grown by little, the new
/// structures begin within the old ones, and only the part before them is data.
fn homes_in(layout: &Layout, place: Extent) -> impl Iterator<Item = Extent> + '_ {
    layout.homes().iter().filter_map(move |(_, home)| {
        let (from, to) = (home.start.max(place.start), home.end().min(place.end()));
        (from < to).then(|| Extent::between(from, to))
    })
}

/// Whether a root or a superblock of the volume begins at `mark`: both have its id in the same
/// place.
async fn is_marked(device: &Member, volume: VolumeId, mark: Extent) -> Result<bool, IoError> {
    let content = match device.read(Reader::System, mark).await {
        Ok(content) => content.to_bytes(),
        Err(IoError::Medium { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(content.is_some_and(|content| content[16..32] == volume))
}

/// Finishes a change of the superblock that a crash interrupted. This must come before any write
/// that relies on the change, because the newer copy may be lost later.
pub(crate) async fn finish_change(
    device: &Member,
    superblock: &Superblock,
    older: &Superblock,
) -> Result<(), VolumeError> {
    if plant::is(Bug::ChangeLeftUnfinished) {
        return Ok(());
    }
    finish_hiding(device, superblock.volume, &older.layout, &superblock.layout).await?;
    write_superblock(device, superblock).await
}

/// Makes both copies of the superblock what `superblock` says: finishes a change
/// ([`finish_change`]) if the other copy is `older`, and writes both if one is `damaged`.
pub(crate) async fn finish_or_mend(
    device: &Member,
    superblock: &Superblock,
    older: Option<&Superblock>,
    damaged: bool,
) -> Result<(), VolumeError> {
    match older {
        Some(older) => finish_change(device, superblock, older).await,
        None if damaged => write_superblock(device, superblock).await,
        None => Ok(()),
    }
}
