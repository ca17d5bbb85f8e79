//! Tests that the threshold falls while the logs fill faster than a checkpoint can empty them.

use std::rc::Rc;

use crate::common::{config, in_virtual_time, write};
use manylogs::{CheckpointPolicy, LogPlacement, Volume, VolumeConfig, VolumeStats};
use manylogs_block::{BlockDevice, Handle, MemoryDevice, Nanos, Payload, Sectors};
use manylogs_filters::Delay;

/// A request takes 4 ms; full logs of 32 MiB are emptied.
const SERVICE: Nanos = Nanos::from_millis(4);
const DEVICE: Sectors = Sectors(1 << 20);

fn adapting(adaptive: bool) -> VolumeConfig {
    VolumeConfig {
        threshold: Sectors(256),
        record: Sectors(1024),
        log: Sectors(8192),
        placement: LogPlacement::EveryGroup(Sectors(1 << 17)),
        checkpoint: CheckpointPolicy::OnFull,
        adaptive,
        ..config()
    }
}

async fn volume(runtime: &Handle, config: &VolumeConfig) -> Volume {
    let disk = Rc::new(MemoryDevice::new(DEVICE));
    let slow = Rc::new(Delay::new(runtime.clone(), disk, SERVICE));
    Volume::create(runtime.clone(), slow, config).await.unwrap()
}

/// Sends durable writes of 4 KiB and 128 KiB in turn, 32 MiB a second, for this many tenths of a
/// second. Returns the threshold after each tenth, in sectors.
async fn overrun(runtime: &Handle, volume: &Volume, tenths: u64) -> Vec<u64> {
    let mut thresholds = Vec::new();
    for turn in 0..tenths {
        for i in 0..26 {
            let place = (turn * 26 + i) * 2_654_435_761 % 3000;
            for (at, len) in [(place * 256, 256), (place * 256 + 131, 8)] {
                let request = write(at, &Payload::tags(turn << 32 | i, Sectors(len)), true);
                let answer = volume.submit(request);
                runtime.spawn(async move { drop(answer.await.unwrap()) });
            }
            runtime.sleep(Nanos::from_millis(100 / 26)).await;
        }
        thresholds.push(volume.stats().threshold_bytes / 512);
    }
    thresholds
}

fn after_an_overrun(adaptive: bool, check: impl FnOnce(Vec<u64>, VolumeStats) + 'static) {
    in_virtual_time(move |runtime| async move {
        let volume = volume(&runtime, &adapting(adaptive)).await;
        let thresholds = overrun(&runtime, &volume, 40).await;
        check(thresholds, volume.stats());
        runtime.sleep(Nanos::from_secs(5)).await;
        assert_eq!(volume.stats().threshold_bytes, 256 * 512, "it is back when all is quiet");
        volume.close().await.unwrap();
    });
}

#[test]
fn a_fixed_threshold_fills_the_logs() {
    after_an_overrun(false, |thresholds, stats| {
        assert!(thresholds.iter().all(|&threshold| threshold == 256));
        assert!(stats.starved_writes > 0, "{stats:?}");
        assert_eq!(stats.sent_home_writes, 0);
    });
}

#[test]
fn an_adaptive_threshold_falls_and_nothing_waits_for_room() {
    after_an_overrun(true, |thresholds, stats| {
        assert_eq!(thresholds.iter().min(), Some(&64), "{thresholds:?}");
        assert_eq!(stats.starved_writes, 0, "{stats:?}");
        assert!(stats.sent_home_writes > 500, "{stats:?}");
        // All short writes are logged, because they gain most.
        assert!(stats.logged_writes >= 40 * 26, "{stats:?}");
    });
}

#[test]
fn it_is_switched_at_any_time() {
    in_virtual_time(|runtime| async move {
        let volume = volume(&runtime, &adapting(true)).await;
        overrun(&runtime, &volume, 20).await;
        assert!(volume.stats().threshold_bytes < 256 * 512);
        let mut settings = volume.settings();
        settings.assign("adaptive=off").unwrap();
        volume.set(&settings).await.unwrap();
        assert_eq!(volume.stats().threshold_bytes, 256 * 512);
        let before = volume.stats().sent_home_writes;
        overrun(&runtime, &volume, 2).await;
        assert_eq!(volume.stats().sent_home_writes, before);
        volume.close().await.unwrap();
    });
}
