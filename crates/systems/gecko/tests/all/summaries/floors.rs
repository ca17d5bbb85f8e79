//! Floors of segments that are released together, and of links that come and go.

use crate::common::{World, device, holds, on_sectors, write};
use manylogs_block::{Sectors, to_usize};
use manylogs_gecko::{Chain, ChainSettings, OnLoss};

use super::{A, B, MARK, PER_DRIVE, PIECES, TABLE, read};

/// Fails if a crash now loses a piece. `newest` says with which tag each was written last.
async fn survives(world: &World, drives: &[usize], newest: &[u64]) -> Chain {
    let chain = world.crashed().open(drives).await.unwrap();
    for (piece, tag) in (0..).zip(newest) {
        assert!(holds(&chain, piece, *tag).await, "piece {piece} is not of {tag}");
    }
    chain
}

/// All pieces are written several times, and a crash comes behind each `every`th write. The segment
/// at the tail has only the summary of what it held before then.
fn is_void_at_each_crash(physical: Sectors, per_drive: u64, pieces: u64, every: usize) {
    // With a long buffer, as many segments would be kept empty as it fills.
    let settings = ChainSettings { buffer: Sectors(256), ..ChainSettings::default() };
    on_sectors(physical, per_drive, settings, move |world| async move {
        let chain = world.create(3, false, pieces).await;
        let mut newest = Vec::new();
        for piece in 0..pieces {
            write(&chain, piece, A).await;
            newest.push(A);
        }
        chain.close().await.unwrap();
        let chain = world.open(&[0, 1, 2]).await.unwrap();
        let mut written = 0;
        for round in 1..5 {
            for (piece, tag) in (0..).zip(&mut newest) {
                *tag = B << round;
                write(&chain, piece, *tag).await;
            }
            // Half of them again, in another order, so that segments end at other pieces.
            for at in 0..newest.len() / 2 {
                let piece = at * 7 % newest.len();
                newest[piece] = (B << round) + (1 << 20);
                write(&chain, piece as u64, newest[piece]).await;
                written += 1;
                if written % every == 0 {
                    let chain = survives(&world, &[0, 1, 2], &newest).await;
                    assert!(chain.figures().summarized > 0, "{:?}", chain.figures());
                }
            }
        }
    });
}

pub(super) fn segments_released_together_are_all_void() {
    is_void_at_each_crash(Sectors(8), PER_DRIVE, PIECES, 1);
}

#[test]
fn all_floors_of_a_batch_are_written() {
    segments_released_together_are_all_void();
}

/// The table has two sectors, and each write of a floor is of one of them.
#[test]
fn floors_are_written_in_the_sector_of_their_segment() {
    is_void_at_each_crash(Sectors(1), 66, 500, 50);
}

/// A drive leaves, and is added again with all that it held: none of that is believed.
pub(super) fn a_link_that_comes_back_is_as_a_new_one() {
    for rounds in 0..8 {
        super::in_virtual_time(move |world| async move {
            let chain = world.create(3, false, PIECES).await;
            for piece in 0..PIECES {
                write(&chain, piece, A).await;
            }
            chain.add_link(vec![(device(&world.disks[3]), 3)]).await.unwrap();
            let mut newest = vec![A; to_usize(PIECES)];
            for at in 0..rounds * 2 * PIECES {
                let piece = at * 7 % PIECES;
                newest[to_usize(piece)] = B + (at << 20);
                write(&chain, piece, newest[to_usize(piece)]).await;
            }
            chain.remove_link(3, OnLoss::Stop).await.unwrap();
            survives(&world, &[0, 1, 2], &newest).await;
            let zeroes = vec![0; to_usize(MARK.len.bytes())];
            let of_drive = || async { [read(&world, 3, MARK).await, read(&world, 3, TABLE).await] };
            let before = of_drive().await;
            assert!(rounds < 4 || before[0] != zeroes, "the drive kept no mark");
            let place = chain.add_link(vec![(device(&world.disks[3]), 3)]).await.unwrap();
            assert_eq!(place, 3);
            for (now, before) in of_drive().await.into_iter().zip(before) {
                assert!(now != before || before == zeroes, "what the drive kept may count");
            }
            let all = [0, 1, 2, 3];
            survives(&world, &all, &newest).await;
            for round in 1..4 {
                for (piece, tag) in (0..).zip(&mut newest) {
                    *tag = B << round;
                    write(&chain, piece, *tag).await;
                }
                survives(&world, &all, &newest).await;
            }
            chain.close().await.unwrap();
            let chain = survives(&world, &all, &newest).await;
            assert!(chain.figures().summarized > 0, "{:?}", chain.figures());
        });
    }
}

#[test]
fn summaries_follow_links_that_come_and_go() {
    a_link_that_comes_back_is_as_a_new_one();
}
