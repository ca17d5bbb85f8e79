//! Tests that sequences are set aside in time, and that openings do not use them up.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, MemoryDevice, Nanos, Payload, Request, Sectors};
use manylogs_logstore::{Incarnation, SequenceLimit};
#[cfg(feature = "plant")]
use manylogs_plant::{self as plant, Bug};
use manylogs_sim::{Sim, TaskOrder};

use manylogs_engine::write_root;
use manylogs_logstore::ondisk::root::Root;

use crate::lifecycle::structures::read_structures;
use crate::{DrainOptions, LogPlacement, OpenOptions, RecoveryReport, Volume, VolumeConfig};
use crate::{VolumeError, inspect};
use manylogs_engine::{Member, Phase, PhaseProbe};
use manylogs_logstore::store::{LAST, LOW};

fn config() -> VolumeConfig {
    VolumeConfig {
        threshold: Sectors(16),
        record: Sectors(64),
        log: Sectors(400),
        placement: LogPlacement::EveryGroup(Sectors(4000)),
        ..VolumeConfig::default()
    }
}

fn in_virtual_time<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Handle, Rc<dyn BlockDevice>) -> F,
) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let device = Rc::new(MemoryDevice::new(Sectors(40_000)));
    sim.block_on(node, test(sim.handle(node), device));
}

async fn put(volume: &Volume, at: u64, tag: u64) {
    let payload = Payload::tags(tag, Sectors(8));
    volume.submit(Request::write_fua(Extent::new(at, 8), payload)).await.unwrap();
}

async fn open(runtime: &Handle, device: &Rc<dyn BlockDevice>, to_drain: bool) -> OpenedResult {
    let options = OpenOptions { to_drain, ..OpenOptions::default() };
    Volume::open(runtime.clone(), Rc::clone(device), &options).await
}

type OpenedResult = Result<(Volume, RecoveryReport), VolumeError>;

/// Changes both roots of a volume that is not open.
async fn change_root(device: &Rc<dyn BlockDevice>, change: impl Fn(&mut Root)) {
    let found = read_structures(device, None, &mut RecoveryReport::default()).await.unwrap();
    let mut root = found.root;
    change(&mut root);
    let below = Member::new(Rc::clone(device), PhaseProbe::default());
    let (volume, layout) = (found.superblock.volume, &found.superblock.layout);
    for slot in 0..2 {
        write_root(&below, Phase::Open, &root, volume, layout.roots()[slot]).await.unwrap();
    }
}

fn sequences_are_set_aside_in_time() {
    in_virtual_time(|runtime, device| async move {
        let made = Volume::create(runtime.clone(), Rc::clone(&device), &config()).await;
        let volume = made.unwrap();
        let limit = volume.inner().engine.state.borrow().store.root().sequence_limit;
        // Pretends that half of the sequences have been used.
        let used = limit.0 - LOW - 3;
        volume.inner().engine.state.borrow_mut().store.number_from(used);
        for i in 0..8 {
            put(&volume, 100 * i, 1).await;
        }
        runtime.sleep(Nanos::from_secs(1)).await;
        let now = volume.inner().engine.state.borrow().store.root().sequence_limit;
        assert_eq!(Some(now), limit.extended());
        // Pretends that all former sequences have been used: the next write must outrank them.
        volume.inner().engine.state.borrow_mut().store.number_from(limit.0 + 5);
        put(&volume, 0, 2).await;
        drop(volume);
        let (volume, _) = open(&runtime, &device, false).await.unwrap();
        let found = volume.submit(Request::Read { extent: Extent::new(0, 8) }).await.unwrap();
        assert_eq!(found, Payload::tags(2, Sectors(8)));
        let first = volume.inner().engine.state.borrow().store.next_data();
        assert_eq!(first.0, now.0, "no sequence is used twice");
    });
}

#[test]
fn a_volume_in_use_sets_sequences_aside_in_time() {
    sequences_are_set_aside_in_time();
}

#[cfg(feature = "plant")]
#[test]
fn that_they_are_not_set_aside_is_noticed() {
    plant::plant(Some(Bug::SequencesNotSetAside));
    let noticed = std::panic::catch_unwind(sequences_are_set_aside_in_time).is_err();
    plant::plant(None);
    assert!(noticed);
}

#[test]
fn the_last_sequences_stop_writes_and_lose_nothing() {
    in_virtual_time(|runtime, device| async move {
        let made = Volume::create(runtime.clone(), Rc::clone(&device), &config()).await;
        let volume = made.unwrap();
        put(&volume, 0, 1).await;
        let limit = volume.inner().engine.state.borrow().store.root().sequence_limit;
        volume.inner().engine.state.borrow_mut().store.number_from(limit.0 - LAST);
        let payload = Payload::tags(2, Sectors(8));
        let refused = volume.submit(Request::write_fua(Extent::new(8, 8), payload)).await;
        assert!(refused.is_err(), "{refused:?}");
        let (volume, _) = open(&runtime, &device, false).await.unwrap();
        put(&volume, 8, 3).await;
    });
}

#[test]
fn two_million_openings_are_no_limit() {
    in_virtual_time(|runtime, device| async move {
        let made = Volume::create(runtime.clone(), Rc::clone(&device), &config()).await;
        put(&made.unwrap(), 0, 1).await;
        change_root(&device, |root| {
            root.incarnation = Incarnation(2_000_000);
            root.sequence_limit.0 += 2_000_000 * SequenceLimit::STEP;
        })
        .await;
        for tag in 2..5 {
            let (volume, _) = open(&runtime, &device, false).await.unwrap();
            put(&volume, 0, tag).await;
        }
        let (volume, _) = open(&runtime, &device, false).await.unwrap();
        let found = volume.submit(Request::Read { extent: Extent::new(0, 8) }).await.unwrap();
        assert_eq!(found, Payload::tags(4, Sectors(8)));
        assert_eq!(inspect(&device, true).await.unwrap().incarnation, 2_000_004);
        volume.drain(&DrainOptions::default()).await.unwrap();
    });
}

#[test]
fn a_worn_volume_can_be_drained_and_counts_anew_under_another_id() {
    in_virtual_time(|runtime, device| async move {
        let made = Volume::create(runtime.clone(), Rc::clone(&device), &config()).await;
        put(&made.unwrap(), 0, 1).await;
        let last = SequenceLimit::LAST_STEPS * SequenceLimit::STEP;
        change_root(&device, |root| root.sequence_limit.0 = u64::MAX - last).await;
        assert_eq!(open(&runtime, &device, false).await.err(), Some(VolumeError::Worn));
        let (volume, _) = open(&runtime, &device, true).await.unwrap();
        volume.drain(&DrainOptions::default()).await.unwrap();
        Volume::renew_id(runtime.clone(), Rc::clone(&device)).await.unwrap();
        let (volume, _) = open(&runtime, &device, false).await.unwrap();
        let found = volume.submit(Request::Read { extent: Extent::new(0, 8) }).await.unwrap();
        assert_eq!(found, Payload::tags(1, Sectors(8)));
        put(&volume, 8, 2).await;
    });
}
