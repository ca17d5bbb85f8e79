//! Finds the structures that describe a volume: its superblock and its root. It only reads.
//!
//! If a copy is damaged, or the medium cannot return it, its twin is used. That is safe: a change
//! is written to both copies before anything relies on it, so nothing relies on a change that the
//! twin lacks. If a copy cannot be read for another reason, it may be whole, and the volume is
//! refused.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Extent, Sectors};

use crate::error::VolumeError;
use crate::lifecycle::options::RecoveryReport;
use crate::ondisk::layout::{Anchors, SUPERBLOCK_LEAST, SUPERBLOCK_MOST, superblock_at_end};
use crate::ondisk::superblock::Superblock;
use manylogs_engine::{self as engine, RootSlot};
use manylogs_logstore::ondisk::root::Root;

/// Structures that describe a volume.
pub(crate) struct Structures {
    pub(crate) superblock: Superblock,
    /// The other copy, if a crash left it older.
    pub(crate) older: Option<Superblock>,
    pub(crate) root: Root,
    pub(crate) root_slot: usize,
}

/// Finds superblock and root, at `anchors` if they are given, else at the ends of the device.
/// Checks that the volume fits the device.
pub(crate) async fn read_structures(
    device: &Rc<dyn BlockDevice>,
    anchors: Option<Anchors>,
    report: &mut RecoveryReport,
) -> Result<Structures, VolumeError> {
    let (superblock, older) = read_superblock(device, anchors, report).await?;
    report.superblock_change_unfinished = older.is_some();
    let have = device.capabilities();
    // Logs of an owner (with anchors) are accepted: they can be emptied and made anew.
    if have.physical_sector > superblock.physical && anchors.is_none() {
        let (device, volume) = (have.physical_sector, superblock.physical);
        return Err(VolumeError::PhysicalSector { device, volume });
    }
    let (root, root_slot) = read_root(device, &superblock, report).await?;
    Ok(Structures { superblock, older, root, root_slot })
}

/// A copy of the superblock, or the reason why it does not count.
type Copy = Result<Superblock, VolumeError>;

