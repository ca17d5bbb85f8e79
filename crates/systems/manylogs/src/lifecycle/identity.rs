//! Giving a copy of a volume an identity of its own.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, Request};
use manylogs_logstore::ondisk::root::{Left, Root};
use manylogs_logstore::{VolumeId, new_volume_id};

use crate::error::VolumeError;
use crate::lifecycle::columns::arranged;
use crate::lifecycle::old_end::finish_change;
use crate::lifecycle::options::RecoveryReport;
use crate::lifecycle::structures::{Structures, read_structures};
use crate::lifecycle::superblocks::write_superblock;
use crate::ondisk::superblock::Superblock;
use crate::volume::Volume;
use manylogs_engine::write_root;
use manylogs_engine::{Member, Phase, PhaseProbe};

impl Volume {
    /// Gives the drained volume on `device` a new id. Its logs hold no live records, and recovery
    /// does not recognise records of the old id.
    ///
    /// A crash leaves the old volume or the new one. The last root and the last superblock are
    /// written first. Then follows the first superblock, which decides, and then the first root.
    ///
    /// # Errors
    /// [`VolumeError::NotDrained`], or if there is no volume or the device fails.
    pub async fn renew_id(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
    ) -> Result<VolumeId, VolumeError> {
        let device = Member::new(device, PhaseProbe::default());
        device.submit(Phase::Open, Request::Flush).await?;
        let Structures { superblock, older, root, .. } =
            read_structures(device.device(), None, &mut RecoveryReport::default()).await?;
        if root.left != Left::Drained {
            return Err(VolumeError::NotDrained);
        }
        let id = new_volume_id(&runtime);
        let layout = superblock.layout.clone();
        let device = arranged(device, &layout);
        if let Some(older) = older {
            finish_change(&device, &superblock, &older).await?;
        }
        // No record has the new id, so sequences may start again from the beginning.
        let first = Root::first(layout.regions().len());
        let root = Root {
            generation: root.generation + 1,
            incarnation: root.incarnation,
            retired: root.retired,
            left: root.left,
            ..first
        };
        write_root(&device, Phase::Open, &root, id, layout.roots()[1]).await?;
        let generation = superblock.generation + 1;
        let renewed = Superblock { volume: id, generation, ..superblock };
        write_superblock(&device, &renewed).await?;
        write_root(&device, Phase::Open, &root, id, layout.roots()[0]).await?;
        Ok(id)
    }
}
