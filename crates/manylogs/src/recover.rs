//! Recovery: the table is rebuilt from the logs alone, or faster from a snapshot and the logs
//! opened since. It only reads.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Request, Sectors};
use manylogs_logstore::{
    DataSequence, EntryKind, ExtentMap, Incarnation, LogId, LogOffset, MapValue, Mapped, Record,
    ScanOf, scan,
};

use crate::error::VolumeError;
use crate::ondisk::layout::{Layout, SUPERBLOCK_LEAST, SUPERBLOCK_MOST, superblock_at_end};
use crate::ondisk::root::Root;
use crate::ondisk::snapshot::Snapshot;
use crate::ondisk::superblock::Superblock;
use crate::open::{LogDamage, OpenOptions, RecoveryReport};
use crate::place::Place;
use crate::plant::{self, Bug};
use crate::snapshot;
use crate::state::State;

/// What describes a volume.
pub(crate) struct Structures {
    pub(crate) superblock: Superblock,
    pub(crate) root: Root,
    pub(crate) root_slot: usize,
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

    fn pack(self) -> [u64; 2] {
        [self.place.map_or(Place::NOWHERE, Place::to_word), self.record]
    }

    fn unpack([place, record]: [u64; 2]) -> Self {
        Self { place: Place::from_word(place), record }
    }
}

/// Finds superblock and root, and checks that they fit the device.
pub(crate) async fn read_structures(
    device: &Rc<dyn BlockDevice>,
    report: &mut RecoveryReport,
) -> Result<Structures, VolumeError> {
    let superblock = read_superblock(device, report).await?;
    let have = device.capabilities();
    if have.physical_sector > superblock.physical {
        let (device, volume) = (have.physical_sector, superblock.physical);
        return Err(VolumeError::PhysicalSector { device, volume });
    }
    let (root, root_slot) = read_root(device, &superblock, report).await?;
    Ok(Structures { superblock, root, root_slot })
}

