//! Format.

use std::rc::Rc;

use manylogs_array::{ColumnMap, Said};
use manylogs_block::{BlockDevice, Handle};
use manylogs_logstore::new_volume_id;
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Logs, Store, apart};

use crate::error::VolumeError;
use crate::lifecycle::columns::arranged;
use crate::lifecycle::geometry::Unfit;
use crate::lifecycle::options::{CreateOptions, table_place};
use crate::lifecycle::superblocks::{write_superblock, zero};
use crate::ondisk::layout::Layout;
use crate::ondisk::superblock::Superblock;
use crate::records::largest::{check_room, largest_record};
use crate::settings::Settings;
use crate::settings::config::VolumeConfig;
use crate::settings::config_error::ConfigError;
use crate::settings::keep::{check_durable, check_hole};
use crate::volume::Volume;
use manylogs_engine::write_root;
use manylogs_engine::{Member, Phase};

impl Volume {
    /// Formats `device` and opens the new volume, which keeps the settings in `config`. The old
    /// content of the device is lost.
    ///
    /// # Errors
    /// If the parameters make no sense, the device is too small, or it fails.
    pub async fn create(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        config: &VolumeConfig,
    ) -> Result<Self, VolumeError> {
        Self::create_with(runtime, device, config, &CreateOptions::default()).await
    }

    /// As [`Volume::create`], with options.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub async fn create_with(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        config: &VolumeConfig,
        options: &CreateOptions,
    ) -> Result<Self, VolumeError> {
        let said = options.said.filter(|_| device.geometry().is_none());
        let device = match said {
            Some(array) => Rc::new(Said::new(device, array)),
            None => device,
        };
        let device = Member::new(device, options.probe.clone());
        let below = device.capabilities();
        // A layout that the caller gives was made for the array already, and so were the
        // parameters.
        let columns = device.device().geometry().filter(|_| options.layout.is_none());
        let config =
            &columns.map_or(*config, |array| config.on_columns(ColumnMap::logs_in_region(&array)));
        let layout = match &options.layout {
            Some(layout) if layout.device() != below.capacity => {
                return Err(VolumeError::OtherDevice {
                    planned: layout.device(),
                    device: below.capacity,
                });
            }
            Some(layout) => {
                layout.parts().check(below.physical_sector).map_err(VolumeError::Impossible)?;
                layout.clone()
            }
            None => Layout::on_array(config, below.capacity, below.physical_sector, columns)?,
        };
        let layout = match said {
            Some(array) if layout.columns().is_none() => {
                return Err(VolumeError::Array(Unfit::NoRows { stripe: array.stripe() }));
            }
            Some(_) => layout.as_said(),
            None => layout,
        };
        let volume = options.volume.unwrap_or_else(|| new_volume_id(&runtime));
        let root = Root::first(layout.regions().len());
        let superblock = Superblock {
            volume,
            generation: 1,
            physical: below.physical_sector,
            label: options.label.clone(),
            settings: Settings::of(config),
            features_compatible: 0,
            nvram: options.nvram.is_some(),
            // If headers would be no shorter, older programs can still open the volume.
            short_headers: options.nvram.is_none()
                && layout.record_unit(below.physical_sector).0 > 1,
            keeps: config.needs_kept_versions(),
            keeps_metadata: false,
            layout: layout.clone(),
        };
        if superblock.keeps && !superblock.may_keep() {
            return Err(ConfigError::NoRoomForDurable.into());
        }
        check_durable(&superblock.config(), &layout, superblock.shape())?;
        check_hole(config, &layout)?;
        if options.layout.is_some() || layout.columns().is_some() {
            superblock.config().validate()?;
        }
        check_room(&superblock.config(), &layout, superblock.shape())?;
        let largest = largest_record(&superblock.config(), &layout, superblock.shape());
        let logs = Logs::new(layout.regions(), largest.log, superblock.shape());
        let table = match options.nvram.clone() {
            Some(memory) => {
                let (floor, incarnation) = (root.floor, root.incarnation.0);
                Some(apart::create(memory, volume, &logs, largest, floor, incarnation)?)
            }
            None => None,
        };
        if options.zero && layout.anchors().is_none() {
            zero(&device, Phase::Open, layout.homes().iter().map(|(_, home)| *home)).await?;
        }
        // The roots are written first, because a superblock makes the device a volume and the roots
        // must be whole by then. The last copy of the superblock is written before the first, which
        // marks the device as formatted.
        let whole = arranged(device.clone(), &layout);
        write_root(&whole, Phase::Open, &root, volume, layout.roots()[0]).await?;
        write_root(&whole, Phase::Open, &root, volume, layout.roots()[1]).await?;
        write_superblock(&whole, &superblock).await?;
        let mut store = Store::new(volume, logs, root, 1);
        if let Some(table) = table {
            store.keep_apart(table);
        }
        if superblock.keeps {
            store.keep();
        }
        let table = table_place(options.nvram.as_ref());
        let log = if layout.columns().is_some() { superblock.config().log } else { config.log };
        let config = VolumeConfig { table, log, ..*config };
        let named = (volume, superblock.label);
        let created = Self::assemble(runtime, device, below, named, layout, config, store);
        created.run();
        Ok(created)
    }
}
