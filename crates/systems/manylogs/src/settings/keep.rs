//! Storing settings in the volume's superblock.

use std::rc::Rc;

use manylogs_block::{BlockDevice, IoError, Request, Sectors};
use manylogs_logstore::{Headers, RecordShape};

use super::Settings;
use super::config::VolumeConfig;
use super::config_error::ConfigError;
use crate::error::VolumeError;
use crate::lifecycle::columns::arranged;
use crate::lifecycle::old_end::finish_change;
use crate::lifecycle::options::{OpenOptions, RecoveryReport};
use crate::lifecycle::structures::read_superblock;
use crate::lifecycle::superblocks::{write_superblock, write_superblock_copy};
use crate::ondisk::layout::{Anchors, Layout};
use crate::ondisk::superblock::Superblock;
use crate::records::largest::check_room;
use crate::volume::Volume;
use manylogs_engine::{Member, Phase, PhaseProbe};
use manylogs_plant::{self as plant, Bug};

impl Volume {
    /// The present settings of the volume.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings::of(&self.config())
    }

    /// Changes the settings of a volume in use and stores them: first durably in both superblocks,
    /// then in memory, as [`Volume::reconfigure`] does. Clients are served meanwhile. The caller
    /// must await the future to its end.
    ///
    /// A crash leaves all of the old settings or all of the new ones.
    ///
    /// # Errors
    /// [`VolumeError::Config`] if they make no sense for this volume, [`VolumeError::Closed`], or
    /// [`VolumeError::Io`] if no more writes are accepted: then nothing changes. If the device
    /// fails during the change, the volume continues with the old settings, and the next opening
    /// finds the old or the new ones.
    pub async fn set(&self, settings: &Settings) -> Result<(), VolumeError> {
        let inner = self.shared();
        if inner.engine.state.borrow().closing {
            return Err(VolumeError::Closed);
        }
        // A volume that closes waits until its activity has ended.
        let _activity = Rc::clone(&inner.activity);
        let _turn = inner.superblock_lock.take().await;
        let read_only = inner.engine.state.borrow().store.read_only();
        if let Some(reason) = read_only {
            return Err(IoError::ReadOnly { reason }.into());
        }
        let (anchors, least) = (inner.layout.anchors(), inner.record_least.get());
        let (superblock, _) = changed(inner.device.device(), anchors, settings, least).await?;
        let keeps = superblock.keeps;
        if superblock.volume != inner.volume {
            return Err(VolumeError::NotAVolume);
        }
        if plant::is(Bug::SettingsInOneCopy) {
            write_superblock_copy(&inner.device, &superblock, 1).await?;
        } else {
            write_superblock(&inner.device, &superblock).await?;
        }
        if keeps {
            inner.engine.state.borrow_mut().store.keep();
        }
        self.reconfigure(&settings.applied_to(&self.config()))
    }

    /// From now on writes that need durability but no place
    /// ([`manylogs_block::Hint::DurabilityOnly`]) may be kept in the logs. The first call durably
    /// marks both superblocks: programs that do not know such versions refuse the volume from then
    /// on. False if the volume cannot keep any, because its table is in non-volatile RAM or its
    /// superblock has no room. A write with the hint is then logged like others.
    ///
    /// # Errors
    /// Those of the device, [`VolumeError::Closed`], or if no more writes are accepted.
    pub async fn keep_versions(&self) -> Result<bool, VolumeError> {
        if self.keeps_versions() {
            return Ok(true);
        }
        self.mark_kept(false).await
    }

    /// From now on, until the volume is closed, metadata of the class
    /// [`manylogs_logstore::Class::KeptMetadata`] stays in the logs. Checkpoints that the volume
    /// begins bring home only the oldest of it beyond a share of the log space, unless requests
    /// wait for room in vain; [`Volume::checkpoint`] and a drain bring all of it home. Without this
    /// call such metadata is logged as other metadata, and what earlier openings kept goes home
    /// with the next checkpoint.
    /// The first call on a volume durably marks both superblocks: programs that do not know the
    /// class refuse the volume from then on. False as for [`Volume::keep_versions`].
    ///
    /// # Errors
    /// As [`Volume::keep_versions`].
    pub async fn keep_metadata(&self) -> Result<bool, VolumeError> {
        let keeps = self.mark_kept(true).await?;
        if keeps {
            self.shared().engine.state.borrow_mut().store.keep_metadata();
        }
        Ok(keeps)
    }

    /// Makes the superblocks say that versions may be kept, or `metadata` too; false if they cannot
    /// say so.
    async fn mark_kept(&self, metadata: bool) -> Result<bool, VolumeError> {
        let inner = self.shared();
        if inner.shape.headers == Headers::Apart {
            return Ok(false);
        }
        let _activity = Rc::clone(&inner.activity);
        let _turn = inner.superblock_lock.take().await;
        inner.engine.state.borrow().store.writable()?;
        let report = &mut RecoveryReport::default();
        let device = inner.device.device();
        let (found, older) = read_superblock(device, inner.layout.anchors(), report).await?;
        // An attempt that failed may have marked one copy.
        let both = older.is_none();
        let is_marked = both && found.keeps && (found.keeps_metadata || !metadata);
        let (generation, keeps_metadata) = (found.generation + 1, found.keeps_metadata || metadata);
        let superblock = Superblock { generation, keeps: true, keeps_metadata, ..found };
        if superblock.volume != inner.volume {
            return Err(VolumeError::NotAVolume);
        }
        if !superblock.may_keep() {
            return Ok(false);
        }
        let is_early = plant::is(match metadata {
            true => Bug::MetadataKeptUnmarked,
            false => Bug::DurableBeforeSuperblock,
        });
        if !is_marked && !is_early {
            write_superblock(&inner.device, &superblock).await?;
        }
        inner.engine.state.borrow_mut().store.keep();
        Ok(true)
    }

    /// Whether versions may be kept in the logs: see [`Volume::keep_versions`].
    #[must_use]
    pub fn keeps_versions(&self) -> bool {
        self.shared().engine.state.borrow().store.keeps()
    }

    /// As [`Volume::set`], for the volume on `device`, which must not be open. Settings in
    /// `options` are ignored.
    ///
    /// A crash leaves all of the old settings or all of the new ones.
    ///
    /// # Errors
    /// If there is no volume, the settings make no sense for it ([`VolumeError::Config`]), or the
    /// device fails.
    pub async fn set_closed(
        device: Rc<dyn BlockDevice>,
        settings: &Settings,
        options: &OpenOptions,
    ) -> Result<(), VolumeError> {
        let device = Member::new(device, PhaseProbe::default());
        device.submit(Phase::Open, Request::Flush).await?;
        let (anchors, least) = (options.anchors, options.record_least);
        let (superblock, older) = changed(device.device(), anchors, settings, least).await?;
        let device = arranged(device, &superblock.layout);
        match older {
            Some(older) => finish_change(&device, &superblock, &older).await,
            None => write_superblock(&device, &superblock).await,
        }
    }
}

