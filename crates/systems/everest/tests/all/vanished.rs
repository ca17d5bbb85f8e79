//! A client that never returns: what a store holds of it moves to the head whenever its log is
//! cleaned, takes no more room than its bound, and is there when the client does return.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, MemoryDevice, Nanos, Payload, Sectors};
use manylogs_everest::{CircularStore, Range, StoreOptions, Version};
use manylogs_logstore::Space;
use manylogs_sim::{Sim, TaskOrder};

const VANISHED: Space = Space(1);
const OTHER: Space = Space(2);
const BLOCKS: u64 = 20;
/// Sectors of the device, and of a log.
const DEVICE: u64 = 64 + 9 * 128 + 16;
const LOG: Sectors = Sectors(128);
/// Blocks that the other client writes: many times what the device holds.
const WRITTEN: u64 = 2000;

const fn block(number: u64) -> Extent {
    Extent::new(8 * number, 8)
}

const fn version(number: u64) -> Version {
    Version(1 + number)
}

fn content(number: u64) -> Payload {
    Payload::tags(10 * number + 1, Sectors(8))
}

/// What the store has of the client that vanished is what it wrote, and no more.
async fn is_whole(store: &CircularStore) {
    let mut held: Vec<Range> = store.ranges(VANISHED);
    held.sort_unstable_by_key(|range| range.extent.start);
    let expected = (0..BLOCKS).map(|n| Range { extent: block(n), version: version(n) });
    assert_eq!(held, expected.collect::<Vec<_>>());
    for number in 0..BLOCKS {
        let found = store.read(VANISHED, block(number)).await.unwrap();
        assert_eq!(found[0].content, Some(content(number)), "block {number}");
    }
}

#[test]
fn what_a_vanished_client_left_moves_on_and_takes_no_more_room() {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let device: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(DEVICE)));
        let options = StoreOptions { log: LOG, table: Sectors(0) };
        let devices = || vec![Rc::clone(&device)];
        let store = CircularStore::create(runtime.clone(), devices(), options).await.unwrap();
        for number in 0..BLOCKS {
            let put = store.write(VANISHED, block(number), version(number), Some(content(number)));
            put.await.unwrap();
        }
        let mut waits = 0;
        for number in 0..WRITTEN {
            let place = block(number % 8);
            loop {
                let put = store.write(OTHER, place, version(number), Some(content(number)));
                match put.await {
                    Ok(_) => break,
                    Err(IoError::NoSpace { .. }) => waits += 1,
                    Err(error) => panic!("{error}"),
                }
                assert!(waits < WRITTEN, "the log is cleaned");
                runtime.sleep(Nanos::from_millis(1)).await;
            }
            if number % 500 == 0 {
                is_whole(&store).await;
            }
        }
        is_whole(&store).await;
        assert_eq!(store.held(VANISHED), Sectors(8 * BLOCKS));
        store.close().await.unwrap();
        let store = CircularStore::open(runtime.clone(), devices()).await.unwrap();
        is_whole(&store).await;
    });
}
