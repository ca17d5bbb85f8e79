//! Settings: changing them in use, storing them on the disk, and switching logging off.

use std::rc::Rc;

use crate::common::{DEVICE, bytes, cached, config, in_virtual_time, read, stopping, write};
use manylogs::{OpenOptions, Settings, Volume, VolumeConfig, VolumeError};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, MemoryDevice, Nanos, Request, Rng, Sectors,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

fn with(volume: &Volume, pairs: &str) -> Settings {
    let mut settings = volume.settings();
    pairs.split(' ').for_each(|pair| settings.assign(pair).unwrap());
    settings
}

async fn opened(runtime: &Handle, device: &Rc<impl BlockDevice + 'static>) -> Volume {
    let options = OpenOptions::default();
    Volume::open(runtime.clone(), device.clone(), &options).await.unwrap().0
}

#[test]
fn settings_hold_at_once_and_after_every_opening() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        let wanted = with(&volume, "threshold=4K swap=50% checkpoint=every:10min buffer=0");
        volume.set(&wanted).await.unwrap();
        assert_eq!(volume.settings(), wanted);
        assert_eq!(volume.config().threshold, Sectors(8));
        for _ in 0..2 {
            let volume = opened(&runtime, &device).await;
            assert_eq!(volume.settings(), wanted);
            assert_eq!(volume.config().log, config().log, "the layout stays");
        }
        let given = VolumeConfig { appends: 7, ..config() };
        let options = OpenOptions { config: Some(given), ..OpenOptions::default() };
        let (volume, _) = Volume::open(runtime, device, &options).await.unwrap();
        assert_eq!(volume.settings(), Settings::of(&given), "what is given at open counts");
    });
}

#[test]
fn what_a_volume_is_formatted_with_is_kept() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let given = VolumeConfig { logging: false, idle: Nanos::from_secs(2), ..config() };
        let volume = Volume::create(runtime.clone(), device.clone(), &given).await.unwrap();
        volume.close().await.unwrap();
        assert_eq!(opened(&runtime, &device).await.settings(), Settings::of(&given));
    });
}

#[test]
fn settings_that_make_no_sense_change_nothing() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        let before = volume.settings();
        device.forget();
        for pair in ["threshold=1M", "threshold=0", "record=10M", "swap=0", "appends=65"] {
            let result = volume.set(&with(&volume, pair)).await;
            assert!(matches!(result, Err(VolumeError::Config(_))), "{pair}: {result:?}");
        }
        assert_eq!(volume.settings(), before);
        assert!(device.writes().is_empty());
        volume.close().await.unwrap();
        assert_eq!(volume.set(&before).await, Err(VolumeError::Closed));
        let blank: Rc<dyn BlockDevice> = cached();
        assert_eq!(
            Volume::set_closed(blank, &before, &OpenOptions::default()).await,
            Err(VolumeError::NotAVolume)
        );
    });
}

#[test]
fn changes_wait_for_each_other_and_closing_for_them() {
    let sim = Sim::new(1, TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), DISK, DiskImage::default());
    let (runtime, device) = (sim.handle(user), Rc::new(disk));
    sim.block_on(user, async move {
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        let done = Rc::new(std::cell::Cell::new(0));
        for appends in 5..12 {
            let (setting, wanted) = (volume.clone(), with(&volume, &format!("appends={appends}")));
            let done = Rc::clone(&done);
            runtime.spawn(async move {
                setting.set(&wanted).await.unwrap();
                done.set(done.get() + 1);
            });
        }
        runtime.sleep(Nanos(1)).await;
        assert_eq!(done.get(), 0, "they are under way");
        volume.close().await.unwrap();
        assert_eq!(done.get(), 7);
        let kept = opened(&runtime, &device).await.settings();
        assert_eq!(kept, volume.settings());
        assert_ne!(kept, Settings::of(&config()));
    });
}

