//! What a volume may do about a fault: refuse to open, report damage, fail reads, or read as if
//! nothing had happened. It may be wrong only where `docs/semantics.md` says that nothing can be
//! noticed: in home data, and in what the last records of a log held.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use manylogs::{Layout, OpenOptions, Volume, VolumeError};
use manylogs_block::{BlockDevice, Extent, Lba, Payload, Request, Rng};
use manylogs_logstore::{DataSequence, LogId, Record, ScanOf, VolumeId, scan};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Oracle, Order, Sim};

use crate::fault::Fault;
use crate::fault::{Injected, Outcome, inject};
use crate::kept::Kept;
use crate::machine::{Images, Machine};
use crate::zones::{Zone, Zones};

/// Reads are repeated in smaller parts where they fail: first these, then sector by sector.
const PIECE: u64 = 16;

/// A volume to be damaged.
pub(crate) struct Patient<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) zones: &'a Zones,
    pub(crate) disk: CrashDiskConfig,
    pub(crate) oracle: &'a Oracle,
    pub(crate) kept: &'a Kept,
}

/// What may be wrong without being noticed.
struct Excused {
    /// Exported sectors.
    sectors: BTreeSet<u64>,
    /// Both root slots were hit together, or both superblocks.
    everything: bool,
    /// Nothing but home data was hit: the volume must open.
    only_home: bool,
}

struct Found {
    wrong: Vec<String>,
    excused: u64,
    detected: bool,
}

