//! Opening a volume, after an orderly close or a crash. All reads come before the first write.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, IoError, Payload,
    Request, Sectors, Time,
};
use manylogs_logstore::ondisk::root::{Left, Root};
use manylogs_logstore::store::{Device, Logs, Room, Store, apart};
use manylogs_logstore::{Floors, Incarnation, RecordShape, SequenceLimit};

use crate::error::VolumeError;
use crate::lifecycle::columns::as_said;
use crate::lifecycle::old_end::finish_change;
use crate::lifecycle::options::{OpenOptions, RecoveryReport, table_place};
use crate::lifecycle::structures::{Structures, read_structures};
use crate::lifecycle::{mend_rows, recover};
use crate::ondisk::layout::Layout;
use crate::ondisk::row_image::RowImage;
use crate::ondisk::superblock::Superblock;
use crate::records::largest::{largest_record, longest_batch};
use crate::settings::config::VolumeConfig;
use crate::settings::config_error::ConfigError;
use crate::volume::Volume;
use manylogs_engine::{InDoubt, Member, PatientReads, Phase, update_root};
use manylogs_plant::{self as plant, Bug};

/// A volume of which an opening has read all it needs, and written nothing yet.
#[derive(Debug)]
pub struct Opening {
    /// The volume as it will be; it can be read already.
    volume: Volume,
    superblock: Superblock,
    older: Option<Superblock>,
    /// The root that will make it open.
    root: Root,
    largest: Room,
    /// What must be written again first, because copies of an array may differ.
    in_doubt: Option<InDoubt>,
    /// Rows that were on their way home at a crash.
    rows: Option<RowImage>,
    options: OpenOptions,
    report: RecoveryReport,
    started: Time,
}

impl Volume {
    /// Opens a volume, after an orderly close or any crash.
    ///
    /// # Errors
    /// If there is no volume, it is too new or too damaged, or the device fails. Reads that the
    /// device fails for a while are tried again: see [`PatientReads`].
    pub async fn open(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<(Self, RecoveryReport), VolumeError> {
        Opening::read(runtime, device, options).await?.begin().await
    }
}

impl Opening {
    /// Reads what an opening needs, and makes all checks that may refuse it. Nothing is written.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub async fn read(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Self, VolumeError> {
        let started = runtime.now();
        let device = Member::new(device, options.probe.clone());
        let mut report = RecoveryReport::default();
        // Data that a killed process left in the drive's cache must be durable before it is
        // believed.
        if !plant::is(Bug::NoFlushAtOpen) {
            device.submit(Phase::Recovery, Request::Flush).await?;
        }
        let reads: Rc<dyn BlockDevice> = if options.accept_damage {
            PatientReads::giving_up(Rc::clone(device.device()), runtime.clone())
        } else {
            PatientReads::new(Rc::clone(device.device()), runtime.clone())
        };
        let Structures { mut superblock, older, mut root, root_slot } =
            read_structures(&reads, options.anchors, &mut report).await?;
        let device = as_said(device.device(), &superblock.layout);
        let device = Member::new(device, options.probe.clone());
        let reads = as_said(&reads, &superblock.layout);
        if plant::is(Bug::GeometryOfToday) {
            superblock.layout = superblock.layout.on_columns(device.device().geometry());
        }
        let mut below = device.capabilities();
        let has_short_sectors = below.physical_sector > superblock.physical;
        if has_short_sectors && !options.to_drain {
            let (device, logs) = (below.physical_sector, superblock.physical);
            return Err(VolumeError::LogsOfShorterSectors { device, logs });
        }
        below.physical_sector = below.physical_sector.max(superblock.physical);
        if options.keep_metadata && superblock.nvram {
            return Err(ConfigError::KeptApart.into());
        }
        if options.keep_metadata && !superblock.may_keep() {
            return Err(ConfigError::NoRoomForDurable.into());
        }
        let (on_disk, found_in) = (root.clone(), root.incarnation);
        let first = set_sequences_aside(&mut root, options.to_drain)?;
        let formatted =
            VolumeConfig { table: table_place(options.nvram.as_ref()), ..superblock.config() };
        let config = options.config.map_or(formatted, |given| formatted.changed_to(&given));
        config.validate()?;
        let layout = superblock.layout.clone();
        let config = as_logs_allow(config, &layout, superblock.shape(), options.record_least);
        let largest = largest_record(&config, &layout, superblock.shape());
        let logs = Logs::new(layout.regions(), largest.log, superblock.shape());
        let store = Store::new(superblock.volume, logs, on_disk, root_slot);
        if let Some(memory) = &options.nvram {
            apart::settle(&**memory)?;
        }
        let found = recover::rebuild(&reads, &superblock, options, store, &mut report);
        let (mut store, in_doubt) = found.await?;
        // Nothing is appended where a record would share a sector with a durable one.
        let has_copies = reads.has_copies() && !has_short_sectors;
        let may_differ = has_copies && !report.was_closed;
        // To a closed volume nothing was appended. But a change of its superblock may be on one
        // copy only.
        let mut in_doubt = if may_differ { in_doubt } else { InDoubt::default() };
        for place in layout.superblocks().into_iter().chain([layout.roots()[root_slot]]) {
            in_doubt.add_structure(Device::default(), place);
        }
        let rows = match report.was_closed {
            true => None,
            false => mend_rows::find(&reads, &superblock, found_in).await?,
        };
        if let Some(rows) = &rows {
            in_doubt.add_structure(Device::default(), rows.place);
            report.mended_rows = rows.count();
        }
        let is_settled = has_copies && (may_differ || !plant::is(Bug::ClosedNotSettled));
        let in_doubt = Some(in_doubt).filter(|_| is_settled);
        if may_differ && !plant::is(Bug::DeadEpochGoesOn) {
            store.end_dead_epochs();
        }
        if superblock.keeps {
            store.keep();
        }
        if has_short_sectors {
            // A record would share a sector of the device with a durable record before it.
            store.take_no_more();
        }
        root.raise(store.floors());
        root.left = Left::Open;
        store.number_from(first);
        report.mapped_extents = store.map().len() as u64;
        let named = (superblock.volume, superblock.label.clone());
        let volume = Volume::assemble(runtime, device, below, named, layout, config, store);
        volume.inner().logs_near.set(options.logs_near);
        volume.inner().pace.set(options.pace);
        volume.inner().record_least.set(options.record_least);
        let options = options.clone();
        Ok(Self {
            volume,
            superblock,
            older,
            root,
            largest,
            in_doubt,
            rows,
            options,
            report,
            started,
        })
    }

