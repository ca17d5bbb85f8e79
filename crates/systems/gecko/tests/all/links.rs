//! Links that are added to a chain and removed from it, one case each.

use std::ops::Range;

use crate::common::{SEGMENT, World, device};
use manylogs_gecko::{Chain, ChainError, ChainOptions, ChainSettings, LinkError, OnLoss};
use manylogs_sim::DiskImage;

const PER_DRIVE: u64 = 8;
/// They fill a third of two drives.
const PIECES: u64 = 30;
/// They fill more than one drive.
const MANY: u64 = 70;

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    crate::common::in_virtual_time(PER_DRIVE, ChainSettings::default(), test)
}

async fn write(chain: &Chain, pieces: Range<u64>, tag: u64) {
    for piece in pieces {
        crate::common::write(chain, piece, tag).await;
    }
}

async fn hold(chain: &Chain, pieces: Range<u64>, tag: u64) -> bool {
    for piece in pieces {
        if !crate::common::holds(chain, piece, tag).await {
            return false;
        }
    }
    true
}

const A: u64 = 1 << 20;
const B: u64 = 1 << 30;

/// The first link, which has a root, leaves. The others are the chain then, with it or without it.
#[test]
fn a_link_that_left_is_needed_no_more_and_does_not_come_back() {
    in_virtual_time(|world| async move {
        let chain = world.create(3, false, PIECES).await;
        write(&chain, 0..PIECES, A).await;
        chain.remove_link(0, OnLoss::Stop).await.unwrap();
        assert_eq!(chain.links().iter().map(|link| link.link).collect::<Vec<_>>(), [1, 2]);
        write(&chain, 0..4, B).await;
        let cut = world.crashed();
        for drives in [&[1, 2][..], &[0, 1, 2]] {
            let chain = cut.open(drives).await.unwrap();
            assert!(hold(&chain, 0..4, B).await && hold(&chain, 4..PIECES, A).await);
            assert_eq!(chain.links().len(), 2);
            chain.close().await.unwrap();
        }
        assert!(matches!(cut.open(&[0, 1]).await, Err(ChainError::Missing { .. })));
    });
}

/// A pair is added and takes what another pair held.
#[test]
fn a_pair_is_added_and_another_leaves() {
    in_virtual_time(|world| async move {
        let world = World { disks: [&world.disks[..], &world.disks[..1]].concat(), ..world };
        let spare = world.disk(DiskImage::default());
        let chain = world.create(4, true, PIECES).await;
        write(&chain, 0..PIECES, A).await;
        let one = vec![(device(&world.disks[4]), 4)];
        let wanted = LinkError::Drives { wanted: 2, given: 1 };
        assert_eq!(chain.add_link(one).await, Err(wanted));
        let two = vec![(device(&world.disks[4]), 4), (device(&spare), 5)];
        assert_eq!(chain.add_link(two).await, Ok(2));
        chain.remove_link(1, OnLoss::Stop).await.unwrap();
        assert!(hold(&chain, 0..PIECES, A).await);
        chain.close().await.unwrap();
        let last = [world.disks[0].clone(), world.disks[1].clone(), world.disks[4].clone(), spare];
        let world = World { disks: last.to_vec(), ..world };
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        assert!(hold(&chain, 0..PIECES, A).await);
        assert_eq!(chain.links().iter().map(|link| link.link).collect::<Vec<_>>(), [0, 2]);
    });
}

/// What cannot be done is refused with the reason, and changes nothing.
#[test]
fn links_that_the_chain_cannot_do_without_stay() {
    in_virtual_time(|world| async move {
        let chain = world.create(2, false, PIECES).await;
        assert_eq!(chain.remove_link(1, OnLoss::Stop).await, Err(LinkError::Last));
        assert_eq!(
            chain.remove_link(2, OnLoss::Stop).await,
            Err(LinkError::NoSuchLink { link: 2 })
        );
        chain.close().await.unwrap();
        let drives = world.disks[..3].iter().map(device).collect();
        let options =
            ChainOptions { segment: SEGMENT, export: None, mirror: false, summaries: true };
        let made = Chain::create(world.user.clone(), drives, options, ChainSettings::default());
        let chain = made.await.unwrap();
        assert!(matches!(chain.remove_link(0, OnLoss::Stop).await, Err(LinkError::Room { .. })));
        assert!(chain.links().iter().all(|link| link.leaving.is_none()));
    });
}

/// A drive that was a link of a copy of the chain, and has newer records there, is added. None of
/// them is taken for one of this chain.
fn what_an_added_drive_held_is_blanked() {
    in_virtual_time(|world| async move {
        let chain = world.create(3, false, MANY).await;
        write(&chain, 0..MANY, A).await;
        assert_eq!(chain.add_link(vec![(device(&world.disks[3]), 3)]).await, Ok(3));
        let copy = world.crashed();
        chain.remove_link(3, OnLoss::Stop).await.unwrap();
        let of_copy = copy.open(&[0, 1, 2, 3]).await.unwrap();
        // The tail comes to its fourth drive, too.
        let mut was_there = false;
        for (piece, _) in (0..MANY).cycle().zip(0..8 * MANY) {
            write(&of_copy, piece..piece + 1, B).await;
            was_there |= of_copy.tail_drive() == 3;
        }
        assert!(was_there);
        of_copy.close().await.unwrap();
        assert_eq!(chain.add_link(vec![(device(&copy.disks[3]), 3)]).await, Ok(3));
        chain.close().await.unwrap();
        let World { user, drive, per_drive, settings, .. } = &world;
        let disks = [&world.disks[..3], &copy.disks[3..4]].concat();
        let (user, drive) = (user.clone(), drive.clone());
        let (per_drive, settings, summaries) = (*per_drive, *settings, world.summaries);
        let physical = world.physical;
        let world = World { user, drive, disks, per_drive, physical, settings, summaries };
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        assert!(hold(&chain, 0..MANY, A).await);
    });
}

#[test]
fn a_drive_of_a_copy_of_the_chain_is_added_as_if_it_were_blank() {
    what_an_added_drive_held_is_blanked();
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};

    let cases: [(Bug, fn()); 1] = [(Bug::AddedLinkNotBlank, what_an_added_drive_held_is_blanked)];
    for (bug, case) in cases {
        plant(Some(bug));
        let held = std::panic::catch_unwind(case);
        plant(None);
        assert!(held.is_err(), "{bug:?} was not noticed");
    }
}
