//! Taking a larger device. The volume is closed meanwhile.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Request, Sectors};

use crate::error::VolumeError;
use crate::ondisk::root::{Root, write_root};
use crate::ondisk::superblock::Superblock;
use crate::open::{RecoveryReport, write_superblock};
use crate::phase::{Below, Phase, PhaseProbe};
use crate::recover::{Structures, read_structures};
use crate::volume::Volume;

/// What growing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowReport {
    /// Exported before.
    pub before: Sectors,
    /// Exported now.
    pub after: Sectors,
    /// Logs before.
    pub logs_before: usize,
    /// Logs now.
    pub logs_after: usize,
}

impl Volume {
    /// Lets the volume on `device` take all of it. What is exported keeps its address; logs go on
    /// as before in the new space.
    ///
    /// A crash leaves the old volume or the new one: the roots are written first, to where the new
    /// layout has them, then the last copy of the superblock, which decides, then the first.
    ///
    /// # Errors
    /// If there is no volume, the device is not larger, or it fails.
    pub async fn grow(device: Rc<dyn BlockDevice>) -> Result<GrowReport, VolumeError> {
        let device = Below::new(device, PhaseProbe::default());
        device.submit(Phase::Open, Request::Flush).await?;
        let mut report = RecoveryReport::default();
        let Structures { superblock, root, .. } =
            read_structures(device.device(), &mut report).await?;
        let old = &superblock.layout;
        let new = old.grown(device.capabilities().capacity)?;
        let root = Root {
            generation: root.generation + 1,
            touched: root.touched.resized(new.regions().len()),
            used: root.used.resized(new.regions().len()),
            ..root
        };
        let outcome = GrowReport {
            before: old.capacity(),
            after: new.capacity(),
            logs_before: old.regions().len(),
            logs_after: new.regions().len(),
        };
        let volume = superblock.volume;
        write_root(&device, Phase::Open, &root, volume, &new, 1).await?;
        write_root(&device, Phase::Open, &root, volume, &new, 0).await?;
        let generation = superblock.generation + 1;
        let grown = Superblock { generation, layout: new, ..superblock };
        write_superblock(&device, &grown).await?;
        Ok(outcome)
    }
}
