//! Recovers a crashed image in a world of its own and judges the result.

use std::rc::Rc;

use manylogs::{MappedExtent, OpenOptions, RecoveryReport, Volume};
use manylogs_block::{BlockDevice, Extent, Payload, Request, Rng};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Oracle, Order, Sim, Survival};

/// What a recovery found.
pub(crate) struct Recovered {
    pub(crate) content: Payload,
    pub(crate) table: Vec<MappedExtent>,
    pub(crate) from_snapshot: bool,
}

/// Opens the volume in `image` and reads all of it.
pub(crate) fn recover(
    image: DiskImage,
    config: CrashDiskConfig,
    seed: u64,
    ignore_snapshot: bool,
) -> Result<Recovered, String> {
    let sim = Sim::new(seed, Order::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), config, image);
    let runtime = sim.handle(user);
    sim.block_on(user, async move {
        let options = OpenOptions { ignore_snapshot, ..OpenOptions::default() };
        let (volume, report) = open(runtime, disk, options).await?;
        // At once: the engine may begin a checkpoint as soon as this task waits.
        let table = volume.table();
        let extent = Extent::new(0, volume.layout().capacity().0);
        let content = volume.submit(Request::Read { extent }).await;
        let content = content.map_err(|error| format!("read after recovery: {error}"))?;
        Ok(Recovered { content, table, from_snapshot: report.from_snapshot })
    })
}

async fn open(
    runtime: manylogs_block::Handle,
    disk: CrashDisk,
    options: OpenOptions,
) -> Result<(Volume, RecoveryReport), String> {
    let opened = Volume::open(runtime, Rc::new(disk), &options).await;
    opened.map_err(|error| format!("recovery failed: {error}"))
}

/// Starts a recovery and cuts the power somewhere within it.
pub(crate) fn crash_in_recovery(
    image: DiskImage,
    config: CrashDiskConfig,
    rng: &mut Rng,
) -> DiskImage {
    let sim = Sim::new(rng.next_u64(), Order::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), config, image);
    let runtime = sim.handle(user);
    let device = disk.clone();
    runtime.clone().spawn(async move {
        let Ok((volume, _)) = open(runtime, device, OpenOptions::default()).await else { return };
        // A checkpoint follows at once, so that the crash may fall into that too.
        let _ = volume.checkpoint().await;
    });
    let crash_at = 1 + rng.below(60);
    sim.run_until(|| disk.events() >= crash_at);
    if rng.one_in(3) {
        return disk.after_kill(rng);
    }
    disk.after_power_cut(survival(rng), rng)
}

pub(crate) fn survival(rng: &mut Rng) -> Survival {
    match rng.below(4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Random,
    }
}

/// Recovers `image` both ways and checks every sector and that both tables are the same; true if
/// a snapshot was used.
pub(crate) fn judge(
    image: &DiskImage,
    config: CrashDiskConfig,
    oracle: &Oracle,
    seed: u64,
) -> Result<bool, String> {
    let fast = recover(image.clone(), config, seed, false)?;
    let alone = recover(image.clone(), config, seed, true)?;
    let content_is_right = |content: &Payload, way: &str| {
        oracle.clone().check_recovered(content).map_err(|wrong| format!("{way}: {wrong}"))
    };
    content_is_right(&alone.content, "logs alone")?;
    content_is_right(&fast.content, "snapshot and logs")?;
    if fast.table != alone.table {
        let differing = fast.table.iter().zip(&alone.table).find(|(a, b)| a != b);
        return Err(format!(
            "table(snapshot + logs) has {} extents, table(logs alone) {}; first difference \
             {differing:?}",
            fast.table.len(),
            alone.table.len()
        ));
    }
    Ok(fast.from_snapshot)
}
