//! Recovery: rebuilds the table from the logs alone, or faster from a snapshot and the logs opened
//! since. It only reads.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Nvram, Sectors};
use manylogs_engine::{InDoubt, Scanner, retire_failed};
use manylogs_logstore::ondisk::root::Left;
use manylogs_logstore::store::{Store, Versions, apart};
use manylogs_logstore::{LogId, NvramError, Scanned, VolumeId};

use crate::error::VolumeError;
use crate::lifecycle::columns::{arranged_reads, as_said, is_reshaped};
use crate::lifecycle::options::{LogDamage, OpenOptions, RecoveryReport};
use crate::ondisk::layout::Layout;
use crate::ondisk::superblock::Superblock;
use crate::roots::snapshot;

use manylogs_plant::{self as plant, Bug};

/// Fills `store` from the snapshot and the logs.
///
/// Only sectors that the medium cannot return count as damaged. A snapshot is ignored if its
/// sectors cannot be read, because the logs hold the same entries. Any other failed read ends the
/// recovery. Also returns what the logs leave in doubt after a crash.
pub(crate) async fn rebuild(
    device: &Rc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &OpenOptions,
    mut store: Store,
    report: &mut RecoveryReport,
) -> Result<(Store, InDoubt), VolumeError> {
    let device = &as_said(device, &superblock.layout);
    report.reshaped = is_reshaped(device, &superblock.layout);
    let device = &arranged_reads(device, &superblock.layout);
    report.was_closed = store.root().left != Left::Open;
    retire_failed(&mut store);
    match (superblock.nvram, &options.nvram) {
        (true, Some(_)) if options.give_up_nvram => return Ok((store, InDoubt::default())),
        (true, Some(memory)) => {
            let store = look_up(Rc::clone(memory), superblock.volume, store, report)?;
            return Ok((store, InDoubt::default()));
        }
        (true, None) => return Err(NvramError::Missing.into()),
        (false, Some(_)) => return Err(NvramError::Unused.into()),
        (false, None) => {}
    }
    let (layout, devices) = (&superblock.layout, std::slice::from_ref(device));
    let snapshot = match store.root().snapshot {
        Some(named) if !options.ignore_snapshot => {
            let loaded = snapshot::load(device, layout, named).await;
            let loaded = loaded.map_err(VolumeError::of_opening)?;
            let limit = store.root().sequence_limit;
            let loaded = loaded.filter(|snapshot| {
                let (regions, capacity) = (layout.regions(), layout.capacity());
                snapshot.fits(regions, capacity, superblock.record_unit(), limit)
            });
            report.read_bytes += named.bytes;
            report.snapshot_damaged = loaded.is_none();
            loaded
        }
        _ => None,
    };
    report.from_snapshot = snapshot.is_some();
    let drained = store.root().left == Left::Drained && !plant::is(Bug::DrainedLogsScanned);
    let unknown = |id: &LogId| match &snapshot {
        // All entries in the logs are dead, so damage to them does not count.
        _ if drained => false,
        Some(_) => opened_since(&store, *id),
        None => store.root().used.contains(*id),
    };
    let wanted: Vec<LogId> = store.logs().ids().filter(unknown).collect();
    let mut versions = Versions::new(store.take_logs());
    if let Some(snapshot) = snapshot {
        // For logs that were opened since the snapshot, only the records found there now count.
        versions.take_snapshot(snapshot, |log| !opened_since(&store, log));
    }
    let of = (superblock.volume, superblock.record_unit(), layout.capacity());
    let floor = store.floors().kept;
    let mut scanner = Scanner::new(devices, &versions.logs, wanted, of, floor);
    while let Some((log, scanned)) = scanner.next().await.map_err(VolumeError::of_opening)? {
        note(report, layout, log, &scanned);
        for record in &scanned.records {
            if store.root().is_older_than(record) {
                return Err(VolumeError::StaleRoot);
            }
            let whole = scanned.is_whole(record);
            versions.take_record(log, record, store.floors(), whole);
        }
    }
    if let Some(unknown) = report.damage.iter().find(|found| !found.damage.known)
        && !options.accept_damage
    {
        let LogDamage { log, damage } = *unknown;
        return Err(VolumeError::Damaged { log, offset: damage.offset, sectors: damage.sectors });
    }
    let in_doubt = scanner.in_doubt();
    store.fill(versions);
    Ok((store, in_doubt))
}

fn note(report: &mut RecoveryReport, layout: &Layout, log: LogId, scanned: &Scanned) {
    report.scanned_logs += 1;
    report.records += scanned.records.len() as u64;
    report.read_bytes +=
        scanned.records.iter().map(|record| record.record_sectors.bytes()).sum::<u64>();
    report.damage.extend(scanned.damage.iter().map(|damage| LogDamage { log, damage: *damage }));
    let region = layout.regions()[log.0 as usize];
    for offset in &scanned.unreadable {
        let start = region.start + Sectors(offset.0.into());
        match report.unreadable.last_mut() {
            Some(last) if last.end() == start => last.len += Sectors(1),
            _ => report.unreadable.push(Extent { start, len: Sectors(1) }),
        }
    }
}

/// Fills `store` from non-volatile RAM.
fn look_up(
    memory: Rc<dyn Nvram>,
    volume: VolumeId,
    mut store: Store,
    report: &mut RecoveryReport,
) -> Result<Store, VolumeError> {
    let incarnation = store.root().incarnation.0;
    let (table, found) = apart::look(memory, volume, store.take_logs(), incarnation)?;
    report.from_nvram = true;
    report.records = found.records;
    report.read_bytes = table.used();
    store.fill_from(table, found);
    Ok(store)
}

/// Whether a log may have changed since the snapshot.
fn opened_since(store: &Store, log: LogId) -> bool {
    store.root().opened.contains(log) && !plant::is(Bug::SnapshotAcrossReset)
}
