//! Format and recovery: the table is rebuilt from the logs alone, or faster from a snapshot and
//! the logs opened since.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Nanos, Payload, Request, Sectors};
use manylogs_logstore::{
    DataSequence, EntryKind, ExtentMap, Incarnation, LogId, LogOffset, MapValue, Mapped, Scanned,
    VolumeId, scan,
};

use crate::config::EngineConfig;
use crate::error::VolumeError;
use crate::layout::{Layout, superblock_places};
use crate::logs::Logs;
use crate::phase::{Below, Phase, PhaseProbe};
use crate::place::Place;
use crate::plant::{self, Bug};
use crate::root::{Root, Touched, write_root};
use crate::snapshot::{self, Snapshot};
use crate::state::{State, largest_record};
use crate::superblock::Superblock;
use crate::volume::Volume;

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The parameters that may change; the layout is the volume's own. `None` takes the defaults
    /// and the threshold given at format.
    pub config: Option<EngineConfig>,
    /// Rebuild the table from the logs alone.
    pub ignore_snapshot: bool,
    /// Told what the engine writes for.
    pub probe: PhaseProbe,
}

/// How to create a volume.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Told what the engine writes for.
    pub probe: PhaseProbe,
}

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether a snapshot was used.
    pub from_snapshot: bool,
    /// Whether the first superblock was damaged and the last one used.
    pub from_backup_superblock: bool,
    /// Logs that were read.
    pub scanned_logs: u64,
    /// Records found in them.
    pub records: u64,
    /// Extents in the rebuilt table.
    pub mapped_extents: u64,
    /// Time it took.
    pub duration: Nanos,
}

/// A version that recovery found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// `None`: superseded, what is home is newer.
    place: Option<Place>,
    /// The record it is from: of two copies of one version the later counts, as the earlier is
    /// where it was moved from.
    record: u64,
}

impl MapValue for Found {
    fn advance(self, by: Sectors) -> Self {
        Self { place: self.place.map(|place| place.advance(by)), ..self }
    }
}

impl Volume {
    /// Formats `device` and opens the new volume. What the device held is lost.
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
        let layout = Layout::plan(config, below.capacity, below.physical_sector)?;
        let volume = new_volume_id(&runtime);
        let root = Root {
            generation: 1,
            incarnation: Incarnation(1),
            floor: DataSequence(0),
            snapshot: None,
            touched: Touched::none(layout.regions().len()),
        };
        // The root first: a superblock makes it a volume, and by then it must be whole.
        write_root(&device, Phase::Open, &root, volume, 0).await?;
        write_root(&device, Phase::Open, &root, volume, 1).await?;
        let superblock = Superblock {
            volume,
            device: below.capacity,
            physical: below.physical_sector,
            config: *config,
        };
        for place in layout.superblocks() {
            let payload = Payload::bytes(superblock.encode());
            device.submit(Phase::Open, Request::write_fua(place, payload)).await?;
        }
        let logs = new_logs(&layout, config, below.physical_sector);
        let state = State::new(logs, root, 1, runtime.now());
        let created = Self::assemble(runtime, device, volume, layout, *config, state);
        created.run();
        Ok(created)
    }

    /// Opens a volume, after an orderly close or any crash.
    ///
    /// # Errors
    /// If there is no volume, it is too new or too damaged, or the device fails.
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
        let superblock = read_superblock(&device, &mut report).await?;
        let physical = superblock.physical;
        let layout = Layout::plan(&superblock.config, superblock.device, physical)?;
        let (mut root, root_slot) = read_root(&device, superblock.volume).await?;
        let snapshot = match root.snapshot {
            Some(named) if !options.ignore_snapshot => {
                snapshot::load(&device, &layout, named).await?
            }
            _ => None,
        };
        report.from_snapshot = snapshot.is_some();
        let scans = scan_logs(&device, superblock.volume, &layout, &root, snapshot.is_some());
        let scans = scans.await?;
        if root.incarnation >= Incarnation::MAX {
            return Err(VolumeError::Worn);
        }
        if !plant::is(Bug::NoNewIncarnation) {
            root.incarnation = Incarnation(root.incarnation.0 + 1);
        }
        root.floor = highest_floor(&root, &scans);
        let config = merge(options.config.as_ref(), &superblock.config);
        config.validate().map_err(VolumeError::Config)?;
        let logs = new_logs(&layout, &config, physical);
        let mut state = State::new(logs, root.clone(), root_slot, runtime.now());
        rebuild(&mut state, snapshot.unwrap_or_default(), &scans, &layout);
        report.scanned_logs = scans.len() as u64;
        report.records = scans.iter().map(|(_, scan)| scan.records.len() as u64).sum();
        report.mapped_extents = state.map.len() as u64;
        let opened = Self::assemble(runtime, device, superblock.volume, layout, config, state);
        // Durable before anything is appended under it.
        opened.inner().update_root(Phase::Open, |on_disk| *on_disk = root).await?;
        opened.run();
        report.duration = opened.inner().runtime.now().since(started);
        Ok((opened, report))
    }
}

fn new_volume_id(runtime: &Handle) -> VolumeId {
    let mut id = VolumeId::default();
    let (low, high) = id.split_at_mut(8);
    low.copy_from_slice(&runtime.random().to_le_bytes());
    high.copy_from_slice(&runtime.random().to_le_bytes());
    id
}

fn new_logs(layout: &Layout, config: &EngineConfig, physical: Sectors) -> Logs {
    Logs::new(layout.regions(), largest_record(config, physical))
}

