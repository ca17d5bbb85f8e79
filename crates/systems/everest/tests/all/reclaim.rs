//! The order in which versions are brought home.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, MemoryDevice, Nanos, Payload, Request, RequestKind, Sectors,
};
use manylogs_everest::{
    CircularStore, Lender, Lending, OffloadOptions, Offloaded, Policy, StoreOptions,
};
use manylogs_filters::Stop;
use manylogs_sim::{Sim, TaskOrder};

const BLOCK: Extent = Extent { start: manylogs_block::Lba(8), len: Sectors(8) };

/// One round of reclaiming is slow to write a version home. Meanwhile a client writes the next
/// version, and asks to reclaim everything. Returns what home holds in the end.
fn home_after_two_rounds() -> Payload {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let home = Rc::new(Stop::new(MemoryDevice::new(Sectors(256 + 64))));
        let base = Rc::clone(&home) as Rc<dyn BlockDevice>;
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let writes = Cell::new(0);
        home.hold_those(move |request| {
            let is_home = request.extent().is_some_and(|extent| extent.start.0 >= 256);
            let is_write = is_home && request.kind() == RequestKind::Write;
            is_write && writes.replace(writes.get() + 1) == 0
        });
        let device: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(4096)));
        let options = StoreOptions { log: Sectors(128), table: Sectors(0) };
        let store = CircularStore::create(runtime.clone(), vec![device], options).await.unwrap();
        let store = Lending::open(store, None).await.unwrap();
        let options = OffloadOptions {
            policy: Policy::Always,
            reclaim_every: Nanos::from_millis(1),
            ..OffloadOptions::default()
        };
        let stores: Vec<Rc<dyn Lender>> = vec![Rc::new(store.clone())];
        let client = Offloaded::open(runtime.clone(), base, stores, options).await.unwrap();
        runtime.sleep(Nanos::from_millis(100)).await;
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
        client.close().await;
        store.store().close().await.unwrap();
        let extent = Extent { start: BLOCK.start + Sectors(256), len: BLOCK.len };
        home.below().submit(Request::Read { extent }).await.unwrap()
    })
}

#[test]
fn an_older_version_does_not_land_on_a_newer_one() {
    assert_eq!(home_after_two_rounds(), Payload::tags(200, BLOCK.len));
}
