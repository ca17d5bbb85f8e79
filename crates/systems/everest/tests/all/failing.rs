//! A store on a device that fails requests.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, RequestKind, Sectors,
};
use manylogs_everest::{CircularStore, StoreOptions, Version};
use manylogs_filters::{Faults, Rule};
use manylogs_logstore::Space;
use manylogs_sim::{Sim, TaskOrder};

const READS: &[RequestKind] = &[RequestKind::Read];
const WRITES: &[RequestKind] = &[RequestKind::Write];
const ALL: &[RequestKind] = &[RequestKind::Read, RequestKind::Write, RequestKind::Flush];
const LOG: Sectors = Sectors(128);
const LOGS: u64 = 9;
/// The first log of the device: see `docs/format.md`.
const FIRST_LOG: Extent = Extent { start: manylogs_block::Lba(64), len: LOG };
const BASE: Space = Space(1);

type Device = Rc<Faults<MemoryDevice>>;

fn in_virtual_time<F: Future<Output = ()> + 'static>(test: impl FnOnce(Handle, Device) -> F) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node), device()));
}

fn device() -> Device {
    Rc::new(Faults::new(MemoryDevice::new(Sectors(64 + LOGS * LOG.0 + 16))))
}

fn devices(device: &Device) -> Vec<Rc<dyn BlockDevice>> {
    vec![Rc::clone(device) as Rc<dyn BlockDevice>]
}

async fn made(runtime: &Handle, device: &Device) -> CircularStore {
    let options = StoreOptions { log: LOG, table: Sectors(0) };
    CircularStore::create(runtime.clone(), devices(device), options).await.unwrap()
}

/// Writes 60 versions of one block and deletes all but the last, so that the ring is filled anew.
async fn wrap(store: &CircularStore, from: u64) {
    for version in from..from + 60 {
        let content = Payload::tags(version * 100, Sectors(16));
        let extent = Extent::new(0, 16);
        let written = store.write(BASE, extent, Version(version), Some(content));
        written.await.unwrap();
        if version > from {
            store.delete(BASE, extent, Version(version - 1)).await.unwrap();
        }
    }
}

async fn newest(store: &CircularStore) -> Payload {
    let found = store.read(BASE, Extent::new(0, 16)).await.unwrap();
    found.into_iter().next().unwrap().content.unwrap()
}

/// Lets a log fail, and checks that its writes are in another log. Returns how many writes to it
/// failed, over two openings: one if no opening uses it again.
fn a_failed_log_stays_out_of_use() -> u64 {
    let failed = Rc::new(std::cell::Cell::new(0));
    let seen = Rc::clone(&failed);
    in_virtual_time(|runtime, device| async move {
        let store = made(&runtime, &device).await;
        let bad = Rule::new(WRITES, |extent| IoError::Medium { extent }).within(FIRST_LOG);
        device.add(bad);
        wrap(&store, 1).await;
        assert_eq!(device.failed(), 1, "one write found out");
        runtime.sleep(Nanos::from_secs(1)).await;
        store.close().await.unwrap();
        let store = CircularStore::open(runtime.clone(), devices(&device)).await.unwrap();
        assert_eq!(newest(&store).await, Payload::tags(6000, Sectors(16)));
        wrap(&store, 100).await;
        store.close().await.unwrap();
        seen.set(device.failed());
    });
    failed.get()
}

#[test]
fn the_root_names_a_failed_log() {
    assert_eq!(a_failed_log_stays_out_of_use(), 1);
}

#[cfg(feature = "plant")]
#[test]
fn a_planted_bug_that_forgets_failed_logs_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::RetiredForgotten));
    let failed = a_failed_log_stays_out_of_use();
    plant(None);
    assert!(failed > 1, "the log was tried again");
}

#[test]
fn an_opening_waits_for_a_device_that_fails_for_a_while() {
    in_virtual_time(|runtime, device| async move {
        let store = made(&runtime, &device).await;
        wrap(&store, 1).await;
        store.close().await.unwrap();
        device.add(Rule::new(READS, |extent| IoError::Transient { extent }).times(3));
        let store = CircularStore::open(runtime.clone(), devices(&device)).await.unwrap();
        assert_eq!(device.failed(), 3);
        assert_eq!(newest(&store).await, Payload::tags(6000, Sectors(16)));
        store.close().await.unwrap();
    });
}

#[test]
fn a_store_whose_logs_have_failed_refuses_writes_and_nobody_waits() {
    in_virtual_time(|runtime, device| async move {
        let store = made(&runtime, &device).await;
        let logs = Extent::new(64, LOGS * LOG.0);
        wrap(&store, 1).await;
        device.add(Rule::new(WRITES, |extent| IoError::Medium { extent }).within(logs));
        let mut refused = None;
        for version in 200..240 {
            let content = Payload::tags(7, Sectors(16));
            let extent = Extent::new(32, 16);
            let written = store.write(BASE, extent, Version(version), Some(content)).await;
            refused = written.err().or(refused);
        }
        assert!(matches!(refused, Some(IoError::ReadOnly { .. })), "{refused:?}");
        device.clear();
        assert_eq!(newest(&store).await, Payload::tags(6000, Sectors(16)), "it is still read");
    });
}

/// Either device may be lost: the roots are on both.
#[test]
fn a_store_goes_on_without_one_of_its_devices_and_finds_all_when_it_is_back() {
    for lost in 0..2 {
        in_virtual_time(move |runtime, first| async move {
            let both = [first, device()];
            let devices = || both.iter().flat_map(devices).collect::<Vec<_>>();
            let options = StoreOptions { log: LOG, table: Sectors(0) };
            let store = CircularStore::create(runtime.clone(), devices(), options).await.unwrap();
            wrap(&store, 1).await;
            both[lost].add(Rule::new(ALL, |_| IoError::Gone));
            // The ring comes by the device that is gone, and passes it.
            wrap(&store, 100).await;
            assert!(both[lost].failed() > 0, "somebody asked device {lost}");
            assert_eq!(newest(&store).await, Payload::tags(15_900, Sectors(16)));
            store.close().await.unwrap();
            both[lost].clear();
            let store = CircularStore::open(runtime.clone(), devices()).await.unwrap();
            assert_eq!(newest(&store).await, Payload::tags(15_900, Sectors(16)));
            wrap(&store, 200).await;
            assert_eq!(newest(&store).await, Payload::tags(25_900, Sectors(16)));
            store.close().await.unwrap();
        });
    }
}