#[test]
fn setting_may_stop_after_any_write() {
    for writes in 0..3 {
        for live in [false, true] {
            in_virtual_time(move |runtime| async move {
                let disk = Rc::new(MemoryDevice::new(DEVICE));
                let made = Volume::create(runtime.clone(), disk.clone(), &config()).await.unwrap();
                made.submit(write(70, &bytes(1, 8), true)).await.unwrap();
                let old = made.settings();
                let new = with(&made, "logging=off appends=5");
                let result = if live {
                    made.close().await.unwrap();
                    // The root takes two writes at opening.
                    let stopping = stopping(disk.clone(), writes + 2);
                    let volume = opened(&runtime, &stopping).await;
                    let result = volume.set(&new).await;
                    let expected = if result.is_ok() { new } else { old };
                    assert_eq!(volume.settings(), expected, "in memory");
                    result
                } else {
                    Volume::set_closed(
                        stopping(disk.clone(), writes),
                        &new,
                        &OpenOptions::default(),
                    )
                    .await
                };
                assert_eq!(result.is_ok(), writes >= 2, "{writes} writes: {result:?}");
                let volume = opened(&runtime, &disk).await;
                // The last copy is written first, and it decides.
                assert_eq!(volume.settings(), if writes == 0 { old } else { new });
                let kept = volume.submit(read(70, 8)).await.unwrap();
                assert_eq!(kept.to_bytes(), bytes(1, 8).to_bytes());
                let again = with(&volume, "appends=6 logging=on");
                volume.set(&again).await.unwrap();
                assert_eq!(opened(&runtime, &disk).await.settings(), again);
            });
        }
    }
}

const DISK: CrashDiskConfig = CrashDiskConfig {
    capacity: DEVICE,
    physical_sector: Sectors(1),
    volatile_cache: true,
    native_fua: true,
    latency_max: Nanos::from_millis(1),
};

/// Formats a volume, and changes its settings beside a client. Cuts the power `crash_after` events
/// of the disk later. Returns what the disk holds, and whether the change was done.
fn crashed_while_setting(crash_after: u64, rng: &mut Rng) -> (DiskImage, bool) {
    let sim = Sim::new(rng.next_u64(), TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), DISK, DiskImage::default());
    let (runtime, device) = (sim.handle(user), Rc::new(disk.clone()));
    let volume = sim.block_on(user, async move {
        let volume = Volume::create(runtime, device, &config()).await.unwrap();
        volume.submit(write(70, &bytes(1, 8), true)).await.unwrap();
        volume
    });
    let done = Rc::new(std::cell::Cell::new(false));
    let (setting, finished) = (volume.clone(), Rc::clone(&done));
    sim.handle(user).spawn(async move {
        setting.set(&with(&setting, NEW)).await.unwrap();
        finished.set(true);
    });
    sim.handle(user).spawn(async move {
        for i in 0..20u64 {
            let _ = volume.submit(write(200 + 8 * i, &bytes(2, 8), true)).await;
        }
    });
    let crash_at = disk.events() + crash_after;
    sim.run_until(|| disk.events() >= crash_at);
    let survival = if rng.one_in(3) { Survival::Nothing } else { Survival::Random };
    (disk.after_power_cut(survival, rng), done.get())
}

const NEW: &str = "logging=off appends=5";

#[test]
fn a_crash_leaves_the_old_settings_or_the_new_ones() {
    let mut rng = Rng::new(1);
    let (mut old, mut new) = (0, 0);
    for round in 0..240 {
        let (image, done) = crashed_while_setting(round % 24, &mut rng);
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (drive, user) = (sim.node(), sim.node());
        let disk = Rc::new(CrashDisk::new(sim.handle(drive), DISK, image));
        let runtime = sim.handle(user);
        let found = sim.block_on(user, async move {
            let volume = opened(&runtime, &disk).await;
            let kept = volume.submit(read(70, 8)).await.unwrap();
            assert_eq!(kept.to_bytes(), bytes(1, 8).to_bytes());
            volume.settings()
        });
        let mut wanted = Settings::of(&config());
        NEW.split(' ').for_each(|pair| wanted.assign(pair).unwrap());
        let is_new = found == wanted;
        assert!(is_new || found == Settings::of(&config()), "neither: {found}");
        assert!(is_new || !done, "a change that was done is lost");
        old += u32::from(!is_new);
        new += u32::from(is_new);
    }
    assert!(old > 20 && new > 20, "{old} old, {new} new");
}

