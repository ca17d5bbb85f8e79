//! Memory that an off-loaded extent takes, at the client and at the store: goals of the issue are
//! what the paper's store takes (11.7 MB for 218,505 records, section 4.4).

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, MemoryDevice, Nanos, Payload, Request, Rng, Sectors};
use manylogs_everest::{
    CircularStore, Lender, Lending, OffloadOptions, Offloaded, Policy, StoreOptions,
};
use manylogs_sim::{Sim, TaskOrder};

/// Extents of 4 KiB at random places; `EXTENTS=1000000` takes so many.
const EXTENTS: u64 = 50_000;
/// Blocks of the base volume for each of them.
const BLOCKS: u64 = 8;
const BLOCK: u64 = 8;
/// From one neighbourhood to the next: a prime.
const STEP: u64 = 514_229;
/// Writes in flight.
const DEPTH: u64 = 64;
/// Most bytes for an extent.
const AT_CLIENT: f64 = 32.0;
const AT_STORE: f64 = 54.0;

#[test]
fn an_off_loaded_extent_takes_little_memory() {
    let given = std::env::var("EXTENTS").ok().and_then(|text| text.parse().ok());
    let extents = given.unwrap_or(EXTENTS);
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let disk = Rc::new(MemoryDevice::new(Sectors(2 * extents * BLOCK + (16 << 15))));
        let options = StoreOptions { log: Sectors(1 << 15), table: Sectors(0) };
        let store = CircularStore::create(runtime.clone(), vec![disk], options).await.unwrap();
        let lending = Lending::open(store.clone(), None).await.unwrap();
        let capacity = Sectors(256 + BLOCKS * extents * BLOCK);
        let base: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(capacity));
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let options = OffloadOptions {
            policy: Policy::Always,
            reclaim_every: Nanos(1 << 60),
            ..OffloadOptions::default()
        };
        let lenders: Vec<Rc<dyn Lender>> = vec![Rc::new(lending)];
        let volume = Offloaded::open(runtime.clone(), base, lenders, options).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        let (mut places, mut left) = (Rng::new(1), extents);
        while left > 0 {
            let now = left.min(DEPTH);
            let mut write = |number: u64| {
                // One block of each neighbourhood, far from the last: no extent is hit twice.
                let nth = (left - number) * STEP % extents;
                let block = nth * BLOCKS + places.below(BLOCKS);
                let content = Payload::tags(BLOCK * block, Sectors(BLOCK));
                volume.submit(Request::write_fua(Extent::new(BLOCK * block, BLOCK), content))
            };
            let sent: Vec<_> = (0..now).map(&mut write).collect();
            for sent in sent {
                sent.await.unwrap();
            }
            left -= now;
        }
        assert_eq!(volume.figures().held, Sectors(extents * BLOCK));
        let each = |bytes: u64| bytes as f64 / extents as f64;
        let (client, there) = (each(volume.table_bytes()), each(store.table_bytes()));
        println!("{extents} extents: {client:.1} bytes at the client, {there:.1} at the store");
        assert!(client > 8.0 && client <= AT_CLIENT, "{client} bytes at the client");
        assert!(there > 16.0 && there <= AT_STORE, "{there} bytes at the store");
    });
}
