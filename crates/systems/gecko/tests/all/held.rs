//! What a chain keeps in memory: little of what is dead, and all of what lives.

use crate::common::{PIECE, World, write};
use manylogs_block::{
    BlockDevice, Extent, IoError, MemoryDevice, Nanos, Payload, Request, Rng, Sectors, to_usize,
};
use manylogs_gecko::{Chain, ChainOptions, ChainSettings};
use manylogs_sim::{Sim, TaskOrder};

const PER_DRIVE: u64 = 40;
const PIECES: u64 = 240;

/// A chain whose pieces were overwritten at random, so that most of each segment is dead.
async fn overwritten(world: &World) -> Chain {
    let chain = world.create(3, false, PIECES).await;
    let mut rng = Rng::new(1);
    for piece in 0..PIECES {
        write(&chain, piece, 1).await;
    }
    for turn in 2..2 + 3 * PIECES {
        write(&chain, rng.below(PIECES), turn).await;
    }
    chain
}

fn in_virtual_time<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F + 'static) {
    // The tail cache would answer.
    let settings =
        ChainSettings { buffer: Sectors(8), cache: Sectors(0), ..ChainSettings::default() };
    crate::common::in_virtual_time(PER_DRIVE, settings, test);
}

#[test]
fn each_live_version_is_held_against_its_checksum() {
    in_virtual_time(|mut world| async move {
        // Segments stand behind no other structures.
        world.summaries = false;
        let chain = overwritten(&world).await;
        // Until nothing is cleaned any more.
        world.user.sleep(Nanos::from_secs(1)).await;
        for disk in &world.disks[..3] {
            // All but the labels and the roots.
            let all = Extent::new(64, disk.capabilities().capacity.0 - 72);
            let write = Request::write_fua(all, Payload::tags(1 << 40, all.len));
            disk.submit(write).await.unwrap();
        }
        for piece in 0..PIECES {
            let read = chain.submit(Request::Read { extent: crate::common::place(piece) }).await;
            assert!(matches!(read, Err(IoError::Checksum { .. })), "{piece}: {read:?}");
        }
    });
}

#[test]
fn each_live_version_is_found_by_its_segment() {
    in_virtual_time(|world| async move {
        let chain = overwritten(&world).await;
        let scrubbed = chain.scrub(|_, _| {}).await.unwrap();
        assert_eq!(scrubbed.damaged, []);
        let live = PIECES * PIECE.0;
        assert!(scrubbed.read.0 >= live, "{:?} of {live} sectors were found", scrubbed.read);
    });
}

const BLOCK: Sectors = Sectors(8);
const DRIVE: Sectors = Sectors(64 << 11);
/// Most bytes for an exported block of 4 KiB, after the raw capacity was written at random.
const EACH: f64 = 15.0;
const IN_FLIGHT: u64 = 64;

#[test]
fn a_random_block_takes_little_memory() {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let drives = (0..3).map(|_| std::rc::Rc::new(MemoryDevice::new(DRIVE)));
        let drives = drives.map(|drive| drive as std::rc::Rc<dyn BlockDevice>).collect();
        let export = Sectors(3 * DRIVE.0 * 48 / 100 / BLOCK.0 * BLOCK.0);
        let segment = Sectors(2 << 11);
        let (mirror, summaries) = (false, false);
        let options = ChainOptions { segment, export: Some(export), mirror, summaries };
        let settings = ChainSettings { cache: Sectors(0), ..ChainSettings::default() };
        let chain = Chain::create(runtime, drives, options, settings).await.unwrap();
        let (blocks, mut rng) = (export.0 / BLOCK.0, Rng::new(2));
        let places: Vec<u64> = (0..blocks).chain((0..blocks).map(|_| rng.below(blocks))).collect();
        for some in places.chunks(to_usize(IN_FLIGHT)) {
            let write = |block: &u64| {
                let content = Payload::tags(1 + BLOCK.0 * block, BLOCK);
                chain.submit(Request::write_fua(Extent::new(BLOCK.0 * block, BLOCK.0), content))
            };
            let sent: Vec<_> = some.iter().map(write).collect();
            for sent in sent {
                sent.await.unwrap();
            }
        }
        let (figures, blocks) = (chain.figures(), blocks as f64);
        let (each, map) = (figures.table_bytes as f64 / blocks, figures.map_bytes as f64 / blocks);
        println!("{each:.1} bytes for each of {blocks} blocks, {map:.1} of them in the map");
        assert!(each > 8.0 && each <= EACH, "{each} bytes for an exported block");
        chain.close().await.unwrap();
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use manylogs_plant::{Bug, plant};

    let cases: [(Bug, fn()); 2] = [
        (Bug::LiveChecksumForgotten, each_live_version_is_held_against_its_checksum),
        (Bug::LiveExtentForgotten, each_live_version_is_found_by_its_segment),
    ];
    for (bug, case) in cases {
        plant(Some(bug));
        let noticed = catch_unwind(AssertUnwindSafe(case)).is_err();
        plant(None);
        assert!(noticed, "{bug:?} is not noticed");
    }
}
