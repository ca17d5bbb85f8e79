//! Format and opening.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, Nanos, Nvram, Payload, Request, to_usize,
};
use manylogs_logstore::{
    DataSequence, Incarnation, LogId, RecordSequence, SequenceLimit, VolumeId,
};

use crate::error::VolumeError;
use crate::lifecycle::grow::finish_hiding;
use crate::lifecycle::patience::PatientReads;
use crate::lifecycle::recover;
use crate::lifecycle::structures::{Structures, read_structures};
use crate::ondisk::layout::Layout;
use crate::ondisk::root::{Left, Root};
use crate::ondisk::superblock::Superblock;
use crate::phase::{Below, Phase, PhaseProbe};
use crate::roots::update::write_root;
use crate::settings::Settings;
use crate::settings::config::{EngineConfig, TablePlace};
use crate::store::Logs;
use crate::store::Store;
use crate::store::apart;
use crate::volume::Volume;
use manylogs_plant::{self as plant, Bug};

/// Longest request for zeroes.
const ZERO_SECTORS: u64 = 1 << 16;

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The parameters that may change; the layout is the volume's own. `None` takes the settings
    /// that the volume keeps.
    pub config: Option<EngineConfig>,
    /// Rebuild the table from the logs alone.
    pub ignore_snapshot: bool,
    /// Open although records are damaged, or cannot be read, of which nobody knows what they were:
    /// acknowledged writes are given up. The report lists where.
    pub accept_damage: bool,
    /// Open to drain: also a volume that has sequences left for nothing else.
    pub to_drain: bool,
    /// Where the table is, if the volume keeps it in non-volatile RAM.
    pub nvram: Option<Rc<dyn Nvram>>,
    /// Open with an empty table in `nvram`, whatever is there: what was only logged is lost, home
    /// data is as the last checkpoint, large write or drain left it.
    pub give_up_nvram: bool,
    /// Told what the engine writes for.
    pub probe: PhaseProbe,
}

/// How to create a volume.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// A name for people, up to 32 bytes.
    pub label: String,
    /// The volume's id; drawn from the runtime's random numbers when not given.
    pub volume: Option<VolumeId>,
    /// Where the logs are, if not where the parameters would put them.
    pub layout: Option<Layout>,
    /// Keep the mapping table there rather than in the logs. What it held is lost.
    pub nvram: Option<Rc<dyn Nvram>>,
    /// Write zeroes to all that is for data: blocks read as zeroes until they are written, rather
    /// than as what the device held before. This writes the whole device where it cannot zero
    /// faster.
    pub zero: bool,
    /// Told what the engine writes for.
    pub probe: PhaseProbe,
}

/// Damage that a scan found in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The log.
    pub log: LogId,
    /// Where, how far, and whether it is known what was there.
    pub damage: manylogs_logstore::Damage,
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the volume was closed in order, and nothing had to be recovered.
    pub was_closed: bool,
    /// Whether a snapshot was used.
    pub from_snapshot: bool,
    /// Whether the table came from non-volatile RAM.
    pub from_nvram: bool,
    /// Whether the root names a snapshot that is damaged; the logs have the same.
    pub snapshot_damaged: bool,
    /// Whether the first superblock was damaged and the last one used.
    pub from_backup_superblock: bool,
    /// Whether the last superblock is damaged.
    pub backup_superblock_damaged: bool,
    /// Whether a crash interrupted a change of the superblock, which an opening finishes.
    pub superblock_change_unfinished: bool,
    /// Root slots that are damaged. One may be after a crash, and is rewritten.
    pub roots_damaged: u32,
    /// Logs that were read.
    pub scanned_logs: u64,
    /// Records found in them.
    pub records: u64,
    /// Bytes read from logs and snapshot.
    pub read_bytes: u64,
    /// What was durable in the logs once and is damaged.
    pub damage: Vec<LogDamage>,
    /// Sectors of the logs that the medium does not give back, whether anything was there or not.
    pub unreadable: Vec<Extent>,
    /// Extents in the rebuilt table.
    pub mapped_extents: u64,
    /// Time it took.
    pub duration: Nanos,
}

