//! Judges how a volume reacts to a fault. It may refuse to open, report damage, fail reads, or read
//! as before. It may return wrong data only where `docs/semantics.md` says that a fault cannot be
//! noticed: in home data, and in the content of the last records of a log.

use std::collections::{BTreeMap, BTreeSet};

use manylogs::{Layout, OpenOptions, PhaseProbe, RecoveryReport, Volume, VolumeError};
use manylogs_block::{BlockDevice, Extent, Lba, Request, Rng};
use manylogs_logstore::LogId;
use manylogs_sim::{CrashDiskConfig, Oracle, Sim, TaskOrder};

use crate::volume::epoch::{epoch_of, lost_without_a_trace};
use crate::volume::fault::{Detected, Fault, Injected, Outcome, inject};
use crate::volume::kept::Kept;
use crate::volume::machine::{Images, Machine};
use crate::volume::zones::{Zone, Zones};

/// Failed reads are repeated in parts of this length first, then sector by sector.
const PIECE: u64 = 16;

/// A volume to be damaged.
pub(crate) struct Patient<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) zones: &'a Zones,
    pub(crate) disk: CrashDiskConfig,
    pub(crate) oracle: &'a Oracle,
    pub(crate) kept: &'a Kept,
}

/// Damage that may go unnoticed.
struct Excused {
    /// Sectors of the volume.
    sectors: BTreeSet<u64>,
    /// Whether both root slots were hit, or both superblocks.
    everything: bool,
    /// Whether the volume must open: everything that was hit has a second copy, or is not needed
    /// for an opening.
    must_open: bool,
}

struct Found {
    wrong: Vec<String>,
    excused: u64,
    /// The first sign of the fault.
    detected: Option<Detected>,
}

impl Patient<'_> {
    /// Injects a fault into the disk of `images` and judges how the volume reacts; `None` if the
    /// fault changed nothing.
    ///
    /// # Errors
    /// If wrong data is returned silently.
    pub(crate) fn examine(
        &self,
        images: &Images,
        rng: &mut Rng,
    ) -> Result<Option<(Fault, Outcome)>, String> {
        let mut whole = images.clone();
        whole.settle();
        let mut damaged = whole.clone();
        let physical = self.disk.physical_sector;
        let Some(injected) = inject(damaged.disk.first_mut(), self.zones, physical, rng) else {
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
            Found { detected: Some(by), .. } => Outcome::Detected(by),
            Found { detected: None, .. } => Outcome::Harmless,
        };
        Ok(Some((injected.fault, outcome)))
    }

    fn excuse(&self, whole: &Images, injected: &Injected) -> Excused {
        let mut sectors = BTreeSet::new();
        let mut hit: BTreeMap<LogId, Vec<u64>> = BTreeMap::new();
        let (mut roots, mut superblocks) = (BTreeSet::new(), BTreeSet::new());
        let mut in_logs = false;
        for lba in &injected.sectors {
            let zone = self.zones.at(*lba);
            in_logs |= matches!(zone, Zone::Log(..));
            match zone {
                Zone::Home(exported) => {
                    sectors.insert(exported.0);
                }
                // The headers kept in RAM have the checksums of everything in the logs.
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
            let region = self.layout.regions()[log.0 as usize];
            sectors.extend(lost_without_a_trace(&epoch_of(whole.disk.first(), region), &offsets));
        }
        // A crash may have torn one root already: then the other is the only copy.
        let other_torn = !roots.is_empty() && self.roots_damaged(whole) > 0;
        let everything = roots.len() > 1 || superblocks.len() > 1 || other_torn;
        Excused { sectors, everything, must_open: !everything && !in_logs }
    }

    fn roots_damaged(&self, images: &Images) -> u32 {
        let sim = Sim::new(0, TaskOrder::Fifo);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.disk, images.clone());
        let found = sim.block_on(user, async move {
            let options = OpenOptions { nvram: machine.nvram(), ..OpenOptions::default() };
            let device = machine.device(&PhaseProbe::default());
            manylogs::inspect_with(&device, &options).await
        });
        found.map_or(2, |found| found.recovery.roots_damaged)
    }

    /// Opens the damaged volume and reads it, sometimes again after a checkpoint.
    fn look(&self, damaged: Images, excused: &Excused, rng: &mut Rng) -> Result<Found, String> {
        let sim = Sim::new(rng.next_u64(), TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.disk, damaged);
        let runtime = sim.handle(user);
        let opened =
            sim.block_on(user, async move { machine.open(runtime, OpenOptions::default()).await });
        let mut found = Found { wrong: Vec::new(), excused: 0, detected: Some(Detected::Refused) };
        let (volume, report) = match opened {
            Ok(opened) => opened,
            Err(error) if excused.must_open => return Err(format!("refused: {error}")),
            Err(VolumeError::Config(error)) => return Err(format!("believed: {error}")),
            Err(_) => return Ok(found),
        };
        found.detected = reported(&report);
        if let Err(wrong) = self.kept.check(&volume.settings())
            && !excused.everything
        {
            return Err(wrong);
        }
        let capacity = volume.layout().capacity().0;
        if capacity != self.layout.capacity().0 {
            return Err(format!("opened with a capacity of {capacity} sectors"));
        }
        let whole = Extent::new(0, capacity);
        self.read(&sim, user, &volume, whole, excused, &mut found);
        if rng.one_in(4) {
            let worker = volume.clone();
            // The checkpoint may fail. The content must still be right afterwards.
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
            found.detected = found.detected.or(Some(Detected::ReadFailed));
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

/// The damage that an opened volume reports.
fn reported(report: &RecoveryReport) -> Option<Detected> {
    let superblock = report.from_backup_superblock || report.backup_superblock_damaged;
    let told = [
        (superblock, Detected::Superblock),
        (report.roots_damaged > 0, Detected::Root),
        (report.snapshot_damaged, Detected::Snapshot),
        (!report.damage.is_empty(), Detected::LogDamage),
    ];
    told.into_iter().find(|(told, _)| *told).map(|(_, by)| by)
}
