//! A drive of a chain fails: the chain goes on, and the link leaves with what only it held.

use crate::common::{PIECE, World, device, holds, place, write};
use manylogs_block::{BlockDevice, Extent, IoError, Request, Sectors};
use manylogs_gecko::{Chain, ChainError, ChainSettings, LinkError, OnLoss, summary_room};
use manylogs_sim::CrashDisk;

const PER_DRIVE: u64 = 8;
/// They fill more than one drive.
const PIECES: u64 = 70;
const A: u64 = 1 << 20;
const B: u64 = 1 << 30;

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    // With a long buffer, as many segments would be kept empty as it fills: nothing would stay.
    let settings = ChainSettings { buffer: Sectors(256), ..ChainSettings::default() };
    crate::common::in_virtual_time(PER_DRIVE, settings, test)
}

/// A chain of four drives of which the first two hold something.
async fn filled(world: &World) -> Chain {
    let chain = world.create(4, false, PIECES).await;
    for piece in 0..PIECES {
        write(&chain, piece, A).await;
    }
    chain
}

/// The pieces that can be read, and those that cannot. All that can were written with [`A`].
async fn sorted(chain: &Chain) -> (Vec<u64>, Vec<u64>) {
    let (mut held, mut lost) = (Vec::new(), Vec::new());
    for piece in 0..PIECES {
        match chain.submit(Request::Read { extent: place(piece) }).await {
            Ok(_) => {
                assert!(holds(chain, piece, A).await, "piece {piece}");
                held.push(piece);
            }
            Err(_) => lost.push(piece),
        }
    }
    (held, lost)
}

fn dies(disk: &CrashDisk) {
    disk.fail_requests(Box::new(|_| Some(IoError::Gone)));
}

/// The places of these pieces, those that touch as one.
fn ranges(pieces: &[u64]) -> Vec<Extent> {
    let mut ranges: Vec<Extent> = Vec::new();
    for extent in pieces.iter().map(|piece| place(*piece)) {
        match ranges.last_mut() {
            Some(last) if last.end() == extent.start => last.len += extent.len,
            _ => ranges.push(extent),
        }
    }
    ranges
}

#[test]
fn a_drive_that_is_gone_leaves_with_what_only_it_held() {
    in_virtual_time(|world| async move {
        let chain = filled(&world).await;
        dies(&world.disks[0]);
        let (held, lost) = sorted(&chain).await;
        assert!(held.len() > 9 && lost.len() > 9, "{held:?} {lost:?}");
        let refused = chain.remove_link(0, OnLoss::Stop).await;
        assert_eq!(refused, Err(LinkError::Lost { link: 0 }));
        let state = chain.links()[0].clone();
        assert!(state.is_lost && state.stopped == Some(LinkError::Lost { link: 0 }));
        // Writes go on, and what was written is not lost.
        write(&chain, lost[0], B).await;
        let loss = chain.remove_link(0, OnLoss::Accept).await.unwrap();
        assert_eq!(loss.ranges, ranges(&lost[1..]));
        assert_eq!(loss.sectors, Sectors(PIECE.0 * (lost.len() as u64 - 1)));
        write(&chain, lost[1], B).await;
        let cut = world.crashed();
        for drives in [&[1, 2, 3][..], &[0, 1, 2, 3]] {
            let chain = cut.open(drives).await.unwrap();
            assert_eq!(chain.links().len(), 3);
            assert!(holds(&chain, lost[0], B).await && holds(&chain, lost[1], B).await);
            for piece in &held {
                assert!(holds(&chain, *piece, A).await, "piece {piece}");
            }
            for piece in &lost[2..] {
                let read = chain.submit(Request::Read { extent: place(*piece) }).await;
                assert!(matches!(read, Err(IoError::Checksum { .. })), "{piece}: {read:?}");
            }
            let scrubbed = chain.scrub(|_, _| ()).await.unwrap();
            assert_eq!(scrubbed.damaged.len(), lost.len() - 2);
            chain.close().await.unwrap();
        }
    });
}

/// The drive comes back before its link was removed: nothing is lost.
#[test]
fn a_drive_that_was_away_for_a_while_is_as_good_as_before() {
    in_virtual_time(|world| async move {
        let chain = filled(&world).await;
        for number in [0, 1] {
            dies(&world.disks[number]);
            let refused = chain.remove_link(number, OnLoss::Stop).await;
            assert_eq!(refused, Err(LinkError::Lost { link: 0 }), "only one may be lost");
        }
        let cut = world.crashed();
        assert!(matches!(cut.open(&[1, 2, 3]).await, Err(ChainError::Missing { .. })));
        let chain = cut.open(&[0, 1, 2, 3]).await.unwrap();
        assert_eq!(sorted(&chain).await.1, Vec::<u64>::new());
        // The removal that was asked for goes on, and loses nothing.
        while chain.links().len() > 3 {
            world.user.sleep(manylogs_block::Nanos::from_millis(10)).await;
        }
        assert_eq!(sorted(&chain).await.1, Vec::<u64>::new());
    });
}

