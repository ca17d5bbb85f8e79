//! Following an array to another shape. The volume is drained and closed meanwhile.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Geometry, Request, Sectors};
use manylogs_logstore::ondisk::log_bitmap::LogBitmap;
use manylogs_logstore::ondisk::root::{Left, Root};
use thiserror::Error;

use crate::error::VolumeError;
use crate::lifecycle::columns::{arranged, as_said};
use crate::lifecycle::old_end::finish_or_mend;
use crate::lifecycle::options::RecoveryReport;
use crate::lifecycle::structures::{Structures, read_structures};
use crate::lifecycle::superblocks::{write_superblock, write_superblock_copy};
use crate::ondisk::superblock::Superblock;
use crate::settings::Settings;
use crate::settings::config::VolumeConfig;
use crate::settings::config_error::ConfigError;
use crate::settings::keep::check_settings;
use crate::volume::Volume;
use manylogs_engine::write_root;
use manylogs_engine::{Member, Phase, PhaseProbe, RootSlot};
use manylogs_plant::{self as plant, Bug};

/// Why the logs of a volume cannot lie on the columns of an array.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Unfit {
    /// A region of logs is not whole stripes of the array.
    #[error("its log regions are not whole stripes of {} bytes of the array", stripe.bytes())]
    PartOfStripe {
        /// Length of a stripe.
        stripe: Sectors,
    },
    /// Records cannot fill rows of this array with parity.
    #[error(
        "records can fill rows only where the device ends with a stripe of {} bytes, and where \
         chunks have 16 KiB or more", stripe.bytes()
    )]
    NoRows {
        /// Length of a stripe.
        stripe: Sectors,
    },
    /// On an array with parity the volume's structures need stripes of their own.
    #[error("its superblocks, roots and snapshots are not in rows of their own on this array")]
    Structures,
    /// The superblock has no room for the geometry.
    #[error("its superblock has no room for a geometry beside its runs of logs")]
    TooManyRuns,
    /// The log of a column would be too short.
    #[error("the log of a column would be too short: {0}")]
    Settings(#[from] ConfigError),
}

/// What became of a volume whose array has another shape.
#[derive(Clone, Debug, PartialEq)]
pub struct GeometryReport {
    /// The array that the volume was made for; `None` if it was one drive.
    pub before: Option<Geometry>,
    /// The array that it is for from now on.
    pub now: Option<Geometry>,
    /// Why the volume takes its array for one drive, if it does.
    pub unfit: Option<Unfit>,
    /// Number of logs now.
    pub logs: usize,
    /// The settings now. Records are shorter than before if a column's log needs that.
    pub settings: Settings,
    /// Whether the write hole of homes was closed, and is open from now on.
    pub hole_opened: bool,
}

impl Volume {
    /// Makes the drained volume on `device` one for the array that the device is now. What the user
    /// has said of it counts as long as the device says nothing. Homes, log regions and structures
    /// keep their addresses; how a region is dealt out to columns changes. If the regions do not
    /// suit the array, the volume takes it for one drive from now on, and the report says why. Logs
    /// that failed are tried anew.
    ///
    /// A crash leaves the old volume or the new one. First both roots get sets of logs that are
    /// right for either, and forget the snapshot. Then follows the last copy of the superblock,
    /// which decides, and then the first.
    ///
    /// # Errors
    /// [`VolumeError::NotDrained`]; [`VolumeError::TableApart`]; or if there is no volume, its logs
    /// are too short for records even as one drive, or the device fails.
    pub async fn set_geometry(device: Rc<dyn BlockDevice>) -> Result<GeometryReport, VolumeError> {
        Self::follow(device, false).await
    }

    /// As [`Volume::set_geometry`], for the array that the device says itself that it is, if any.
    /// What the user has said ([`CreateOptions::said`](crate::CreateOptions::said)) is forgotten.
    ///
    /// # Errors
    /// As [`Volume::set_geometry`].
    pub async fn forget_said_geometry(
        device: Rc<dyn BlockDevice>,
    ) -> Result<GeometryReport, VolumeError> {
        Self::follow(device, true).await
    }