fn merge(given: Option<&EngineConfig>, formatted: &EngineConfig) -> EngineConfig {
    match given {
        None => *formatted,
        Some(given) => {
            EngineConfig { log: formatted.log, placement: formatted.placement, ..*given }
        }
    }
}

async fn read_superblock(
    device: &Below,
    report: &mut RecoveryReport,
) -> Result<Superblock, VolumeError> {
    let mut first_error = None;
    for (index, extent) in superblock_places(device.capabilities().capacity).iter().enumerate() {
        let found = match device.read(*extent).await {
            Ok(payload) => payload
                .to_bytes()
                .ok_or(VolumeError::NotAVolume)
                .and_then(|bytes| Superblock::decode(&bytes)),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(superblock) => {
                report.from_backup_superblock = index > 0;
                return Ok(superblock);
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(VolumeError::NotAVolume))
}

/// The newest whole root and its slot.
async fn read_root(device: &Below, volume: VolumeId) -> Result<(Root, usize), VolumeError> {
    let mut newest: Option<(Root, usize)> = None;
    for slot in 0..2 {
        let read = device.read(Layout::root(slot)).await;
        let root = read.ok().and_then(|p| p.to_bytes()).and_then(|b| Root::decode(&b, volume));
        if let Some(root) = root
            && newest.as_ref().is_none_or(|(best, _)| root.generation > best.generation)
        {
            newest = Some((root, slot));
        }
    }
    newest.ok_or(VolumeError::NoRoot)
}

/// Reads every log, or only those opened since the snapshot.
async fn scan_logs(
    device: &Below,
    volume: VolumeId,
    layout: &Layout,
    root: &Root,
    from_snapshot: bool,
) -> Result<Vec<(LogId, Scanned)>, IoError> {
    let mut scans = Vec::new();
    for (index, region) in layout.regions().iter().enumerate() {
        let id = LogId(u32::try_from(index).unwrap_or(u32::MAX));
        if from_snapshot && !root.touched.contains(id) {
            continue;
        }
        scans.push((id, scan(device.device(), volume, id, *region).await?));
    }
    Ok(scans)
}

/// Every record carries the floor that was durable when it was written.
fn highest_floor(root: &Root, scans: &[(LogId, Scanned)]) -> DataSequence {
    let records = scans.iter().flat_map(|(_, scan)| &scan.records);
    records.map(|record| record.header.floor).fold(root.floor, DataSequence::max)
}

fn rebuild(state: &mut State, snapshot: Snapshot, scans: &[(LogId, Scanned)], layout: &Layout) {
    let scanned: std::collections::BTreeSet<LogId> = scans.iter().map(|(id, _)| *id).collect();
    let mut versions: ExtentMap<Found> = ExtentMap::new();
    for log in snapshot.logs {
        if (log.id.0 as usize) < layout.regions().len() && !scanned.contains(&log.id) {
            for supersede in &log.content.supersedes {
                let found = Found { place: None, record: 0 };
                add(&mut versions, supersede.extent, supersede.data_sequence, found);
            }
            state.logs.with(log.id, |target| {
                target.resume(log.epoch, log.tail, log.last_checksum, log.content);
            });
        }
    }
    for (extent, mapped) in snapshot.map {
        let (Place::Log { log, .. } | Place::Zeroes { log }) = mapped.value else { continue };
        // Of a log that was opened since, only what is found there now counts.
        if !scanned.contains(&log) {
            let found = Found { place: Some(mapped.value), record: 0 };
            add(&mut versions, extent, mapped.sequence, found);
        }
    }
    for (id, scan) in scans {
        for record in &scan.records {
            take_record(state, &mut versions, *id, record);
        }
    }
    fill_table(state, &versions);
}

fn take_record(
    state: &mut State,
    versions: &mut ExtentMap<Found>,
    log: LogId,
    record: &manylogs_logstore::Record,
) {
    let offsets = state.logs.with(log, |log| log.take_up(record));
    let mut offsets = offsets.into_iter();
    for entry in &record.entries {
        let place = match entry.kind {
            EntryKind::Data => {
                Some(Place::Log { log, offset: offsets.next().unwrap_or(LogOffset(0)) })
            }
            EntryKind::Zeroes => Some(Place::Zeroes { log }),
            EntryKind::Supersede => None,
        };
        let found = Found { place, record: record.header.record_sequence.0 };
        if entry.data_sequence >= state.root.floor {
            add(versions, entry.extent, entry.data_sequence, found);
        }
    }
}

fn add(versions: &mut ExtentMap<Found>, extent: Extent, sequence: DataSequence, found: Found) {
    let newer = |old: &Mapped<Found>| (old.sequence, old.value.record) < (sequence, found.record);
    let wins = |old: &Mapped<Found>| plant::is(Bug::RecoveryTakesLast) || newer(old);
    versions.insert_where(extent, Mapped { sequence, value: found }, wins, |_, _| ());
}

fn fill_table(state: &mut State, versions: &ExtentMap<Found>) {
    let floor = state.root.floor;
    for (extent, mapped) in versions.iter() {
        let Some(place) = mapped.value.place else { continue };
        if mapped.sequence < floor {
            continue;
        }
        if let Place::Log { log, .. } | Place::Zeroes { log } = place {
            state.logs.adjust(log, |log| log.add_live(extent.len.0));
        }
        let value = Mapped { sequence: mapped.sequence, value: place };
        state.map.insert(extent, value, |_, _| ());
    }
    for id in state.logs.ids() {
        state.logs.adjust(id, |log| log.raise_floor(floor));
        if state.logs.get(id).is_some() {
            state.reset_candidates.push(id);
        }
    }
    state.reset_what_can_be();
}
