//! Summaries of segments on another link: an opening believes those that a table names, and reads
//! all other segments.

use crate::common::{World, holds, write};
use manylogs_block::{BlockDevice, Extent, Hint, IoError, Payload, Request, Sectors, to_usize};
use manylogs_gecko::{Chain, ChainSettings};

const PER_DRIVE: u64 = 8;
/// They fill five segments.
const PIECES: u64 = 30;
const A: u64 = 1 << 20;
const B: u64 = 1 << 30;
/// Where a table begins, the one for a lost link behind it, and then the summaries.
const TABLE: Extent = Extent { start: manylogs_block::Lba(64), len: Sectors(8) };
const SLOTS: u64 = 80;
const SLOT: u64 = 8;

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    crate::common::in_virtual_time(PER_DRIVE, ChainSettings::default(), test)
}

const fn slot(segment: u64) -> Extent {
    Extent::new(SLOTS + segment * SLOT, SLOT)
}

/// A chain of three links that was closed in order.
async fn closed(world: &World, mirror: bool) {
    let chain = world.create(if mirror { 4 } else { 3 }, mirror, PIECES).await;
    for piece in 0..PIECES {
        write(&chain, piece, A).await;
    }
    chain.close().await.unwrap();
}

async fn read(world: &World, disk: usize, extent: Extent) -> Vec<u8> {
    let content = world.disks[disk].submit(Request::Read { extent }).await.unwrap();
    content.to_bytes().unwrap().to_vec()
}

async fn overwrite(world: &World, disk: usize, extent: Extent, bytes: Vec<u8>) {
    let payload = Payload::bytes(bytes);
    world.disks[disk].submit(Request::write_fua(extent, payload)).await.unwrap();
}

async fn is_as_written(chain: &Chain) -> bool {
    for piece in 0..PIECES {
        if !holds(chain, piece, A).await {
            return false;
        }
    }
    true
}

#[test]
fn an_opening_takes_closed_segments_from_summaries_and_reads_the_others() {
    in_virtual_time(|world| async move {
        closed(&world, false).await;
        let chain = world.crashed().open(&[2, 0, 1]).await.unwrap();
        let figures = chain.figures();
        assert!(figures.summarized >= 4 && figures.scanned == 1, "{figures:?}");
        assert!(is_as_written(&chain).await);
    });
}

/// A chain as older programs made it: its label is as theirs, and all is read.
#[test]
fn a_chain_without_summaries_opens_as_before() {
    in_virtual_time(|mut world| async move {
        world.summaries = false;
        closed(&world, false).await;
        let label = read(&world, 0, Extent::new(0, 8)).await;
        assert_eq!(label[12..16], 2_u32.to_le_bytes());
        assert!(label[336..344].iter().all(|byte| *byte == 0));
        let cut = world.crashed();
        let chain = cut.open(&[0, 1, 2]).await.unwrap();
        assert!(chain.figures().summarized == 0 && chain.figures().scanned >= 5);
        assert!(is_as_written(&chain).await);
        write(&chain, 0, B).await;
        assert!(cut.crashed().open(&[0, 1, 2]).await.is_ok());
    });
}

/// Changes the summary of the first segment, and returns how many segments an opening reads then.
async fn scanned_after(world: &World, change: impl FnOnce(&mut Vec<u8>, Vec<u8>)) -> u64 {
    closed(world, false).await;
    let (mut first, second) = (read(world, 1, slot(0)).await, read(world, 1, slot(1)).await);
    change(&mut first, second);
    overwrite(world, 1, slot(0), first).await;
    let chain = world.open(&[0, 1, 2]).await.unwrap();
    assert!(is_as_written(&chain).await);
    chain.figures().scanned
}

fn a_damaged_summary_costs_a_read_of_its_segment() {
    in_virtual_time(|world| async move {
        let scanned = scanned_after(&world, |bytes, _| {
            // The last byte is of a checksum of content.
            let len = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
            bytes[72 + len as usize - 1] ^= 1;
        });
        assert_eq!(scanned.await, 2);
    });
}