    /// `forget` says whether the user's word of the array no longer counts.
    async fn follow(
        device: Rc<dyn BlockDevice>,
        forget: bool,
    ) -> Result<GeometryReport, VolumeError> {
        let device = Member::new(device, PhaseProbe::default());
        device.submit(Phase::Open, Request::Flush).await?;
        let mut report = RecoveryReport::default();
        let found = read_structures(device.device(), None, &mut report).await?;
        let Structures { superblock: old, older, root, root_slot } = found;
        if old.nvram {
            return Err(VolumeError::TableApart);
        }
        if root.left != Left::Drained && !plant::is(Bug::GeometryOfFullLogs) {
            return Err(VolumeError::NotDrained);
        }
        let layout = if forget { old.layout.forget_said() } else { old.layout.clone() };
        let today = as_said(device.device(), &layout).geometry();
        let (new, unfit) = for_array(&Superblock { layout, ..old.clone() }, today)?;
        let damaged = report.from_backup_superblock || report.backup_superblock_damaged;
        let in_old = arranged(device.clone(), &old.layout);
        // A change writes the last copy first: until then the first one must be whole.
        finish_or_mend(&in_old, &old, older.as_ref(), damaged).await?;
        let outcome = GeometryReport {
            before: old.layout.columns(),
            now: new.layout.columns(),
            unfit,
            logs: new.layout.regions().len(),
            settings: new.settings,
            hole_opened: old.config().close_hole && !new.config().close_hole,
        };
        if new.layout != old.layout {
            write_change(&arranged(device, &new.layout), &old, &new, (root, root_slot)).await?;
        }
        Ok(outcome)
    }
}

/// Writes the roots for both layouts, and then the new superblock.
async fn write_change(
    device: &Member,
    old: &Superblock,
    new: &Superblock,
    (root, newest): (Root, usize),
) -> Result<(), VolumeError> {
    // Entries in the logs are below the floor, in whatever order they are found. The sets have bits
    // for the logs of either layout.
    let logs = old.layout.regions().len().max(new.layout.regions().len());
    let none = LogBitmap::none(logs);
    let root = Root {
        generation: root.generation + 1,
        snapshot: None,
        opened: none.clone(),
        notes_copies: false,
        used: none,
        retired: Vec::new(),
        ..root
    };
    if plant::is(Bug::SuperblockBeforeRoots) {
        write_superblock_copy(device, new, 1).await?;
    }
    for slot in [1 - newest, newest] {
        let RootSlot { place, .. } = RootSlot::on_first(new.layout.roots())[slot];
        write_root(device, Phase::Open, &root, new.volume, place).await?;
    }
    write_superblock(device, new).await
}

/// The superblock of the same volume on `array`, and why it takes the array for one drive, if it
/// does.
fn for_array(
    old: &Superblock,
    array: Option<Geometry>,
) -> Result<(Superblock, Option<Unfit>), VolumeError> {
    let one_drive = |unfit: Option<Unfit>| match on_columns(old, None) {
        Ok(new) => Ok((new, unfit)),
        Err(Unfit::Settings(error)) => Err(VolumeError::Config(error)),
        Err(_) => Err(VolumeError::Impossible("layout for one drive")),
    };
    match array.map(|array| on_columns(old, Some(array))) {
        None => one_drive(None),
        Some(Ok(new)) => Ok((new, None)),
        Some(Err(unfit)) => one_drive(Some(unfit)),
    }
}

/// The superblock of the same volume, made for these columns.
fn on_columns(old: &Superblock, columns: Option<Geometry>) -> Result<Superblock, Unfit> {
    let layout = old.layout.reshaped(columns, old.physical)?;
    let log = layout.regions().iter().map(|log| log.len).min().unwrap_or_default();
    let config = old.config().on_logs_of(log);
    let close_hole = config.close_hole && !layout.images().is_empty();
    let settings = Settings::of(&VolumeConfig { close_hole, ..config });
    let new = Superblock {
        generation: old.generation + 1,
        short_headers: old.short_headers || layout.record_unit(old.physical).0 > 1,
        settings,
        layout,
        ..old.clone()
    };
    if new.keeps && !new.may_keep() {
        return Err(Unfit::TooManyRuns);
    }
    check_settings(&new.config(), &new.layout, new.shape(), Sectors(0))?;
    Ok(new)
}
