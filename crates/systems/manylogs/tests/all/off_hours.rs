//! A window for checkpoints is a time of day, independent of the server's start.

use std::rc::Rc;

use crate::common::{DEVICE, bytes, config, write};
use manylogs::{CheckpointPolicy, OpenOptions, Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Handle, MemoryDevice, Nanos, Time, TimeOfDay};
use manylogs_sim::{Sim, TaskOrder};

const HOUR_S: u64 = 3600;

/// A volume opened at `hour` o'clock, with a window for checkpoints, and the handle of its clock.
fn opened_at(sim: &Rc<Sim>, hour: u64, from_h: u64, until_h: u64) -> (Handle, Volume) {
    let (node, device) = (sim.node(), Rc::new(MemoryDevice::new(DEVICE)));
    let runtime = sim.handle(node);
    let window = CheckpointPolicy::OffHours { from_s: from_h * HOUR_S, until_s: until_h * HOUR_S };
    let config = VolumeConfig { checkpoint: window, ..config() };
    sim.set_time_of_day(TimeOfDay::from_seconds(hour * HOUR_S));
    let clock = runtime.clone();
    let volume = sim.block_on(node, async move {
        let made = Volume::create(clock.clone(), device.clone(), &config).await.unwrap();
        made.close().await.unwrap();
        Volume::open(clock, device, &OpenOptions::default()).await.unwrap().0
    });
    (runtime, volume)
}

/// Writes a block, and returns when the next checkpoint ends; `None` if none ends within `hours`.
async fn next_checkpoint(runtime: &Handle, volume: &Volume, hours: u64) -> Option<TimeOfDay> {
    let before = volume.stats().checkpoints;
    volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
    let until = runtime.now() + Nanos::from_secs(hours * HOUR_S);
    while runtime.now() < until {
        if volume.stats().checkpoints > before {
            return Some(runtime.time_of_day());
        }
        runtime.sleep(Nanos::from_secs(1)).await;
    }
    None
}

fn world() -> Rc<Sim> {
    Rc::new(Sim::new(1, TaskOrder::Fifo))
}

/// Asserts that a checkpoint ended in the first minutes of an hour.
fn is_shortly_after(found: Option<TimeOfDay>, hour: u64) {
    let seconds = found.map(TimeOfDay::seconds).unwrap_or_default();
    assert!((hour * HOUR_S..hour * HOUR_S + 120).contains(&seconds), "{found:?}, not {hour}:00");
}

#[test]
fn a_volume_opened_at_eight_in_the_evening_waits_for_ten() {
    let sim = world();
    let (runtime, volume) = opened_at(&sim, 20, 22, 6);
    assert!(runtime.now() < Time(1_000_000_000), "the server has only just started");
    let node = sim.node();
    sim.block_on(node, async move {
        is_shortly_after(next_checkpoint(&runtime, &volume, 24).await, 22);
    });
}

#[test]
fn a_window_over_midnight_ends_in_the_morning() {
    let sim = world();
    let (runtime, volume) = opened_at(&sim, 1, 22, 6);
    let node = sim.node();
    sim.block_on(node, async move {
        // Within the window: a checkpoint an hour.
        is_shortly_after(next_checkpoint(&runtime, &volume, 24).await, 2);
        runtime.sleep(Nanos::from_secs(4 * HOUR_S + 600)).await;
        // At ten past six the window is over until the evening.
        is_shortly_after(next_checkpoint(&runtime, &volume, 24).await, 22);
    });
}

#[test]
fn a_clock_that_is_set_counts_at_once() {
    let sim = world();
    let (runtime, volume) = opened_at(&sim, 8, 12, 13);
    let (node, setting) = (sim.node(), Rc::clone(&sim));
    sim.block_on(node, async move {
        assert_eq!(next_checkpoint(&runtime, &volume, 3).await, None, "until 11:00");
        setting.set_time_of_day(TimeOfDay::from_seconds(12 * HOUR_S + 600));
        let found = next_checkpoint(&runtime, &volume, 3).await.unwrap();
        assert!((0..=720).contains(&(found.seconds() - 12 * HOUR_S)), "{found:?}");
    });
}