async fn read_superblock(
    device: &Rc<dyn BlockDevice>,
    report: &mut RecoveryReport,
) -> Result<Superblock, VolumeError> {
    let capacity = device.capabilities().capacity;
    if capacity < Sectors(2 * SUPERBLOCK_LEAST.0) {
        return Err(VolumeError::NotAVolume);
    }
    let first = superblock_at(device, Extent::new(0, SUPERBLOCK_LEAST.0)).await;
    let last = match &first {
        Ok(first) => {
            let len = first.layout.as_plan().superblock;
            let own = superblock_at(device, first.layout.superblocks()[1]).await;
            // A volume that was growing when it crashed has a newer one at the device's end.
            let at_end = superblock_at(device, superblock_at_end(capacity, len)).await;
            match (own, at_end) {
                (Ok(own), Ok(at_end)) if at_end.generation <= own.generation => Ok(own),
                (own, Err(_)) => own,
                (_, at_end) => at_end,
            }
        }
        // Copies inside what is left of it, if there are any, are older.
        Err(shrunk @ VolumeError::Shrunk { .. }) => return Err(shrunk.clone()),
        Err(_) => search_at_end(device, capacity).await,
    };
    report.from_backup_superblock = first.is_err();
    report.backup_superblock_damaged = last.is_err();
    match (first, last) {
        (Ok(first), Ok(last))
            if last.volume == first.volume && last.generation > first.generation =>
        {
            Ok(last)
        }
        (Ok(first), _) => Ok(first),
        (Err(_), Ok(last)) => Ok(last),
        (Err(VolumeError::NotAVolume), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

/// The superblock that begins at `place`, however long it is.
pub(crate) async fn superblock_at(
    device: &Rc<dyn BlockDevice>,
    place: Extent,
) -> Result<Superblock, VolumeError> {
    let capacity = device.capabilities().capacity;
    let head = Extent { len: SUPERBLOCK_LEAST, ..place };
    let bytes = read_bytes(device, head).await?;
    let len = Superblock::announced(&bytes)?;
    if len > SUPERBLOCK_MOST {
        return Err(VolumeError::Impossible("length"));
    }
    let whole = if len <= SUPERBLOCK_LEAST {
        bytes
    } else {
        read_bytes(device, Extent { len, ..place }).await?
    };
    let found = Superblock::decode(&whole, capacity)?;
    // Data may hold superblocks too: those of a volume within this one.
    let places = found.layout.superblocks();
    if places.iter().any(|own| own.start == place.start) {
        Ok(found)
    } else {
        Err(VolumeError::NotAVolume)
    }
}

async fn search_at_end(
    device: &Rc<dyn BlockDevice>,
    capacity: Sectors,
) -> Result<Superblock, VolumeError> {
    let end = capacity.0 / 8 * 8;
    let mut first_error = VolumeError::NotAVolume;
    for back in (8..=SUPERBLOCK_MOST.0.min(end)).step_by(8) {
        let place = Extent::new(end - back, SUPERBLOCK_LEAST.0);
        match superblock_at(device, place).await {
            Err(VolumeError::NotAVolume) => {}
            Err(error) => first_error = error,
            found => return found,
        }
    }
    Err(first_error)
}

async fn read_bytes(
    device: &Rc<dyn BlockDevice>,
    extent: Extent,
) -> Result<bytes::Bytes, VolumeError> {
    let payload = device.submit(Request::Read { extent }).await?;
    payload.to_bytes().ok_or(VolumeError::NotAVolume)
}

/// The newest whole root and its slot.
async fn read_root(
    device: &Rc<dyn BlockDevice>,
    superblock: &Superblock,
    report: &mut RecoveryReport,
) -> Result<(Root, usize), VolumeError> {
    let mut newest: Option<(Root, usize)> = None;
    for (slot, extent) in superblock.layout.roots().into_iter().enumerate() {
        let bytes = read_bytes(device, extent).await.ok();
        let root = bytes.and_then(|bytes| Root::decode(&bytes, superblock.volume));
        let root = root.filter(|root| root.used.covers(superblock.layout.regions().len()));
        let Some(root) = root else {
            report.roots_damaged += 1;
            continue;
        };
        if newest.as_ref().is_none_or(|(best, _)| root.generation > best.generation) {
            newest = Some((root, slot));
        }
    }
    newest.ok_or(VolumeError::NoRoot)
}

/// Fills `state` from the snapshot and the logs.
pub(crate) async fn rebuild(
    device: &Rc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &OpenOptions,
    mut state: State,
    report: &mut RecoveryReport,
) -> Result<State, VolumeError> {
    report.was_closed = state.root.left != crate::ondisk::root::Left::Open;
    let layout = &superblock.layout;
    let snapshot = match state.root.snapshot {
        Some(named) if !options.ignore_snapshot => {
            let loaded = snapshot::load(device, layout, named).await?;
            let newest = state.root.incarnation;
            let loaded =
                loaded.filter(|snapshot| snapshot.fits(layout, superblock.physical, newest));
            report.read_bytes += named.bytes;
            report.snapshot_damaged = loaded.is_none();
            loaded
        }
        _ => None,
    };
    report.from_snapshot = snapshot.is_some();
    for id in state.root.retired.clone() {
        if (id.0 as usize) < layout.regions().len() {
            state.logs.with(id, manylogs_logstore::Log::retire);
        }
    }
    let unknown = |id: &LogId| match &snapshot {
        Some(_) => opened_since(&state, *id),
        None => state.root.used.contains(*id),
    };
    let wanted: Vec<LogId> = state.logs.ids().filter(unknown).collect();
    let mut versions: ExtentMap<Found> = ExtentMap::new();
    if let Some(snapshot) = snapshot {
        take_snapshot(&mut state, &mut versions, snapshot, layout);
    }
    for log in wanted {
        let of = ScanOf {
            volume: superblock.volume,
            log,
            region: layout.regions()[log.0 as usize],
            physical: superblock.physical,
            floor: state.root.floor,
            capacity: layout.capacity(),
        };
        let scanned = scan(device, of).await?;
        report.scanned_logs += 1;
        report.records += scanned.records.len() as u64;
        let found = scanned.damage.iter().map(|damage| LogDamage { log, damage: *damage });
        report.damage.extend(found);
        for record in &scanned.records {
            report.read_bytes += record.record_sectors.bytes();
            // Every record carries the floor and the incarnation that were durable before it.
            let sequence = record.header.record_sequence.0;
            if record.header.floor > state.root.floor
                || Incarnation::of(sequence) > state.root.incarnation
            {
                return Err(VolumeError::StaleRoot);
            }
            take_record(&mut state, &mut versions, log, record);
        }
    }
    if let Some(unknown) = report.damage.iter().find(|found| !found.damage.known)
        && !options.accept_damage
    {
        let LogDamage { log, damage } = *unknown;
        return Err(VolumeError::Damaged { log, offset: damage.offset, sectors: damage.sectors });
    }
    fill_table(&mut state, &versions);
    Ok(state)
}

/// Whether a log may have changed since the snapshot.
fn opened_since(state: &State, log: LogId) -> bool {
    state.root.touched.contains(log) && !plant::is(Bug::SnapshotAcrossReset)
}

/// Of logs that were opened since the snapshot only what is found there now counts.
fn take_snapshot(
    state: &mut State,
    versions: &mut ExtentMap<Found>,
    snapshot: Snapshot,
    layout: &Layout,
) {
    let stands = |state: &State, log: LogId| {
        (log.0 as usize) < layout.regions().len() && !opened_since(state, log)
    };
    for log in snapshot.logs {
        if stands(state, log.id) {
            for supersede in &log.content.supersedes {
                let found = Found { place: None, record: 0 };
                add(versions, supersede.extent, supersede.data_sequence, found);
            }
            state.logs.with(log.id, |target| {
                target.resume(log.epoch, log.tail, log.last_checksum, log.content);
            });
        }
    }
    for (extent, mapped) in snapshot.map {
        if mapped.value.log().is_some_and(|log| stands(state, log)) {
            let found = Found { place: Some(mapped.value), record: 0 };
            add(versions, extent, mapped.sequence, found);
        }
    }
}

fn take_record(state: &mut State, versions: &mut ExtentMap<Found>, log: LogId, record: &Record) {
    let offsets = state.logs.with(log, |log| log.take_up(record));
    let mut offsets = offsets.into_iter();
    for entry in &record.entries {
        let place = match entry.kind {
            EntryKind::Data => {
                Some(Place::Log { log, offset: offsets.next().unwrap_or(LogOffset(0)) })
            }
            EntryKind::Zeroes => Some(Place::Zeroes { log }),
            EntryKind::Lost => Some(Place::Lost { log }),
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
        if let Some(log) = place.log() {
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
