//! Summaries of segments on another link: an opening believes those above the floors of a table, and
//! reads all other segments.

use crate::common::{World, holds, write};
use manylogs_block::{BlockDevice, Extent, IoError, Payload, Request, Sectors, to_usize};
use manylogs_gecko::{Chain, ChainSettings};

mod closing;
mod floors;

const PER_DRIVE: u64 = 8;
/// They fill five segments.
const PIECES: u64 = 30;
const A: u64 = 1 << 20;
const B: u64 = 1 << 30;
/// Where the mark of the own link is, then the table of another one, and its summaries.
const MARK: Extent = Extent::new(64, 8);
const TABLE: Extent = Extent::new(72, 8);
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

/// Where a segment of the first link begins.
const fn segment(index: u64) -> Extent {
    Extent::new(SLOTS + PER_DRIVE * SLOT + index * 256, 256)
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

/// A mark or a table of which nothing is known, and summaries that cannot be read.
#[test]
fn what_cannot_be_read_costs_reads_and_no_data() {
    for (disk, bad, scanned) in [(0, MARK, 5), (1, TABLE, 5), (1, slot(2), 5)] {
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

/// A crash came between the writes of a mark, and of a table, to both halves.
fn an_opening_makes_the_tables_of_both_halves_the_same() {
    for (place, halves) in [(MARK, [0, 1]), (TABLE, [2, 3])] {
        in_virtual_time(move |world| async move {
            closed(&world, true).await;
            let whole = read(&world, halves[0], place).await;
            assert!(whole.iter().any(|byte| *byte != 0));
            overwrite(&world, halves[1], place, vec![0; to_usize(place.len.bytes())]).await;
            let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
            // Read at once, before the opened chain writes more.
            let both =
                halves.map(|disk: usize| world.disks[disk].submit(Request::Read { extent: place }));
            let [first, second] = both;
            let same = first.await.unwrap().to_bytes() == second.await.unwrap().to_bytes();
            assert!(same, "halves differ at {place:?}");
            assert!(is_as_written(&chain).await);
        });
    }
}

/// A crash lost the first record behind a segment whose summary only the second half has. The
/// segment goes on, and then the first half fails.
fn a_summary_of_one_half_is_void_when_its_segment_goes_on() {
    in_virtual_time(|world| async move {
        closed(&world, true).await;
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        // The sixth segment is the one at the tail then, and the fifth is summarized.
        write(&chain, 0, A).await;
        chain.close().await.unwrap();
        let fifth = segment(4);
        for half in [0, 1] {
            let begin = Extent::new(segment(5).start.0, 64);
            overwrite(&world, half, begin, vec![0; to_usize(begin.len.bytes())]).await;
        }
        let zeroes = vec![0; to_usize(slot(4).len.bytes())];
        assert!(read(&world, 3, slot(4)).await != zeroes, "{fifth:?} has no summary");
        overwrite(&world, 2, slot(4), zeroes).await;
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        let (extent, payload) = (Extent::new(0, 8), Payload::tags(B, Sectors(8)));
        chain.submit(Request::write_fua(extent, payload.clone())).await.unwrap();
        let mut cut = world.crashed();
        cut.settings.degraded = true;
        let chain = cut.open(&[0, 1, 3]).await.unwrap();
        let found = chain.submit(Request::Read { extent }).await;
        assert_eq!(found, Ok(payload), "a write that was answered is lost");
    });
}

/// The keeper of summaries fails, and is back at the next opening. Meanwhile the segments that it
/// has summaries of were written again.
fn a_keeper_that_was_away_is_not_believed() {
    for rounds in 1..7 {
        // With a long buffer, as many segments would be kept empty as it fills: nothing would stay.
        let settings = ChainSettings { buffer: Sectors(256), ..ChainSettings::default() };
        crate::common::in_virtual_time(PER_DRIVE, settings, move |world| async move {
            let chain = world.create(3, false, PIECES).await;
            for piece in 0..PIECES {
                write(&chain, piece, A).await;
            }
            chain.close().await.unwrap();
            let chain = world.open(&[0, 1, 2]).await.unwrap();
            world.disks[1].fail_requests(Box::new(|_| Some(IoError::Gone)));
            for round in 1..=rounds {
                for piece in 0..PIECES {
                    write(&chain, piece, B << round).await;
                }
            }
            let chain = world.crashed().open(&[0, 1, 2]).await.unwrap();
            for piece in 0..PIECES {
                assert!(holds(&chain, piece, B << rounds).await, "piece {piece}");
            }
        });
    }
}

/// A chain whose labels say that the tables are on the segments' own links is opened as one
/// without summaries, and keeps them from then on as today's programs do.
#[test]
fn a_chain_with_tables_of_older_programs_reads_all_once() {
    in_virtual_time(|world| async move {
        closed(&world, false).await;
        for disk in 0..3 {
            for at in [0, (world.disks[disk].capabilities().capacity.0 - 8) / 8 * 8] {
                let mut label = read(&world, disk, Extent::new(at, 8)).await;
                assert_eq!(label[12..16], 5_u32.to_le_bytes());
                label[12] = 4;
                label[8..12].fill(0);
                let sum = crc32c::crc32c(&label[..344]);
                label[8..12].copy_from_slice(&sum.to_le_bytes());
                overwrite(&world, disk, Extent::new(at, 8), label).await;
            }
            // As the older program had it: a table where the mark is now, and none elsewhere.
            let mut table = vec![0; to_usize(2 * MARK.len.bytes())];
            table[..8].copy_from_slice(b"MLGTABL1");
            overwrite(&world, disk, Extent::new(64, 16), table).await;
        }
        let chain = world.open(&[0, 1, 2]).await.unwrap();
        assert!(chain.figures().summarized == 0 && chain.figures().scanned >= 5);
        assert!(is_as_written(&chain).await);
        chain.close().await.unwrap();
        let chain = world.open(&[0, 1, 2]).await.unwrap();
        assert!(chain.figures().summarized >= 4, "{:?}", chain.figures());
        assert!(is_as_written(&chain).await);
    });
}

#[test]
fn tables_of_halves_agree_after_an_opening() {
    an_opening_makes_the_tables_of_both_halves_the_same();
}

#[test]
fn old_summaries_do_not_come_back() {
    a_summary_of_one_half_is_void_when_its_segment_goes_on();
    a_keeper_that_was_away_is_not_believed();
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use manylogs_plant::{Bug, plant};

    let cases: [(Bug, fn()); 9] = [
        (Bug::TornSummaryBelieved, a_damaged_summary_costs_a_read_of_its_segment),
        (Bug::ForeignSummaryBelieved, the_summary_of_another_segment_costs_a_read),
        (Bug::TablesNotSettled, an_opening_makes_the_tables_of_both_halves_the_same),
        (Bug::TailFloorKept, a_summary_of_one_half_is_void_when_its_segment_goes_on),
        (Bug::MarkNotRenewed, a_keeper_that_was_away_is_not_believed),
        (Bug::BatchFloorKept, floors::segments_released_together_are_all_void),
        (Bug::AddedTablesKept, floors::a_link_that_comes_back_is_as_a_new_one),
        (Bug::SummarizedWhenClosed, closing::nothing_is_written_behind_a_close),
        (Bug::BegunWhenClosed, closing::nothing_is_written_behind_a_close),
    ];
    for (bug, case) in cases {
        plant(Some(bug));
        let noticed = catch_unwind(AssertUnwindSafe(case)).is_err();
        plant(None);
        assert!(noticed, "{bug:?} is not noticed");
    }
}
