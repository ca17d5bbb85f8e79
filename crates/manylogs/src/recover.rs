//! Recovery: the table is rebuilt from the logs alone, or faster from a snapshot and the logs
//! opened since. It only reads.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, IoError, Nvram, Payload, Request, Sectors};
use manylogs_logstore::{BLANK, Incarnation, LogId, VolumeId, scan};

use crate::error::{NvramError, VolumeError};
use crate::nvram;
use crate::ondisk::layout::{Layout, SUPERBLOCK_LEAST, SUPERBLOCK_MOST, superblock_at_end};
use crate::ondisk::root::Root;
use crate::ondisk::superblock::Superblock;
use crate::open::{LogDamage, OpenOptions, RecoveryReport};
use crate::snapshot;
use crate::state::State;
use crate::versions::Versions;
use manylogs_plant::{self as plant, Bug};

/// Starts of logs that are read together.
const LOOKS: usize = 32;

/// What describes a volume.
pub(crate) struct Structures {
    pub(crate) superblock: Superblock,
    pub(crate) root: Root,
    pub(crate) root_slot: usize,
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

/// The newest whole superblock.
pub(crate) async fn read_superblock(
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
    for id in state.root.retired.clone() {
        if (id.0 as usize) < superblock.layout.regions().len() {
            state.logs.with(id, manylogs_logstore::Log::retire);
        }
    }
    match (superblock.nvram, &options.nvram) {
        (true, Some(_)) if options.give_up_nvram => return Ok(state),
        (true, Some(memory)) => {
            return look_up(Rc::clone(memory), superblock.volume, state, report);
        }
        (true, None) => return Err(NvramError::Missing.into()),
        (false, Some(_)) => return Err(NvramError::Unused.into()),
        (false, None) => {}
    }
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
    let unknown = |id: &LogId| match &snapshot {
        Some(_) => opened_since(&state, *id),
        None => state.root.used.contains(*id),
    };
    let wanted: Vec<LogId> = state.logs.ids().filter(unknown).collect();
    let mut versions = Versions::new(state.logs.take());
    if let Some(snapshot) = snapshot {
        // Of logs that were opened since the snapshot only what is found there now counts.
        versions.take_snapshot(snapshot, |log| !opened_since(&state, log));
    }
    let mut used = Used { device, layout, wanted: wanted.into_iter(), asked: VecDeque::new() };
    while let Some((log, start)) = used.next().await? {
        let scanned = scan(device, superblock.scan_of(log, state.root.floor), start).await?;
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
            versions.take_record(log, record, state.root.floor);
        }
    }
    if let Some(unknown) = report.damage.iter().find(|found| !found.damage.known)
        && !options.accept_damage
    {
        let LogDamage { log, damage } = *unknown;
        return Err(VolumeError::Damaged { log, offset: damage.offset, sectors: damage.sectors });
    }
    Ok(fill_table(state, versions))
}

/// Logs that are not blank. Of a large volume most are, so many are looked at together.
struct Used<'a> {
    device: &'a Rc<dyn BlockDevice>,
    layout: &'a Layout,
    wanted: std::vec::IntoIter<LogId>,
    asked: VecDeque<(LogId, Completion)>,
}

impl Used<'_> {
    /// The next one, and what was read of its start.
    async fn next(&mut self) -> Result<Option<(LogId, Payload)>, VolumeError> {
        loop {
            while self.asked.len() < LOOKS
                && let Some(log) = self.wanted.next()
            {
                let region = self.layout.regions()[log.0 as usize];
                let extent = Extent { len: BLANK.min(region.len), ..region };
                self.asked.push_back((log, self.device.submit(Request::Read { extent })));
            }
            let Some((log, start)) = self.asked.pop_front() else { return Ok(None) };
            match start.await {
                Ok(start) if start.is_zero() => {}
                Ok(start) => return Ok(Some((log, start))),
                Err(IoError::Medium { .. }) => return Ok(Some((log, Payload::default()))),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Fills `state` from non-volatile RAM.
fn look_up(
    memory: Rc<dyn Nvram>,
    volume: VolumeId,
    mut state: State,
    report: &mut RecoveryReport,
) -> Result<State, VolumeError> {
    let incarnation = state.root.incarnation.0;
    let (table, found) = nvram::look(memory, volume, state.logs.take(), incarnation)?;
    report.from_nvram = true;
    report.records = found.records;
    report.read_bytes = table.used();
    state.nvram = Some(table);
    state.root.floor = state.root.floor.max(found.floor);
    Ok(fill_table(state, found.versions))
}

/// Whether a log may have changed since the snapshot.
fn opened_since(state: &State, log: LogId) -> bool {
    state.root.touched.contains(log) && !plant::is(Bug::SnapshotAcrossReset)
}

/// Fills the state's table with what was found.
pub(crate) fn fill_table(mut state: State, mut versions: Versions) -> State {
    let floor = state.root.floor;
    versions.book_live(floor);
    for (extent, mapped) in versions.logged(floor) {
        state.map.insert(extent, mapped, |_, _| ());
    }
    state.logs = versions.logs;
    for id in state.logs.ids() {
        if state.logs.get(id).is_some() {
            state.reset_candidates.push(id);
        }
    }
    state.reset_what_can_be();
    state
}