/// From now on these sectors of a drive cannot be read.
fn spoil(disk: &CrashDisk, bad: Extent) {
    disk.fail_requests(Box::new(move |request| {
        let is_bad = matches!(request, Request::Read { extent } if extent.overlaps(bad));
        is_bad.then_some(IoError::Medium { extent: bad })
    }));
}

/// The first segment of a drive that was filled, from its sector `from` on.
fn in_segment(from: u64, len: u64) -> Extent {
    Extent::new(64 + summary_room(PER_DRIVE, Sectors(256)).0 + 5 * 256 + from, len)
}

/// A part of a link cannot be read: its removal stops and says so, and goes on if that is accepted.
#[test]
fn a_link_with_bad_sectors_leaves_without_what_they_held() {
    // A whole segment, and a sector between others that clients need.
    for (bad, most) in [(in_segment(0, 256), 8), (in_segment(100, 1), 1)] {
        in_virtual_time(move |world| async move {
            let chain = filled(&world).await;
            spoil(&world.disks[0], bad);
            let (_, lost) = sorted(&chain).await;
            assert!((1..=most).contains(&lost.len()), "{lost:?}");
            let stopped = chain.remove_link(0, OnLoss::Stop).await;
            assert!(matches!(stopped, Err(LinkError::Unreadable { link: 0, .. })), "{stopped:?}");
            assert!(chain.links()[0].stopped.is_some() && !chain.links()[0].is_lost);
            let loss = chain.remove_link(0, OnLoss::Accept).await.unwrap();
            assert_eq!(loss.ranges, ranges(&lost));
            assert_eq!(sorted(&chain).await.1, lost);
        });
    }
}

/// A link stops leaving at bad sectors, and its drive dies without notice. All labels but that
/// drive's name the link that is added then.
#[test]
fn a_link_is_added_beside_a_dead_one_that_leaves() {
    in_virtual_time(|world| async move {
        let chain = filled(&world).await;
        spoil(&world.disks[0], in_segment(0, 256));
        let stopped = chain.remove_link(0, OnLoss::Stop).await;
        assert!(matches!(stopped, Err(LinkError::Unreadable { link: 0, .. })), "{stopped:?}");
        dies(&world.disks[0]);
        assert_eq!(chain.add_link(vec![(device(&world.disks[4]), 4)]).await, Ok(4));
        for _ in 0..4 {
            for piece in 0..PIECES {
                write(&chain, piece, B).await;
            }
        }
        let chain = world.crashed().open(&[0, 1, 2, 3, 4]).await.unwrap();
        assert_eq!(chain.links().len(), 5);
        for piece in 0..PIECES {
            assert!(holds(&chain, piece, B).await, "piece {piece}");
        }
    });
}

/// A drive of which only the last copy of its label cannot be read is no drive that is gone.
#[test]
fn a_link_whose_last_label_cannot_be_read_leaves_with_nothing_lost() {
    in_virtual_time(|world| async move {
        let chain = filled(&world).await;
        let segments_end = in_segment(3 * 256, 0).start;
        spoil(&world.disks[0], Extent::new(segments_end.0, 36));
        let loss = chain.remove_link(0, OnLoss::Accept).await.unwrap();
        assert_eq!(loss.ranges, []);
        assert_eq!(sorted(&chain).await.1, Vec::<u64>::new());
    });
}

/// The second link is lost, and leaves: from then on both places of the root have the newest one.
#[test]
fn a_chain_whose_second_link_was_lost_has_two_roots() {
    for spoilt in [0, 2] {
        in_virtual_time(move |world| async move {
            let chain = filled(&world).await;
            dies(&world.disks[1]);
            let loss = chain.remove_link(1, OnLoss::Accept).await.unwrap();
            assert!(!loss.ranges.is_empty());
            let cut = world.crashed();
            // One of the two drives with a root cannot read it.
            spoil(&cut.disks[spoilt], Extent::new(8, 56));
            let chain = cut.open(&[0, 2, 3]).await.unwrap();
            assert_eq!(chain.links().len(), 3);
        });
    }
}
