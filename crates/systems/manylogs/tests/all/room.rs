//! Writes that wait for room in the logs are woken by every event that makes room.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{
    DEVICE, ReadFault, RigOrders, bytes, cached, config, in_virtual_time, low_byte, read, write,
};
use manylogs::{CreateOptions, LogPlacement, Volume, VolumeConfig};
use manylogs_block::{
    BlockDevice, Extent, IoError, MemoryDevice, MemoryNvram, Nanos, Nvram, RequestKind, Sectors,
};
use manylogs_filters::Stop;
use manylogs_sim::{Sim, TaskOrder};

/// Number of executor steps after which an unanswered request will never be answered.
const STEPS: u32 = 200_000;

#[test]
fn a_read_that_held_the_only_log_makes_room_when_it_ends() {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let device = Rc::new(Stop::new(MemoryDevice::new(DEVICE)));
    let parameters = VolumeConfig { placement: LogPlacement::Single(0.5), ..config() };
    let below: Rc<dyn BlockDevice> = device.clone();
    let volume =
        sim.block_on(node, async move { Volume::create(runtime, below, &parameters).await });
    let volume = volume.unwrap();
    let first = volume.clone();
    sim.block_on(node, async move { first.submit(write(0, &bytes(1, 8), true)).await }).unwrap();
    // The read pins the log until the device answers.
    device.hold(&[RequestKind::Read]);
    let pinning = volume.submit(read(0, 8));
    device.hold(&[]);
    // Writes to the same blocks again and again, which cannot go home instead.
    let (answered, writes) = (Rc::new(Cell::new(0)), 200);
    for turn in 0..writes {
        let (done, count) = (
            volume.submit(write(0, &bytes(crate::common::low_byte(turn), 8), true)),
            Rc::clone(&answered),
        );
        sim.handle(node).spawn(async move {
            done.await.unwrap();
            count.set(count.get() + 1);
        });
    }
    // Shorter than the time after which waiting writes are refused.
    let until = sim.now() + Nanos::from_secs(10);
    let mut steps = 0..STEPS;
    sim.run_until(|| sim.now() > until || steps.next().is_none());
    assert_eq!(device.held(), 1, "the read reached the device");
    assert!(answered.get() < writes, "the log is full, and pinned");
    sim.block_on(node, async move { device.release().await });
    let mut steps = 0..STEPS;
    sim.run_until(|| answered.get() == writes || steps.next().is_none());
    assert_eq!(answered.get(), writes);
    sim.block_on(node, pinning).unwrap();
}

fn a_large_write_that_fails_gives_its_room_back() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = Volume::create(runtime, device.clone(), &config()).await.unwrap();
        for turn in 0..50 {
            // Logged versions, so that the large write needs a supersede entry.
            volume.submit(write(64, &bytes(turn, 8), true)).await.unwrap();
            let home = volume.layout().home(Extent::new(100, 1)).next().unwrap();
            device.fail_writes(home);
            volume.submit(write(0, &bytes(turn, 128), turn % 2 == 0)).await.unwrap_err();
            device.faults().clear();
            assert_eq!(volume.backlog().reserved_sectors, 0, "after write {turn}");
        }
    });
}

#[test]
fn failed_large_writes_cost_no_room() {
    a_large_write_that_fails_gives_its_room_back();
}

/// Two logs hold many short writes, and the medium loses all of them. If each lost block needed a
/// record of its own, neither the logs nor the table apart would have room for all.
fn lost_blocks_are_kept_in_little_room(nvram: Option<Rc<dyn Nvram>>) {
    const BLOCKS: u64 = 78;
    in_virtual_time(|runtime| async move {
        let device = cached();
        let placement = LogPlacement::EveryGroup(Sectors(DEVICE.0 / 2));
        let parameters = VolumeConfig { placement, ..config() };
        let options = CreateOptions { nvram, ..CreateOptions::default() };
        let created = Volume::create_with(runtime.clone(), device.clone(), &parameters, &options);
        let volume = created.await.unwrap();
        for i in 0..BLOCKS {
            volume.submit(write(100 * i, &bytes(low_byte(i), 8), true)).await.unwrap();
        }
        for region in volume.layout().regions() {
            device.fail_reads(*region, ReadFault::Medium);
        }
        assert_eq!(volume.checkpoint().await.unwrap().unread_extents, BLOCKS);
        // The volume makes passes on its own, until the medium has reported the errors for a
        // minute.
        runtime.sleep(Nanos::from_secs(130)).await;
        let stats = volume.stats();
        assert_eq!((stats.lost_extents, stats.failed_checkpoints), (BLOCKS, 0));
        // Every pass keeps the lost blocks.
        for turn in 0..10 {
            volume.submit(write(64, &bytes(turn, 8), true)).await.unwrap();
            assert_eq!(volume.checkpoint().await.unwrap().lost_extents, 0);
        }
        for i in 0..BLOCKS {
            let found = volume.submit(read(100 * i, 8)).await;
            assert!(matches!(found, Err(IoError::Checksum { .. })), "{found:?}");
        }
        for i in 0..BLOCKS {
            volume.submit(write(100 * i, &bytes(7, 8), true)).await.unwrap();
        }
        assert_eq!(volume.submit(read(100, 8)).await.unwrap().to_bytes(), bytes(7, 8).to_bytes());
    });
}

fn lost_blocks_are_kept_in_a_log() {
    lost_blocks_are_kept_in_little_room(None);
}

fn lost_blocks_are_kept_in_a_table_apart() {
    lost_blocks_are_kept_in_little_room(Some(Rc::new(MemoryNvram::new(20 << 10))));
}

#[test]
fn many_lost_blocks_hinder_no_pass() {
    lost_blocks_are_kept_in_a_log();
    lost_blocks_are_kept_in_a_table_apart();
}

#[cfg(feature = "plant")]
#[test]
fn that_what_is_renewed_waits_apart_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::RenewedNotGathered));
    let noticed = [lost_blocks_are_kept_in_a_log, lost_blocks_are_kept_in_a_table_apart]
        .map(|test| std::panic::catch_unwind(test).is_err());
    plant(None);
    assert_eq!(noticed, [true, true]);
}

#[cfg(feature = "plant")]
#[test]
fn that_failed_writes_keep_room_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::FailedWriteKeepsRoom));
    let noticed = std::panic::catch_unwind(a_large_write_that_fails_gives_its_room_back).is_err();
    plant(None);
    assert!(noticed);
}
