//! What goes home, and in which order.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, MemoryDevice, Nanos, Payload, Request, RequestKind, Sectors,
};
use manylogs_everest::{CircularStore, OffloadOptions, Offloaded, StoreOptions};
use manylogs_filters::Stop;
use manylogs_logstore::Space;
use manylogs_sim::{Order, Sim};

const BLOCK: Extent = Extent { start: manylogs_block::Lba(8), len: Sectors(8) };

/// One round of reclaiming is slow to write a version home. Meanwhile a client writes the next
/// version, and asks for everything to go home. Returns what home holds in the end.
fn home_after_two_rounds() -> Payload {
    let sim = Sim::new(1, Order::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let home = Rc::new(Stop::new(MemoryDevice::new(Sectors(64))));
        let writes = Cell::new(0);
        home.hold_those(move |request| {
            request.kind() == RequestKind::Write && writes.replace(writes.get() + 1) == 0
        });
        let device: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(4096)));
        let options = StoreOptions { log: Sectors(128) };
        let store = CircularStore::create(runtime.clone(), vec![device], options).await.unwrap();
        let options = OffloadOptions { base: Space(1), reclaim_every: Nanos::from_millis(1) };
        let base = Rc::clone(&home) as Rc<dyn BlockDevice>;
        let client = Offloaded::open(runtime.clone(), base, Rc::new(store.clone()), options);
        let client = client.await.unwrap();
        let write = |tag| {
            let payload = Payload::tags(tag, BLOCK.len);
            client.submit(Request::write_fua(BLOCK, payload))
        };
        write(100).await.unwrap();
        while home.held() == 0 {
            runtime.sleep(Nanos::from_millis(1)).await;
        }
        write(200).await.unwrap();
        let (slow, clock) = (Rc::clone(&home), runtime.clone());
        runtime.spawn(async move {
            clock.sleep(Nanos::from_secs(1)).await;
            slow.release().await;
        });
        client.reclaim().await.unwrap();
        runtime.sleep(Nanos::from_secs(2)).await;
        client.close();
        store.close().await.unwrap();
        home.below().submit(Request::Read { extent: BLOCK }).await.unwrap()
    })
}

#[test]
fn an_older_version_does_not_land_on_a_newer_one() {
    assert_eq!(home_after_two_rounds(), Payload::tags(200, BLOCK.len));
}

#[cfg(feature = "plant")]
#[test]
fn rounds_that_overlap_are_noticed() {
    use manylogs_plant::{EVEREST_CLIENT, plant};
    for bug in EVEREST_CLIENT {
        plant(Some(*bug));
        let home = home_after_two_rounds();
        plant(None);
        assert_eq!(home, Payload::tags(100, BLOCK.len), "{bug:?}: the slow round wrote last");
    }
}