/// The superblock on the disk, with other settings and the next generation, and its other copy if
/// that is older. They are read each time, because a write that failed may have left a newer
/// generation in one of the copies.
async fn changed(
    device: &Rc<dyn BlockDevice>,
    anchors: Option<Anchors>,
    settings: &Settings,
    record_least: Sectors,
) -> Result<(Superblock, Option<Superblock>), VolumeError> {
    let (found, older) = read_superblock(device, anchors, &mut RecoveryReport::default()).await?;
    let generation = found.generation + 1;
    let keeps = found.keeps || settings.needs_kept_versions();
    let changed = Superblock { generation, settings: *settings, keeps, ..found };
    if keeps && !changed.may_keep() {
        return Err(ConfigError::NoRoomForDurable.into());
    }
    check_settings(&changed.config(), &changed.layout, changed.shape(), record_least)?;
    Ok((changed, older))
}

/// Checks that parameters make sense for a volume with this layout, whose owner needs records of
/// `record_least`.
///
/// # Errors
/// The parameter that makes no sense, with its bounds.
pub(crate) fn check_settings(
    config: &VolumeConfig,
    layout: &Layout,
    shape: RecordShape,
    record_least: Sectors,
) -> Result<(), ConfigError> {
    config.validate()?;
    if config.band > Sectors(0) && layout.anchors().is_some() {
        return Err(ConfigError::BandOfOthers);
    }
    check_durable(config, layout, shape)?;
    check_hole(config, layout)?;
    if config.record < record_least {
        let (record, least) = (config.record, record_least);
        return Err(ConfigError::RecordTooShort { record, least });
    }
    check_room(config, layout, shape)
}

/// Checks that the volume has room for images of rows, if it needs it.
pub(crate) fn check_hole(config: &VolumeConfig, layout: &Layout) -> Result<(), ConfigError> {
    match config.close_hole && layout.images().is_empty() {
        true => Err(ConfigError::NoImages),
        false => Ok(()),
    }
}

/// Checks that the settings of kept versions suit this volume.
pub(crate) fn check_durable(
    config: &VolumeConfig,
    layout: &Layout,
    shape: RecordShape,
) -> Result<(), ConfigError> {
    let capacity = layout.capacity();
    if let Some(range) = config.durable_only.iter().find(|range| range.end().0 > capacity.0) {
        return Err(ConfigError::DurableBeyondEnd { range, capacity });
    }
    if config.needs_kept_versions() && shape.headers == Headers::Apart {
        return Err(ConfigError::KeptApart);
    }
    Ok(())
}