impl Patient<'_> {
    /// Injects a fault into the disk of `images` and judges what the volume makes of it; `None` if
    /// the fault happened to change nothing.
    ///
    /// # Errors
    /// If something is silently wrong.
    pub(crate) fn examine(
        &self,
        images: &Images,
        rng: &mut Rng,
    ) -> Result<Option<(Fault, Outcome)>, String> {
        let mut whole = images.clone();
        whole.settle();
        let mut damaged = whole.clone();
        let physical = self.disk.physical_sector;
        let Some(injected) = inject(&mut damaged.disk, self.zones, physical, rng) else {
            return Ok(None);
        };
        let excused = self.excuse(&whole, &injected);
        let found = self.look(damaged, &excused, rng);
        let found = found.map_err(|problem| format!("after {injected:?}: {problem}"))?;
        let outcome = match found {
            Found { wrong, .. } if !wrong.is_empty() && !excused.everything => {
                let zones = injected.sectors.iter().map(|lba| self.zones.at(*lba));
                let zones: Vec<Zone> = zones.collect();
                return Err(format!("{injected:?} in {zones:?}: silently wrong: {wrong:?}"));
            }
            Found { excused: 1.., .. } => Outcome::Listed,
            Found { wrong, .. } if !wrong.is_empty() => Outcome::Listed,
            Found { detected: true, .. } => Outcome::Detected,
            Found { .. } => Outcome::Harmless,
        };
        Ok(Some((injected.fault, outcome)))
    }

    fn excuse(&self, whole: &Images, injected: &Injected) -> Excused {
        let mut sectors = BTreeSet::new();
        let mut hit: BTreeMap<LogId, Vec<u64>> = BTreeMap::new();
        let (mut roots, mut superblocks) = (BTreeSet::new(), BTreeSet::new());
        let mut only_home = true;
        for lba in &injected.sectors {
            let zone = self.zones.at(*lba);
            only_home &= matches!(zone, Zone::Home(_) | Zone::Unused);
            match zone {
                Zone::Home(exported) => {
                    sectors.insert(exported.0);
                }
                // Headers kept apart have the checksums of all that is in the logs.
                Zone::Log(..) if whole.nvram.is_some() => {}
                Zone::Log(log, offset) => hit.entry(log).or_default().push(offset),
                Zone::Root(slot) => {
                    roots.insert(slot);
                }
                Zone::Superblock(copy) => {
                    superblocks.insert(copy);
                }
                Zone::Snapshot | Zone::Unused => {}
            }
        }
        for (log, offsets) in hit {
            let records = self.records(&whole.disk, log);
            sectors.extend(lost_without_a_trace(&records, &offsets));
        }
        // A crash may have torn one root already: then the other is the only one.
        let other_torn = !roots.is_empty() && self.roots_damaged(whole) > 0;
        let everything = roots.len() > 1 || superblocks.len() > 1 || other_torn;
        Excused { sectors, everything, only_home }
    }

    fn roots_damaged(&self, images: &Images) -> u32 {
        let sim = Sim::new(0, Order::Fifo);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.disk, images.clone());
        let found = sim.block_on(user, async move {
            let options = OpenOptions { nvram: machine.nvram(), ..OpenOptions::default() };
            let device: Rc<dyn BlockDevice> = Rc::new(machine.disk);
            manylogs::inspect_with(&device, &options).await
        });
        found.map_or(2, |found| found.recovery.roots_damaged)
    }

    /// What recovery finds in a log.
    fn records(&self, image: &DiskImage, log: LogId) -> Vec<Record> {
        let Some(superblock) = image.read(Extent::new(0, 1)).to_bytes() else { return Vec::new() };
        let mut volume = VolumeId::default();
        volume.copy_from_slice(&superblock[16..32]);
        let of = ScanOf {
            volume,
            log,
            region: self.layout.regions()[log.0 as usize],
            physical: self.disk.physical_sector,
            floor: DataSequence(0),
            capacity: self.layout.capacity(),
        };
        let sim = Sim::new(0, Order::Fifo);
        let (drive, user) = (sim.node(), sim.node());
        let disk = CrashDisk::new(sim.handle(drive), self.disk, image.clone());
        let device: Rc<dyn BlockDevice> = Rc::new(disk);
        let scanned =
            sim.block_on(user, async move { scan(&device, of, Payload::default()).await });
        scanned.map(|scanned| scanned.records).unwrap_or_default()
    }

    /// Opens the damaged volume and reads it, now and then also after a checkpoint.
    fn look(&self, damaged: Images, excused: &Excused, rng: &mut Rng) -> Result<Found, String> {
        let sim = Sim::new(rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.disk, damaged);
        let runtime = sim.handle(user);
        let opened =
            sim.block_on(user, async move { machine.open(runtime, OpenOptions::default()).await });
        let mut found = Found { wrong: Vec::new(), excused: 0, detected: true };
        let (volume, report) = match opened {
            Ok(opened) => opened,
            Err(error) if excused.only_home => return Err(format!("refused: {error}")),
            Err(VolumeError::Config(reason)) => return Err(format!("believed: {reason}")),
            Err(_) => return Ok(found),
        };
        found.detected = report.from_backup_superblock
            || report.backup_superblock_damaged
            || report.roots_damaged > 0
            || report.snapshot_damaged
            || !report.damage.is_empty();
        let capacity = volume.layout().capacity().0;
        if capacity != self.layout.capacity().0 {
            return Err(format!("opened with a capacity of {capacity} sectors"));
        }
        let whole = Extent::new(0, capacity);
        self.read(&sim, user, &volume, whole, excused, &mut found);
        if rng.one_in(4) {
            let worker = volume.clone();
            // It may fail; what it then left must still be right.
            let _ = sim.block_on(user, async move { worker.checkpoint().await });
            self.read(&sim, user, &volume, whole, excused, &mut found);
        }
        Ok(found)
    }

    fn read(
        &self,
        sim: &Sim,
        user: manylogs_sim::NodeId,
        volume: &Volume,
        extent: Extent,
        excused: &Excused,
        found: &mut Found,
    ) {
        let reader = volume.clone();
        let content =
            sim.block_on(user, async move { reader.submit(Request::Read { extent }).await });
        let Ok(content) = content else {
            found.detected = true;
            let step = if extent.len.0 > PIECE { PIECE } else { 1 };
            if extent.len.0 > 1 {
                for start in extent.range().step_by(manylogs_block::to_usize(step)) {
                    let end = Lba(extent.end().0.min(start + step));
                    let part = Extent::between(Lba(start), end);
                    self.read(sim, user, volume, part, excused, found);
                }
            }
            return;
        };
        for (lba, sector) in extent.range().zip(content.sectors()) {
            match self.oracle.check_sector(lba, &sector.unwrap_or_default()) {
                Ok(()) => {}
                Err(_) if excused.sectors.contains(&lba) => found.excused += 1,
                Err(wrong) => found.wrong.push(wrong.to_string()),
            }
        }
    }
}

/// The exported sectors of the first record hit at `offsets` of which no whole record says that it
/// was durable, and of all records behind it.
fn lost_without_a_trace(records: &[Record], offsets: &[u64]) -> BTreeSet<u64> {
    let start = |record: &Record| u64::from(record.header.offset.0);
    let end = |record: &Record| start(record) + record.record_sectors.0;
    let is_hit = |record: &Record| {
        offsets.iter().any(|offset| (start(record)..end(record)).contains(offset))
    };
    let witnesses: Vec<&Record> = records.iter().filter(|record| !is_hit(record)).collect();
    let unproved = |record: &&Record| {
        let later = witnesses.iter().filter(|later| start(later) > start(record));
        is_hit(record) && !later.into_iter().any(|later| proves(later, end(record)))
    };
    let Some(first) = records.iter().find(unproved) else { return BTreeSet::new() };
    let lost = records.iter().filter(|record| start(record) >= start(first));
    lost.flat_map(|record| &record.entries).flat_map(|entry| entry.extent.range()).collect()
}

/// Whether `later` says that its log was durable up to `end`.
fn proves(later: &Record, end: u64) -> bool {
    u64::from(later.header.durable_tail.0) >= end
}
