//! Making a damaged volume whole again: what can be restored from a second copy is, and what is
//! lost is marked, so that reads of it fail rather than return something older.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle};

use crate::checkpoint::{CONFIRM_AT_ONCE, CheckpointReport, Pace, Pass};
use crate::error::VolumeError;
use crate::open::{OpenOptions, RecoveryReport, write_superblock};
use crate::phase::{Below, PhaseProbe};
use crate::recover::{Structures, read_structures};
use crate::volume::Volume;

/// What a repair did.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// What was found.
    pub recovery: RecoveryReport,
    /// What went home, and how many extents are lost.
    pub checkpoint: CheckpointReport,
    /// Whether a copy of the superblock was written anew.
    pub superblock_rewritten: bool,
}

impl Volume {
    /// Repairs the volume on `device` and closes it: damaged copies of superblock, root and
    /// snapshot are written anew; blocks whose logged copy is damaged are marked as lost;
    /// everything else that is logged goes home. Records of which nobody knows what they held are
    /// given up: older versions of their blocks appear, which [`crate::check`] says beforehand.
    ///
    /// # Errors
    /// If no superblock or no root is whole, or the device fails.
    pub async fn repair(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
    ) -> Result<RepairReport, VolumeError> {
        Self::repair_with(runtime, device, &OpenOptions::default()).await
    }

    /// As [`Volume::repair`], of a volume that needs more to be opened.
    ///
    /// # Errors
    /// As [`Volume::repair`].
    pub async fn repair_with(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<RepairReport, VolumeError> {
        let mut found = RecoveryReport::default();
        let Structures { superblock, .. } = read_structures(&device, &mut found).await?;
        let rewrite = found.from_backup_superblock || found.backup_superblock_damaged;
        if rewrite {
            let below = Below::new(Rc::clone(&device), PhaseProbe::default());
            write_superblock(&below, &superblock).await?;
        }
        let options = OpenOptions { accept_damage: true, ..options.clone() };
        let (volume, mut recovery) = Self::open(runtime, device, &options).await?;
        recovery.from_backup_superblock = found.from_backup_superblock;
        recovery.backup_superblock_damaged = found.backup_superblock_damaged;
        // The floor rises above all that is damaged: it does not count any more.
        let pass = Pass { confirm_after: CONFIRM_AT_ONCE, ..Pass::at(Pace::Urgent) };
        let checkpoint = volume.shared().checkpoint_all(pass).await?;
        volume.close().await?;
        Ok(RepairReport { recovery, checkpoint, superblock_rewritten: rewrite })
    }
}
