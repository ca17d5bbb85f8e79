//! Growing a volume on a larger device. The volume is closed meanwhile.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Request, Sectors};

use crate::error::VolumeError;
use crate::lifecycle::columns::arranged;
use crate::lifecycle::old_end::{finish_change, hide_old_end};
use crate::lifecycle::options::RecoveryReport;
use crate::lifecycle::structures::{Structures, read_structures};
use crate::lifecycle::superblocks::write_superblock_copy;
use crate::ondisk::superblock::Superblock;
use crate::volume::Volume;
use manylogs_engine::write_root;
use manylogs_engine::{Member, Phase, PhaseProbe};
use manylogs_logstore::ondisk::root::Root;
use manylogs_plant::{self as plant, Bug};

/// Result of growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowReport {
    /// Capacity before.
    pub before: Sectors,
    /// Capacity now.
    pub after: Sectors,
    /// Logs before.
    pub logs_before: usize,
    /// Logs now.
    pub logs_after: usize,
}

impl Volume {
    /// Extends the volume on `device` to all of it. Every block keeps its address; the new space
    /// has logs at the same distance.
    ///
    /// A crash leaves the old volume or the new one. The roots are written first, to their places
    /// in the new layout. Then follows the last copy of the superblock, which decides. Then zeroes
    /// replace the structures at the old end, which is data space now, and the first copy follows.
    /// If a crash interrupts this, the next opening finishes it.
    ///
    /// New blocks read as the device's old content until they are written.
    ///
    /// # Errors
    /// If there is no volume, the device is not larger, or it fails.
    pub async fn grow(device: Rc<dyn BlockDevice>) -> Result<GrowReport, VolumeError> {
        let device = Member::new(device, PhaseProbe::default());
        device.submit(Phase::Open, Request::Flush).await?;
        let mut report = RecoveryReport::default();
        let Structures { superblock, older, root, .. } =
            read_structures(device.device(), None, &mut report).await?;
        let old = &superblock.layout;
        let new = old.grown(device.capabilities().capacity)?;
        let (volume, generation) = (superblock.volume, superblock.generation + 1);
        let grown = Superblock { generation, layout: new.clone(), ..superblock.clone() };
        if grown.keeps && !grown.may_keep() {
            return Err(VolumeError::GrewTooOften);
        }
        let device = arranged(device, &new);
        if let Some(older) = older {
            finish_change(&device, &superblock, &older).await?;
        }
        let root = Root {
            generation: root.generation + 1,
            opened: root.opened.resized(new.regions().len()),
            used: root.used.resized(new.regions().len()),
            ..root
        };
        let outcome = GrowReport {
            before: old.capacity(),
            after: new.capacity(),
            logs_before: old.regions().len(),
            logs_after: new.regions().len(),
        };
        if plant::is(Bug::SuperblockBeforeRoots) {
            write_superblock_copy(&device, &grown, 1).await?;
        }
        // The first slot stays in its place. If the device has grown by little, the new place of
        // the second slot overlaps its old one. So until the first is written, the old second one
        // must be whole.
        write_root(&device, Phase::Open, &root, volume, new.roots()[0]).await?;
        write_root(&device, Phase::Open, &root, volume, new.roots()[1]).await?;
        let [decides, follows] = if plant::is(Bug::FirstSuperblockFirst) { [0, 1] } else { [1, 0] };
        write_superblock_copy(&device, &grown, decides).await?;
        hide_old_end(&device, old, &new).await?;
        write_superblock_copy(&device, &grown, follows).await?;
        Ok(outcome)
    }
}