#[test]
fn without_logging_small_writes_go_home() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(40, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(60, &bytes(2, 8), false)).await.unwrap();
        volume.set(&with(&volume, "logging=off")).await.unwrap();
        assert_eq!(volume.table().len(), 2, "what is logged stays logged");
        volume.submit(write(42, &bytes(3, 2), true)).await.unwrap();
        let read_back = |start, len| {
            let volume = volume.clone();
            async move { volume.submit(read(start, len)).await.unwrap().to_bytes().unwrap() }
        };
        let mut expected = bytes(1, 8).to_bytes().unwrap().to_vec();
        expected[1024..2048].copy_from_slice(&bytes(3, 2).to_bytes().unwrap());
        assert_eq!(read_back(40, 8).await, expected);
        assert_eq!(read_back(60, 8).await, bytes(2, 8).to_bytes().unwrap());
        volume.checkpoint().await.unwrap();
        let logged = volume.stats().logged_writes;
        device.forget();
        let hint = Hint::DurabilityOnly;
        let (extent, payload) = (Extent::new(600, 8), bytes(6, 8));
        volume.submit(Request::Write { extent, payload, fua: true, hint }).await.unwrap();
        for (start, len, fua) in [(40, 8, true), (500, 1, false), (510, 300, true)] {
            volume.submit(write(start, &bytes(7, len), fua)).await.unwrap();
        }
        volume.submit(Request::Flush).await.unwrap();
        assert_eq!(volume.stats().logged_writes, logged, "nothing is appended any more");
        assert!(volume.table().is_empty());
        let regions = volume.layout().regions();
        let writes = device.writes();
        assert!(!writes.iter().any(|write| regions.iter().any(|log| log.overlaps(*write))));
        assert_eq!(writes.len(), 4);
        volume.submit(Request::Discard { extent: Extent::new(500, 1), fua: false }).await.unwrap();
        assert_eq!(volume.stats().logged_writes, logged + 1, "discards are entries as ever");
        volume.set(&with(&volume, "logging=on")).await.unwrap();
        volume.submit(write(40, &bytes(9, 8), true)).await.unwrap();
        assert_eq!(volume.table().len(), 2);
        let volume = opened(&runtime, &device).await;
        let found = volume.submit(read(40, 8)).await.unwrap();
        assert_eq!(found.to_bytes(), bytes(9, 8).to_bytes());
    });
}

#[test]
fn without_logging_parts_of_physical_sectors_are_still_logged() {
    let disk = CrashDiskConfig { physical_sector: Sectors(8), ..DISK };
    let sim = Sim::new(1, TaskOrder::Fifo);
    let (drive, user) = (sim.node(), sim.node());
    let disk = Rc::new(CrashDisk::new(sim.handle(drive), disk, DiskImage::default()));
    let runtime = sim.handle(user);
    sim.block_on(user, async move {
        let given = VolumeConfig { logging: false, ..config() };
        let volume = Volume::create(runtime.clone(), disk.clone(), &given).await.unwrap();
        let writes = [(0, 8), (17, 3), (30, 2), (39, 2), (45, 30), (80, 16)];
        for (start, len) in writes {
            volume.submit(write(start, &bytes(5, len), true)).await.unwrap();
        }
        let logged: Vec<_> = volume.table().iter().map(|mapped| mapped.extent).collect();
        let edges = [(17, 3), (30, 2), (39, 1), (40, 1), (45, 3), (72, 3)];
        assert_eq!(logged, edges.map(|(start, len)| Extent::new(start, len)));
        assert_eq!(volume.stats().bypassed_writes, 3);
        let volume = opened(&runtime, &disk).await;
        for (start, len) in writes {
            let found = volume.submit(read(start, len)).await.unwrap();
            assert_eq!(found.to_bytes(), bytes(5, len).to_bytes(), "{start}+{len}");
        }
    });
}