impl Volume {
    /// Formats `device` and opens the new volume, which keeps the settings in `config`. What the
    /// device held is lost.
    ///
    /// # Errors
    /// If the parameters make no sense, the device is too small, or it fails.
    pub async fn create(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        config: &EngineConfig,
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
        config: &EngineConfig,
        options: &CreateOptions,
    ) -> Result<Self, VolumeError> {
        let device = Below::new(device, options.probe.clone());
        let below = device.capabilities();
        let layout = match &options.layout {
            Some(layout) => layout.clone(),
            None => Layout::plan(config, below.capacity, below.physical_sector)?,
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
            layout: layout.clone(),
        };
        let largest = config.largest_record(superblock.shape());
        let logs = Logs::new(layout.regions(), largest.log, superblock.shape());
        let table = match options.nvram.clone() {
            Some(memory) => {
                let (floor, incarnation) = (root.floor, root.incarnation.0);
                Some(apart::create(memory, volume, &logs, largest, floor, incarnation)?)
            }
            None => None,
        };
        if options.zero {
            zero(&device, Phase::Open, layout.homes().iter().map(|(_, home)| *home)).await?;
        }
        // The roots first: a superblock makes it a volume, and by then they must be whole. The
        // last copy before the first: a device with the first one is formatted.
        write_root(&device, Phase::Open, &root, volume, &layout, 0).await?;
        write_root(&device, Phase::Open, &root, volume, &layout, 1).await?;
        write_superblock(&device, &superblock).await?;
        let mut store = Store::new(volume, logs, root, 1);
        store.apart = table;
        let table = table_place(options.nvram.as_ref());
        let config = EngineConfig { table, ..*config };
        let created = Self::assemble(runtime, device, below, volume, layout, config, store);
        created.run();
        Ok(created)
    }

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
        let started = runtime.now();
        let device = Below::new(device, options.probe.clone());
        let mut report = RecoveryReport::default();
        // What a killed process left in the drive's cache must not be believed and then lost.
        if !plant::is(Bug::NoFlushAtOpen) {
            device.submit(Phase::Recovery, Request::Flush).await?;
        }
        let reads: Rc<dyn BlockDevice> = if options.accept_damage {
            PatientReads::giving_up(Rc::clone(device.device()), runtime.clone())
        } else {
            PatientReads::new(Rc::clone(device.device()), runtime.clone())
        };
        let Structures { superblock, older, mut root, root_slot } =
            read_structures(&reads, &mut report).await?;
        let mut below = device.capabilities();
        below.physical_sector = superblock.physical;
        let on_disk = root.clone();
        let first = set_sequences_aside(&mut root, options.to_drain)?;
        let formatted =
            EngineConfig { table: table_place(options.nvram.as_ref()), ..superblock.config() };
        let config = options.config.map_or(formatted, |given| formatted.changed_to(&given));
        config.validate().map_err(VolumeError::Config)?;
        let layout = superblock.layout.clone();
        let largest = config.largest_record(superblock.shape());
        let logs = Logs::new(layout.regions(), largest.log, superblock.shape());
        let store = Store::new(superblock.volume, logs, on_disk, root_slot);
        if let Some(memory) = &options.nvram {
            apart::settle(&**memory)?;
        }
        let found = recover::rebuild(&reads, &superblock, options, store, &mut report);
        let mut store = found.await?;
        if let Some(older) = older {
            finish_change(&device, &superblock, &older).await?;
        }
        root.floor = store.roots.on_disk.floor;
        root.left = Left::Open;
        (store.sequences.next_data, store.sequences.next_record) =
            (DataSequence(first), RecordSequence(first));
        if superblock.nvram {
            let memory = options.nvram.clone();
            root.floor = store.begin_apart(memory, superblock.volume, largest, &root)?;
        }
        report.mapped_extents = store.map.len() as u64;
        let volume = superblock.volume;
        let opened = Self::assemble(runtime, device, below, volume, layout, config, store);
        // Durable before anything is appended under it.
        opened.inner().update_root(Phase::Open, |on_disk| *on_disk = root).await?;
        opened.run();
        report.duration = opened.inner().runtime.now().since(started);
        Ok((opened, report))
    }
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

/// Writes both copies, the last first: one of them is always whole, and the first is the older one
/// until the change is durable.
pub(crate) async fn write_superblock(
    device: &Below,
    superblock: &Superblock,
) -> Result<(), VolumeError> {
    for copy in [1, 0] {
        write_superblock_copy(device, superblock, copy).await?;
    }
    Ok(())
}

/// Writes the first copy (0) or the last (1).
pub(crate) async fn write_superblock_copy(
    device: &Below,
    superblock: &Superblock,
    copy: usize,
) -> Result<(), IoError> {
    let place = superblock.layout.superblocks()[copy];
    let write = Request::write_fua(place, Payload::bytes(superblock.encode()));
    device.submit(Phase::Open, write).await.map(drop)
}

/// Finishes a change of the superblock that a crash interrupted: before anything is written that
/// relies on it, as the copy that is newer may be lost one day.
pub(crate) async fn finish_change(
    device: &Below,
    superblock: &Superblock,
    older: &Superblock,
) -> Result<(), VolumeError> {
    if plant::is(Bug::ChangeLeftUnfinished) {
        return Ok(());
    }
    finish_hiding(device, superblock.volume, &older.layout, &superblock.layout).await?;
    write_superblock(device, superblock).await
}

/// Writes zeroes, durable when this returns.
pub(crate) async fn zero(
    device: &Below,
    phase: Phase,
    places: impl IntoIterator<Item = Extent>,
) -> Result<u64, IoError> {
    let mut bytes = 0;
    for place in places {
        for start in place.range().step_by(to_usize(ZERO_SECTORS)) {
            let extent = Extent::new(start, ZERO_SECTORS.min(place.end().0 - start));
            device.submit(phase, Request::WriteZeroes { extent, fua: false }).await?;
            bytes += extent.len.bytes();
        }
    }
    device.submit(phase, Request::Flush).await?;
    Ok(bytes)
}

pub(crate) fn new_volume_id(runtime: &Handle) -> VolumeId {
    let mut id = VolumeId::default();
    let (low, high) = id.split_at_mut(8);
    low.copy_from_slice(&runtime.random().to_le_bytes());
    high.copy_from_slice(&runtime.random().to_le_bytes());
    id
}

fn table_place(nvram: Option<&Rc<dyn Nvram>>) -> TablePlace {
    nvram.map_or(TablePlace::Logs, |nvram| TablePlace::Nvram(nvram.size()))
}
