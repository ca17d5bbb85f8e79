//! A crash while a volume is drained.

use std::rc::Rc;

use manylogs::{DrainOptions, OpenOptions, Volume, VolumeConfig};
use manylogs_block::{BlockDevice, MemoryDevice, Nanos, Rng, Sectors};
use manylogs_filters::Delay;
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

use crate::common::{DEVICE, bytes, config, in_virtual_time, read, write};

const DISK: CrashDiskConfig = CrashDiskConfig {
    capacity: DEVICE,
    physical_sector: Sectors(1),
    volatile_cache: true,
    native_fua: true,
    latency_max: Nanos::from_millis(1),
};

/// Logs a durable write, writes over it at home without durability, and drains. Returns what the
/// disk holds after a power cut `crash_after` events later.
fn crashed_while_draining(crash_after: u64, rng: &mut Rng) -> DiskImage {
    let sim = Sim::new(rng.next_u64(), TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), DISK, DiskImage::default());
    let (runtime, device) = (sim.handle(user), Rc::new(disk.clone()));
    let volume = sim.block_on(user, async move {
        let volume = Volume::create(runtime, device, &config()).await.unwrap();
        volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(60, &bytes(2, 40), false)).await.unwrap();
        volume
    });
    sim.handle(user).spawn(async move {
        volume.drain(&DrainOptions::default()).await.unwrap();
    });
    let crash_at = disk.events() + crash_after;
    sim.run_until(|| disk.events() >= crash_at);
    disk.after_power_cut(Survival::Nothing, rng)
}

#[test]
pub(crate) fn a_drain_forgets_nothing_before_what_replaced_it_is_durable() {
    let mut rng = Rng::new(7);
    for crash_after in 0..16 {
        let image = crashed_while_draining(crash_after, &mut rng);
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (drive, user) = (sim.node(), sim.node());
        let disk: Rc<dyn BlockDevice> = Rc::new(CrashDisk::new(sim.handle(drive), DISK, image));
        let runtime = sim.handle(user);
        let found = sim.block_on(user, async move {
            let (volume, _) = Volume::open(runtime, disk, &OpenOptions::default()).await.unwrap();
            volume.submit(read(70, 8)).await.unwrap().to_bytes()
        });
        let newer = bytes(2, 40).slice(Sectors(10), Sectors(8));
        let kept = found == bytes(1, 8).to_bytes() || found == newer.to_bytes();
        assert!(kept, "neither version is there after a power cut {crash_after} events later");
    }
}

#[test]
fn no_snapshot_follows_the_last_one() {
    for wipe in [true, false] {
        in_virtual_time(async move |runtime| {
            let medium = Rc::new(MemoryDevice::new(DEVICE));
            let slow = Delay::new(runtime.clone(), Rc::clone(&medium), Nanos::from_millis(4));
            let config = VolumeConfig { snapshot: Nanos::from_millis(1), ..config() };
            let volume = Volume::create(runtime.clone(), Rc::new(slow), &config).await.unwrap();
            for index in 0..20 {
                volume.submit(write(index * 8, &bytes(1, 4), true)).await.unwrap();
            }
            if wipe {
                volume.drain(&DrainOptions { wipe }).await.unwrap();
            } else {
                volume.close().await.unwrap();
            }
            runtime.sleep(Nanos::from_secs(1)).await;
            let opened = Volume::open(runtime, medium, &OpenOptions::default()).await;
            let (_, report) = opened.unwrap();
            assert!(report.was_closed, "a snapshot said that the volume is open");
        });
    }
}
