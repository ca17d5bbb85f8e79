//! Taking a larger device. The volume is closed meanwhile.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Request, Sectors};
use manylogs_logstore::VolumeId;

use crate::error::VolumeError;
use crate::lifecycle::open::{RecoveryReport, finish_change, write_superblock_copy, zero};
use crate::lifecycle::structures::{Structures, read_structures};
use crate::ondisk::layout::Layout;
use crate::ondisk::root::Root;
use crate::ondisk::superblock::Superblock;
use crate::phase::{Below, Phase, PhaseProbe};
use crate::roots::update::write_root;
use crate::volume::Volume;
use manylogs_plant::{self as plant, Bug};

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
    /// layout has them, then the last copy of the superblock, which decides. Then zeroes replace
    /// what the volume kept at its old end, which is for data now, and the first copy follows. The
    /// next opening finishes what a crash interrupted.
    ///
    /// New blocks read as what the device holds there, until they are written.
    ///
    /// # Errors
    /// If there is no volume, the device is not larger, or it fails.
    pub async fn grow(device: Rc<dyn BlockDevice>) -> Result<GrowReport, VolumeError> {
        let device = Below::new(device, PhaseProbe::default());
        device.submit(Phase::Open, Request::Flush).await?;
        let mut report = RecoveryReport::default();
        let Structures { superblock, older, root, .. } =
            read_structures(device.device(), &mut report).await?;
        let old = &superblock.layout;
        let new = old.grown(device.capabilities().capacity)?;
        if let Some(older) = older {
            finish_change(&device, &superblock, &older).await?;
        }
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
        let (volume, generation) = (superblock.volume, superblock.generation + 1);
        let grown = Superblock { generation, layout: new.clone(), ..superblock.clone() };
        if plant::is(Bug::SuperblockBeforeRoots) {
            write_superblock_copy(&device, &grown, 1).await?;
        }
        // The first slot stays where it is. Where the device has grown by little, the new place of
        // the second overlaps the old one: until the first is written, the old one must be whole.
        write_root(&device, Phase::Open, &root, volume, &new, 0).await?;
        write_root(&device, Phase::Open, &root, volume, &new, 1).await?;
        let [decides, follows] = if plant::is(Bug::FirstSuperblockFirst) { [0, 1] } else { [1, 0] };
        write_superblock_copy(&device, &grown, decides).await?;
        hide_old_end(&device, old, &new).await?;
        write_superblock_copy(&device, &grown, follows).await?;
        Ok(outcome)
    }
}

/// Writes zeroes to what the volume kept at its old end, a root and a superblock, where the new
/// layout has data. Until all else is zero, the beginnings of both stay.
async fn hide_old_end(device: &Below, old: &Layout, new: &Layout) -> Result<(), IoError> {
    if plant::is(Bug::OldEndExposed) {
        return Ok(());
    }
    let old_end = Extent::between(old.as_plan().space.end(), old.superblocks()[1].end());
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

/// Hides the old end if a crash interrupted that. One copy of the superblock may also be older
/// because its write was lost: then there is data by now, which must stay.
pub(crate) async fn finish_hiding(
    device: &Below,
    volume: VolumeId,
    old: &Layout,
    new: &Layout,
) -> Result<(), IoError> {
    for mark in marks(device, old) {
        if homes_in(new, mark).any(|part| part == mark) && is_marked(device, volume, mark).await? {
            return hide_old_end(device, old, new).await;
        }
    }
    Ok(())
}

/// The physical sectors in which the root and the superblock at the old end begin: each is zeroed
/// as a whole or not at all.
fn marks(device: &Below, old: &Layout) -> [Extent; 2] {
    let len = device.capabilities().physical_sector;
    [old.roots()[1], old.superblocks()[1]].map(|place| Extent { len, ..place })
}

/// The parts of `place` that are data in `layout`. Where the device has grown by little, the new
/// structures begin within the old ones: only what is before them is data.
fn homes_in(layout: &Layout, place: Extent) -> impl Iterator<Item = Extent> + '_ {
    layout.homes().iter().filter_map(move |(_, home)| {
        let (from, to) = (home.start.max(place.start), home.end().min(place.end()));
        (from < to).then(|| Extent::between(from, to))
    })
}

/// Whether a root or a superblock of the volume begins there: both have its id at the same place.
async fn is_marked(device: &Below, volume: VolumeId, mark: Extent) -> Result<bool, IoError> {
    let content = match device.read(mark).await {
        Ok(content) => content.to_bytes(),
        Err(IoError::Medium { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(content.is_some_and(|content| content[16..32] == volume))
}
