//! A store that is full: cleaning ends when there is nothing to gain, and deletions find room.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, RequestKind,
    Rng, Sectors,
};
use manylogs_everest::{CircularStore, StoreOptions, Version};
use manylogs_filters::{Delay, Reported, Trace};
use manylogs_logstore::Space;
use manylogs_sim::{Sim, TaskOrder};

const LOGS: u64 = 9;
const BASE: Space = Space(1);
/// Longer than any deletion takes that finds room.
const LONG: Nanos = Nanos::from_millis(20);

type Device = Rc<Trace<Delay<Reported<MemoryDevice>>>>;

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(Handle) -> F,
) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node)))
}

/// A store of small logs on a device that takes a microsecond for each request: while it cleans for
/// ever the clock goes on.
async fn made(runtime: &Handle, log: Sectors, physical: Sectors) -> (CircularStore, Device) {
    let memory = MemoryDevice::new(Sectors(64 + LOGS * log.0 + 16));
    let told = |told| Capabilities { physical_sector: physical, ..told };
    let delayed = Delay::new(runtime.clone(), Reported::new(memory, told), Nanos(1000));
    let device = Rc::new(Trace::new(delayed));
    let options = StoreOptions { log, table: Sectors(0) };
    let devices = vec![Rc::clone(&device) as Rc<dyn BlockDevice>];
    let store = CircularStore::create(runtime.clone(), devices, options).await.unwrap();
    (store, device)
}

const fn range(nth: u64, sectors: u64) -> Extent {
    Extent::new(nth * 64, sectors)
}

/// Writes a version. False if the store is full.
async fn put(store: &CircularStore, extent: Extent, version: u64) -> bool {
    let content = Some(Payload::tags(version * 100, extent.len));
    match store.write(BASE, extent, Version(version), content).await {
        Ok(_) => true,
        Err(IoError::NoSpace { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Requests in 20 ms of a full store that nobody asks for anything. Each of its versions needs a
/// record of its own, a third of which is header and padding, however often it is written anew.
fn requests_while_full() -> u64 {
    in_virtual_time(|runtime| async move {
        let (store, device) = made(&runtime, Sectors(128), Sectors(8)).await;
        let mut held = 0;
        while put(&store, range(held, 16), held + 1).await {
            held += 1;
        }
        assert!(held > 20, "{held} versions fill it");
        runtime.sleep(LONG).await;
        let count = || device.count(RequestKind::Write).requests;
        let before = count();
        runtime.sleep(LONG).await;
        let idle = count() - before;
        // A deletion lets it look again, and makes room for others.
        for nth in 0..held / 2 {
            store.delete(BASE, range(nth, 16), Version(held)).await.unwrap();
        }
        assert!(put(&store, range(0, 16), held + 1).await, "there is room again");
        idle
    })
}

#[test]
fn a_full_store_does_not_clean_for_ever() {
    assert_eq!(requests_while_full(), 0);
}

/// Whether all deletions find room in stores that are written to until they are full, and deleted
/// from all the time. With `is_dense` long versions that nobody deletes come first.
fn deletions_find_room(seed: u64, is_dense: bool) -> bool {
    in_virtual_time(move |runtime| async move {
        let mut rng = Rng::new(seed);
        let log = Sectors(64 << rng.below(3));
        let (store, _) = made(&runtime, log, Sectors(1 + 7 * rng.below(2))).await;
        let (ranges, deletes) = (1 + rng.below(400), 1 + rng.below(40));
        let longest = 1 + rng.below(log.0 / 4 - 8);
        let is_even = rng.below(2) == 0;
        // The oldest logs are dense then.
        for nth in 0..if is_dense { rng.below(16) } else { 0 } {
            put(&store, range(400 + nth, log.0 / 4 - 8), 1).await;
        }
        for version in 1..=1500 {
            let sectors = if is_even { longest } else { 1 + rng.below(longest) };
            let extent = range(rng.below(ranges), sectors);
            if rng.below(100) >= deletes {
                put(&store, extent, version).await;
                continue;
            }
            let deleted = store.delete(BASE, extent, Version(version));
            match runtime.within(LONG, deleted).await {
                Some(deleted) => deleted.unwrap(),
                None => return false,
            }
        }
        true
    })
}

#[test]
fn deletions_find_room_however_full_the_store_is() {
    for seed in 1..=30 {
        for is_dense in [false, true] {
            let found = deletions_find_room(seed, is_dense);
            assert!(found, "a deletion waits for ever: seed {seed}, {is_dense}");
        }
    }
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::CleansForEver));
    let requests = requests_while_full();
    plant(Some(Bug::ReserveSpentBetween));
    let blocked = (1..=30).find(|seed| !deletions_find_room(*seed, false));
    plant(None);
    println!("{requests} requests, deletions wait in history {blocked:?}");
    assert!(requests > 1000 && blocked.is_some(), "{requests} {blocked:?}");
}
