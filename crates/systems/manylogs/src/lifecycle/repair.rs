//! Repairs a damaged volume. Structures with a second copy are restored. Lost blocks are marked, so
//! that reads of them fail instead of returning older data.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Request, Sectors, to_usize};

use crate::cleaning::checkpoint::{CONFIRM_AT_ONCE, CheckpointReport, Pace, Pass};
use crate::error::VolumeError;
use crate::lifecycle::columns::{arranged, arranged_reads};
use crate::lifecycle::old_end::finish_or_mend;
use crate::lifecycle::options::{OpenOptions, RecoveryReport};
use crate::lifecycle::structures::{Structures, read_structures};
use crate::volume::Volume;
use manylogs_engine::PatientReads;
use manylogs_engine::{Member, Phase};

/// Most further checkpoints after one that left unreadable extents.
const CHECKPOINTS_MORE: u32 = 3;

/// Result of a repair.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// Findings of the opening.
    pub recovery: RecoveryReport,
    /// What went home, and how many extents are lost.
    pub checkpoint: CheckpointReport,
    /// Whether a copy of the superblock was written again.
    pub superblock_rewritten: bool,
    /// Sectors of logs that stayed unreadable and were overwritten.
    pub overwritten: Sectors,
}

impl Volume {
    /// Repairs the volume on `device` and closes it. Damaged copies of superblock, root and
    /// snapshot are written again. Blocks whose logged copy is damaged are marked as lost; all
    /// other logged data goes home. Records with unknown entries are given up, so older versions of
    /// their blocks appear: [`crate::check`] lists them beforehand. Data that cannot be read for
    /// other reasons is given up, too. Sectors of the logs that stay unreadable are overwritten at
    /// the end, so that the drive replaces them.
    ///
    /// # Errors
    /// If no superblock or no root is whole, or the device fails.
    pub async fn repair(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
    ) -> Result<RepairReport, VolumeError> {
        Self::repair_with(runtime, device, &OpenOptions::default()).await
    }

    /// As [`Volume::repair`], for a volume that needs options to be opened.
    ///
    /// # Errors
    /// As [`Volume::repair`].
    pub async fn repair_with(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<RepairReport, VolumeError> {
        let mut found = RecoveryReport::default();
        let below = Member::new(Rc::clone(&device), options.probe.clone());
        below.submit(Phase::Open, Request::Flush).await?;
        let reads: Rc<dyn BlockDevice> =
            PatientReads::giving_up(Rc::clone(&device), runtime.clone());
        let Structures { superblock, older, .. } =
            read_structures(&reads, options.anchors, &mut found).await?;
        let damaged = found.from_backup_superblock || found.backup_superblock_damaged;
        let whole = arranged(below.clone(), &superblock.layout);
        finish_or_mend(&whole, &superblock, older.as_ref(), damaged).await?;
        let options = OpenOptions { accept_damage: true, ..options.clone() };
        // The volume gives up unreadable data, too: its checkpoint marks such extents as lost.
        let (volume, mut recovery) = Self::open(runtime, Rc::clone(&reads), &options).await?;
        recovery.from_backup_superblock = found.from_backup_superblock;
        recovery.backup_superblock_damaged = found.backup_superblock_damaged;
        // This raises the floor above all damaged records, so that the damage no longer counts.
        let pass = Pass { confirm_after: CONFIRM_AT_ONCE, ..Pass::at(Pace::Urgent) };
        let mut checkpoint = volume.shared().checkpoint_all(pass).await;
        // Repeated reads take time, so the first pass may not have confirmed all medium errors.
        for _ in 0..CHECKPOINTS_MORE {
            if matches!(checkpoint, Err(VolumeError::Unread { .. })) {
                checkpoint = volume.shared().checkpoint_all(pass).await;
            }
        }
        let checkpoint = checkpoint?;
        volume.close().await?;
        // The recovery found these places where the volume reads its logs: on an array these are
        // other addresses than the device's.
        let reads = arranged_reads(&reads, &superblock.layout);
        let unit = superblock.record_unit();
        let overwritten = overwrite_unreadable(&reads, &whole, &recovery.unreadable, unit).await?;
        Ok(RepairReport { recovery, checkpoint, superblock_rewritten: damaged, overwritten })
    }
}

/// Writes zeroes to the units of records in `places`, of length `unit`, that still cannot be read.
/// They hold no live data: a sector that was written since can be read. Returns the number of
/// sectors overwritten.
async fn overwrite_unreadable(
    reads: &Rc<dyn BlockDevice>,
    below: &Member,
    places: &[Extent],
    unit: Sectors,
) -> Result<Sectors, VolumeError> {
    let mut overwritten = Sectors(0);
    for place in places {
        for start in place.range().step_by(to_usize(unit.0)) {
            let extent = Extent::new(start, unit.0);
            let Err(IoError::Medium { .. }) = reads.submit(Request::Read { extent }).await else {
                continue;
            };
            below.submit(Phase::Open, Request::write_zeroes(extent, true)).await?;
            overwritten += unit;
        }
    }
    Ok(overwritten)
}