fn the_summary_of_another_segment_costs_a_read() {
    in_virtual_time(|world| async move {
        let scanned = scanned_after(&world, |bytes, other| *bytes = other);
        assert_eq!(scanned.await, 2);
    });
}

#[test]
fn damaged_and_foreign_summaries_cost_reads_and_no_data() {
    a_damaged_summary_costs_a_read_of_its_segment();
    the_summary_of_another_segment_costs_a_read();
}

/// A table of which nothing is known, and summaries that cannot be read.
#[test]
fn what_cannot_be_read_costs_reads_and_no_data() {
    for (disk, bad, scanned) in [(0, TABLE, 5), (1, slot(2), 5)] {
        in_virtual_time(move |world| async move {
            closed(&world, false).await;
            world.disks[disk].fail_requests(Box::new(move |request| {
                let is_bad = matches!(request, Request::Read { extent } if extent.overlaps(bad));
                is_bad.then_some(IoError::Medium { extent: bad })
            }));
            let chain = world.open(&[0, 1, 2]).await.unwrap();
            assert_eq!(chain.figures().scanned, scanned);
            assert!(is_as_written(&chain).await);
            // Its segments are written again all the same, and found.
            for round in 1..6 {
                for piece in 0..PIECES {
                    write(&chain, piece, B << round).await;
                }
            }
            let chain = world.crashed().open(&[0, 1, 2]).await.unwrap();
            for piece in 0..PIECES {
                assert!(holds(&chain, piece, B << 5).await, "piece {piece}");
            }
        });
    }
}

/// A crash came between the writes of a table to both halves.
fn an_opening_makes_the_tables_of_both_halves_the_same() {
    in_virtual_time(|world| async move {
        closed(&world, true).await;
        let whole = read(&world, 0, TABLE).await;
        assert!(whole.iter().any(|byte| *byte != 0));
        let zeroes = vec![0; to_usize(TABLE.len.bytes())];
        overwrite(&world, 1, TABLE, zeroes).await;
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        // Read at once, before the opened chain writes more.
        let both =
            [0, 1].map(|disk: usize| world.disks[disk].submit(Request::Read { extent: TABLE }));
        let [first, second] = both;
        let same = first.await.unwrap().to_bytes() == second.await.unwrap().to_bytes();
        assert!(same, "the tables differ");
        assert!(is_as_written(&chain).await);
    });
}

#[test]
fn tables_of_halves_agree_after_an_opening() {
    an_opening_makes_the_tables_of_both_halves_the_same();
}

/// What a drive kept from its time as a link is not believed when it is added again.
#[test]
fn summaries_follow_links_that_come_and_go() {
    in_virtual_time(|world| async move {
        let chain = world.create(3, false, PIECES).await;
        for piece in 0..PIECES {
            write(&chain, piece, A).await;
        }
        chain.add_link(vec![(crate::common::device(&world.disks[3]), 3)]).await.unwrap();
        for piece in 0..PIECES {
            write(&chain, piece, B).await;
        }
        chain.remove_link(1, manylogs_gecko::OnLoss::Stop).await.unwrap();
        chain.close().await.unwrap();
        let chain = world.crashed().open(&[0, 2, 3]).await.unwrap();
        for piece in 0..PIECES {
            assert!(holds(&chain, piece, B).await, "piece {piece}");
        }
        let hint = Hint::None;
        let (extent, payload) = (crate::common::place(0), crate::common::content(0, A));
        chain.submit(Request::Write { extent, payload, fua: true, hint }).await.unwrap();
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use manylogs_plant::{Bug, plant};

    let cases: [(Bug, fn()); 3] = [
        (Bug::TornSummaryBelieved, a_damaged_summary_costs_a_read_of_its_segment),
        (Bug::ForeignSummaryBelieved, the_summary_of_another_segment_costs_a_read),
        (Bug::TablesNotSettled, an_opening_makes_the_tables_of_both_halves_the_same),
    ];
    for (bug, case) in cases {
        plant(Some(bug));
        let noticed = catch_unwind(AssertUnwindSafe(case)).is_err();
        plant(None);
        assert!(noticed, "{bug:?} is not noticed");
    }
}