    /// The volume's content. Only reads and flushes are served before [`Opening::begin`].
    #[must_use]
    pub fn content(&self) -> Rc<dyn BlockDevice> {
        Rc::new(Unbegun(self.volume.clone()))
    }

    /// Opens the volume.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn begin(self) -> Result<(Volume, RecoveryReport), VolumeError> {
        let Self { volume, superblock, older, mut root, largest, options, mut report, .. } = self;
        let inner = volume.inner();
        if let Some(in_doubt) = self.in_doubt {
            in_doubt.settle(&inner.engine.members, |_| true).await?;
        }
        if let Some(rows) = self.rows {
            mend_rows::put_home(inner, &rows).await?;
        }
        if let Some(older) = older {
            finish_change(&inner.device, &superblock, &older).await?;
        }
        if superblock.nvram {
            let mut state = inner.engine.state.borrow_mut();
            let nvram = options.nvram.clone();
            let begun = state.store.begin_apart(nvram, superblock.volume, largest, &root);
            root.raise(Floors::both(begun?));
        }
        // The root must be durable before any record is appended.
        update_root(inner, Phase::Open, |on_disk| *on_disk = root).await?;
        if volume.config().needs_kept_versions() {
            volume.keep_versions().await?;
        }
        if options.keep_metadata && !volume.keep_metadata().await? {
            return Err(ConfigError::NoRoomForDurable.into());
        }
        if !options.to_read {
            volume.run();
        }
        report.duration = inner.engine.runtime.now().since(self.started);
        Ok((volume, report))
    }
}

/// The content of a volume whose tasks do not run yet: they would answer writes and flushes.
#[derive(Debug)]
struct Unbegun(Volume);

impl BlockDevice for Unbegun {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        match request {
            Request::Read { .. } => self.0.submit(request),
            // The opening has flushed the device, and nothing was written since.
            Request::Flush => Completion::ready(Ok(Payload::default())),
            _ => Completion::ready(Err(IoError::ReadOnly { reason: "it is not open yet" })),
        }
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.0.geometry()
    }
}

/// The parameters of a volume whose owner appends batches. They are changed if the logs could not
/// take such records, or if the owner needs longer ones: older programs did not check that.
fn as_logs_allow(
    config: VolumeConfig,
    layout: &Layout,
    shape: RecordShape,
    record_least: Sectors,
) -> VolumeConfig {
    if layout.anchors().is_none() {
        return config;
    }
    let longest = longest_batch(&config, layout, shape);
    let record = config.record.max(record_least).min(longest);
    VolumeConfig { record, threshold: config.threshold.min(record), ..config }
}

/// Counts the opening and sets sequences aside for it. Returns the first one.
fn set_sequences_aside(root: &mut Root, to_drain: bool) -> Result<u64, VolumeError> {
    let first = root.sequence_limit;
    if plant::is(Bug::NoNewIncarnation) {
        return Ok(first.0 - SequenceLimit::STEP);
    }
    let reserve = if to_drain { 0 } else { SequenceLimit::LAST_STEPS };
    if root.incarnation >= Incarnation::MAX || first.steps_left() <= reserve {
        return Err(VolumeError::Worn);
    }
    root.sequence_limit = first.extended().ok_or(VolumeError::Worn)?;
    root.incarnation = Incarnation(root.incarnation.0 + 1);
    Ok(first.0)
}
