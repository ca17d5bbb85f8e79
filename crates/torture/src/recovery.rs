//! Recovers a crashed image in a world of its own.

use std::rc::Rc;

use manylogs::{MappedExtent, OpenOptions, Phase, PhaseProbe, RecoveryReport, Volume, VolumeError};
use manylogs_block::{Handle, Payload, Rng};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Oracle, Order, Sim, Survival};

use crate::clients::read_all;
use crate::device::{PhasedDisk, last_phase};

/// What the recoveries of one image found.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The whole volume, from the snapshot and the logs.
    fast: Payload,
    /// From the logs alone, if a snapshot was used.
    alone: Option<Payload>,
}

struct Opened {
    content: Payload,
    table: Vec<MappedExtent>,
    from_snapshot: bool,
}

impl Recovered {
    /// Recovers `image`: with its snapshot, and if it has one, also from the logs alone. `None` if
    /// it holds no volume. `lossy`: the device once failed to read, so something may be lost.
    ///
    /// # Errors
    /// If it cannot be opened or read, or if the two tables differ.
    pub(crate) fn of(
        image: &DiskImage,
        config: CrashDiskConfig,
        seed: u64,
        lossy: bool,
    ) -> Result<Option<Self>, String> {
        let Some(fast) = open_and_read(image.clone(), config, seed, (false, lossy))? else {
            return Ok(None);
        };
        if !fast.from_snapshot {
            // There is nothing to ignore: the second recovery would be the same.
            return Ok(Some(Self { fast: fast.content, alone: None }));
        }
        let alone = open_and_read(image.clone(), config, seed, (true, lossy))?;
        let alone = alone.ok_or("without its snapshot the volume does not open")?;
        if fast.table != alone.table {
            let differing = fast.table.iter().zip(&alone.table).find(|(a, b)| a != b);
            return Err(format!(
                "table(snapshot + logs) has {} extents, table(logs alone) {}; first difference \
                 {differing:?}",
                fast.table.len(),
                alone.table.len()
            ));
        }
        Ok(Some(Self { fast: fast.content, alone: Some(alone.content) }))
    }

    pub(crate) const fn used_snapshot(&self) -> bool {
        self.alone.is_some()
    }

    /// Checks every sector, both ways.
    pub(crate) fn check(&self, oracle: &Oracle) -> Result<(), String> {
        let fast = oracle.check_crashed(&self.fast);
        fast.map_err(|wrong| format!("after recovery: {wrong}"))?;
        match &self.alone {
            // Most often they are the same, piece by piece.
            Some(alone) if *alone != self.fast => oracle
                .check_crashed(alone)
                .map_err(|wrong| format!("after recovery from the logs alone: {wrong}")),
            _ => Ok(()),
        }
    }

    /// Whether every sector reads as zeroes.
    pub(crate) fn is_blank(&self) -> bool {
        let zeroes = |content: &Payload| *content == Payload::zeroes(content.len());
        zeroes(&self.fast) && self.alone.as_ref().is_none_or(zeroes)
    }
}

fn open_and_read(
    image: DiskImage,
    config: CrashDiskConfig,
    seed: u64,
    (ignore_snapshot, lossy): (bool, bool),
) -> Result<Option<Opened>, String> {
    let sim = Sim::new(seed, Order::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), config, image);
    let runtime = sim.handle(user);
    sim.block_on(user, async move {
        let options = OpenOptions { ignore_snapshot, ..OpenOptions::default() };
        let (volume, report) = match Volume::open(runtime, Rc::new(disk), &options).await {
            Ok(opened) => opened,
            Err(VolumeError::NotAVolume | VolumeError::Superblock) => return Ok(None),
            Err(error) => return Err(format!("recovery failed: {error}")),
        };
        // At once: the engine may begin a checkpoint as soon as this task waits.
        let table = volume.table();
        let content = read_all(&volume, lossy).await;
        let content = content.map_err(|error| format!("read after recovery: {error}"))?;
        Ok(Some(Opened { content, table, from_snapshot: report.from_snapshot }))
    })
}

/// Opens the volume on `disk`, telling `probe` what it writes for.
pub(crate) async fn open_probed(
    runtime: Handle,
    disk: CrashDisk,
    options: OpenOptions,
) -> Result<(Volume, RecoveryReport), VolumeError> {
    let probe = PhaseProbe::default();
    let options = OpenOptions { probe: probe.clone(), ..options };
    Volume::open(runtime, Rc::new(PhasedDisk { disk, probe }), &options).await
}

/// Starts a recovery and crashes somewhere within it, or within the checkpoint behind it.
pub(crate) fn crash_in_recovery(
    image: DiskImage,
    config: CrashDiskConfig,
    rng: &mut Rng,
) -> (DiskImage, Phase) {
    let sim = Sim::new(rng.next_u64(), Order::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), config, image);
    let runtime = sim.handle(user);
    let device = disk.clone();
    runtime.clone().spawn(async move {
        let opened = open_probed(runtime, device, OpenOptions::default()).await;
        let Ok((volume, _)) = opened else { return };
        let _ = volume.checkpoint().await;
    });
    let crash_at = 1 + rng.below(60);
    sim.run_until(|| disk.events() >= crash_at);
    let phase = last_phase(&disk);
    (crash(&disk, rng), phase)
}

/// Kills the disk's user or cuts the power, now.
pub(crate) fn crash(disk: &CrashDisk, rng: &mut Rng) -> DiskImage {
    if rng.one_in(2) {
        return disk.after_kill(rng);
    }
    let survival = match rng.below(4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Random,
    };
    disk.after_power_cut(survival, rng)
}