/// The newest whole superblock, and the other copy if it is older.
pub(crate) async fn read_superblock(
    device: &Rc<dyn BlockDevice>,
    anchors: Option<Anchors>,
    report: &mut RecoveryReport,
) -> Result<(Superblock, Option<Superblock>), VolumeError> {
    let capacity = device.capabilities().capacity;
    if capacity < Sectors(2 * SUPERBLOCK_LEAST.0) {
        return Err(VolumeError::NotAVolume);
    }
    let (first, last) = match anchors {
        Some(anchors) => copies_at(device, anchors).await?,
        None => copies_at_ends(device).await?,
    };
    report.from_backup_superblock = first.is_err();
    report.backup_superblock_damaged = last.is_err();
    match (first, last) {
        (Ok(first), Ok(last)) if last.volume == first.volume => {
            let same = last.generation == first.generation;
            let (newer, older) =
                if last.generation > first.generation { (last, first) } else { (first, last) };
            Ok((newer, (!same).then_some(older)))
        }
        (Ok(one), _) | (Err(_), Ok(one)) => Ok((one, None)),
        (Err(VolumeError::NotAVolume), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

/// The copies at given places. A copy counts only if it names the same places.
async fn copies_at(
    device: &Rc<dyn BlockDevice>,
    anchors: Anchors,
) -> Result<(Copy, Copy), VolumeError> {
    let capacity = device.capabilities().capacity;
    let own = |copy: Copy| match copy {
        Ok(copy) if copy.layout.anchors() != Some(anchors) => Err(VolumeError::NotAVolume),
        copy => copy,
    };
    let mut copies = Vec::with_capacity(2);
    for anchor in anchors.both() {
        let within = anchor.start.0.checked_add(anchor.len.0).is_some_and(|end| end <= capacity.0);
        if !within || anchor.len < SUPERBLOCK_LEAST {
            return Err(VolumeError::NotAVolume);
        }
        copies.push(own(superblock_at(device, anchor).await?));
    }
    let (Some(last), Some(first)) = (copies.pop(), copies.pop()) else {
        return Err(VolumeError::NotAVolume);
    };
    Ok((first, last))
}

/// The copies at the beginning and at the end of the device. A volume with given places is refused
/// here, because its anchor lies there only by chance.
async fn copies_at_ends(device: &Rc<dyn BlockDevice>) -> Result<(Copy, Copy), VolumeError> {
    let capacity = device.capabilities().capacity;
    let first = superblock_at(device, Extent::new(0, SUPERBLOCK_LEAST.0)).await?;
    let last = match &first {
        Ok(first) => {
            let len = first.layout.parts().superblock;
            let own = superblock_at(device, first.layout.superblocks()[1]).await?;
            // A volume that was growing during a crash has a newer copy at the device's end.
            let at_end = superblock_at(device, superblock_at_end(capacity, len)).await?;
            match (own, at_end) {
                (Ok(own), Ok(at_end)) if at_end.generation <= own.generation => Ok(own),
                (own, Err(_)) => own,
                (_, at_end) => at_end,
            }
        }
        // A smaller device may hold other copies, but they would be older.
        Err(shrunk @ VolumeError::Shrunk { .. }) => return Err(shrunk.clone()),
        Err(_) => search_at_end(device, capacity).await?,
    };
    let own = |copy: Copy| match copy {
        Ok(copy) if copy.layout.anchors().is_some() => Err(VolumeError::OfFileSystem),
        copy => copy,
    };
    Ok((own(first), own(last)))
}

/// The superblock that begins at `place`, whatever its length, or the reason why there is none.
///
/// # Errors
/// If it cannot be read, and the medium is not at fault.
async fn superblock_at(device: &Rc<dyn BlockDevice>, place: Extent) -> Result<Copy, VolumeError> {
    let capacity = device.capabilities().capacity;
    let head = Extent { len: SUPERBLOCK_LEAST, ..place };
    let bytes = match read_copy(device, head).await? {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Err(error)),
    };
    let len = match Superblock::announced(&bytes) {
        Ok(len) if len > SUPERBLOCK_MOST => return Ok(Err(VolumeError::Impossible("length"))),
        Ok(len) => len,
        Err(error) => return Ok(Err(error)),
    };
    let whole = if len <= SUPERBLOCK_LEAST {
        Ok(bytes)
    } else {
        read_copy(device, Extent { len, ..place }).await?
    };
    let found = whole.and_then(|whole| Superblock::decode(&whole, capacity));
    // Home data may hold superblocks, too, of a volume inside this one.
    Ok(found.and_then(|found| {
        let places = found.layout.superblocks();
        let in_place = places.iter().any(|own| own.start == place.start);
        if in_place { Ok(found) } else { Err(VolumeError::NotAVolume) }
    }))
}

async fn search_at_end(
    device: &Rc<dyn BlockDevice>,
    capacity: Sectors,
) -> Result<Copy, VolumeError> {
    let end = capacity.0 / 8 * 8;
    let mut first_error = VolumeError::NotAVolume;
    for back in (8..=SUPERBLOCK_MOST.0.min(end)).step_by(8) {
        let place = Extent::new(end - back, SUPERBLOCK_LEAST.0);
        match superblock_at(device, place).await? {
            Err(VolumeError::NotAVolume) => {}
            Err(error) => first_error = error,
            found => return Ok(found),
        }
    }
    Ok(Err(first_error))
}

/// As [`engine::read_copy`], with the errors of a volume.
async fn read_copy(
    device: &Rc<dyn BlockDevice>,
    extent: Extent,
) -> Result<Result<Bytes, VolumeError>, VolumeError> {
    match engine::read_copy(device, extent).await.map_err(VolumeError::of_opening)? {
        Ok(content) => Ok(content.to_bytes().ok_or(VolumeError::NotAVolume)),
        Err(error) => Ok(Err(error.into())),
    }
}

/// The newest whole root and its slot.
async fn read_root(
    device: &Rc<dyn BlockDevice>,
    superblock: &Superblock,
    report: &mut RecoveryReport,
) -> Result<(Root, usize), VolumeError> {
    let slots = RootSlot::on_first(superblock.layout.roots());
    let (devices, logs) = (std::slice::from_ref(device), superblock.layout.regions().len());
    let found = engine::find_root(devices, &slots, superblock.volume, logs).await;
    let found = found.map_err(VolumeError::of_opening)?;
    report.roots_damaged += found.damaged;
    found.newest.ok_or(VolumeError::NoRoot)
}
