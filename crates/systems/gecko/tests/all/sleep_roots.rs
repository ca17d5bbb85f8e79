//! The newest root while halves sleep, when drives leave and join, and what labels say meanwhile.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Nanos, Request, Rng, Sectors};
use manylogs_filters::Spindle;
use manylogs_gecko::{Chain, ChainError};
use manylogs_sim::{CrashDisk, DiskImage, Survival};

use crate::common::World;
use crate::sleep::{Pairs, SPIN_UP, current, in_virtual_time};

/// The most pieces that are written until a root is.
const PIECES_MOST: u64 = 4000;
/// Pieces that are written after it.
const SINCE: u64 = 30;

/// A chain with the tail on the third link. Halves of the other two sleep, and have an old root.
/// Returns the chain, the next piece, and the half of each of the two links that sleeps.
async fn with_old_roots(pairs: &Pairs) -> (Chain, u64, [usize; 2]) {
    let (chain, mut at) = pairs.create_with_naming().await;
    let mut since = 0;
    while at < PIECES_MOST {
        pairs.write_next(&chain, &mut at).await;
        since += 1;
        let [first, second] = pairs.asleep()[..] else { continue };
        // A half that joins is copied to from the first half: from the one with the old root.
        if first != 0 || second / 2 != 1 {
            continue;
        }
        let newest = newest_root(&pairs.drives, &[]).await;
        let of_sleepers = newest_root(&pairs.drives, &[first ^ 1, second ^ 1]).await;
        if of_sleepers == newest {
            since = 0;
        }
        // By now segments are written that the old root does not name.
        if since > SINCE && pairs.asleep() == [first, second] {
            return (chain, at, [first, second]);
        }
    }
    panic!("no root was written while halves of the first two links slept");
}

/// The generation of the newest root on the drives but for some, in whichever of its two places.
async fn newest_root(drives: &[Spindle<CrashDisk>], without: &[usize]) -> u64 {
    let mut newest = 0;
    for (number, drive) in drives.iter().enumerate() {
        for place in [8, 32].into_iter().filter(|_| !without.contains(&number)) {
            let extent = Extent::new(place, 1);
            let read = drive.below().submit(Request::Read { extent }).await.unwrap();
            let generation = read.to_bytes().unwrap()[32..40].try_into().unwrap();
            newest = newest.max(u64::from_le_bytes(generation));
        }
    }
    newest
}

/// Opens the chain on what a power cut leaves of the drives, without some of them. Returns what the
/// opening found in doubt, if all pieces hold what was written last.
async fn after_power_cut(
    world: &World,
    drives: &[Spindle<CrashDisk>],
    (without, at): (&[usize], u64),
) -> Result<Sectors, String> {
    let mut rng = Rng::new(3);
    let left = (0..drives.len()).filter(|number| !without.contains(number));
    let cut = |number: usize| {
        let image = drives[number].below().after_power_cut(Survival::Nothing, &mut rng);
        world.disk(image)
    };
    let after = Pairs::new(world, left.map(cut).collect(), 1000);
    let opened = after.open_degraded().await;
    let chain = opened.map_err(|error: ChainError| error.to_string())?;
    let settled = chain.figures().settled;
    match after.holds_all(&chain, at).await {
        true => Ok(settled),
        false => Err("an old version is read".into()),
    }
}

/// What an opening finds in doubt with all drives, and after more happened without two of them, and
/// whether the other drives have a root that was written since.
type Outcome = (Result<Sectors, String>, Result<Sectors, String>, bool);

/// What an opening finds in doubt with all drives, and then with one awake half replaced in order
/// and the other one lost with the power.
fn found_after_replacement() -> Outcome {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, at, [sleeper, other]) = with_old_roots(&pairs).await;
        let newest = newest_root(&pairs.drives, &[]).await;
        let all = after_power_cut(&world, &pairs.drives, (&[], at)).await;
        let awake = sleeper ^ 1;
        let new = Spindle::new(world.drive.clone(), world.disk(DiskImage::default()), SPIN_UP);
        let device: Rc<dyn BlockDevice> = Rc::new(new.clone());
        chain.replace((awake / 2, awake % 2), (device, 6)).await.unwrap();
        assert_eq!(current(&chain), 6);
        let mut drives = pairs.drives.clone();
        drives.push(new);
        let without = [awake, other ^ 1];
        let lost = after_power_cut(&world, &drives, (&without, at)).await;
        (all, lost, newest_root(&drives, &without).await > newest)
    })
}

/// The same when the one awake half fails, and leaves its link.
fn found_after_failure() -> Outcome {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, at, [sleeper, other]) = with_old_roots(&pairs).await;
        let newest = newest_root(&pairs.drives, &[]).await;
        let all = after_power_cut(&world, &pairs.drives, (&[], at)).await;
        let awake = sleeper ^ 1;
        pairs.drives[awake].below().fail_requests(Box::new(|_| Some(IoError::Gone)));
        // A change of members writes labels, but no root, and finds out about the half.
        let broken = world.disk(DiskImage::default());
        broken.fail_requests(Box::new(|_| Some(IoError::Gone)));
        let new: Rc<dyn BlockDevice> = Rc::new(broken);
        chain.replace((2, 0), (new, 6)).await.unwrap_err();
        assert_eq!(current(&chain), 5, "{:?}", chain.halves());
        pairs.user.sleep(Nanos::from_millis(100)).await;
        let without = [awake, other ^ 1];
        let lost = after_power_cut(&world, &pairs.drives, (&without, at)).await;
        (all, lost, newest_root(&pairs.drives, &without).await > newest)
    })
}

#[test]
fn the_newest_root_outlives_the_replacement_of_the_half_that_has_it() {
    let (all, lost, is_renewed) = found_after_replacement();
    assert!(all.is_ok() && is_renewed, "{is_renewed}");
    assert_eq!(lost, all);
}

#[test]
fn the_newest_root_outlives_the_failure_of_the_half_that_has_it() {
    let (all, lost, is_renewed) = found_after_failure();
    assert!(all.is_ok() && is_renewed, "{is_renewed}");
    assert_eq!(lost, all);
}

#[cfg(feature = "plant")]
#[test]
fn a_root_that_is_not_written_anew_is_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::RootNotRenewed));
    let found = [found_after_replacement(), found_after_failure()];
    plant(None);
    assert!(found.iter().all(|(_, _, is_renewed)| !is_renewed), "{found:?}");
}

/// What openings find in doubt with all drives, and without the awake half of the second link.
fn found_with_old_roots() -> (Result<Sectors, String>, Result<Sectors, String>) {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, mut at, [_, other]) = with_old_roots(&pairs).await;
        // The tail comes to segments of the first link that the old root does not name.
        pairs.write_until_hop(&chain, &mut at).await;
        pairs.write_some(&chain, &mut at, 20).await;
        let all = after_power_cut(&world, &pairs.drives, (&[], at)).await;
        (all, after_power_cut(&world, &pairs.drives, (&[other ^ 1], at)).await)
    })
}

#[test]
fn the_newest_root_is_found_on_the_half_that_was_awake() {
    let (all, lost) = found_with_old_roots();
    assert!(all.is_ok());
    assert_eq!(lost, all);
}

#[cfg(feature = "plant")]
#[test]
fn a_root_of_a_half_that_slept_is_noticed_if_it_is_believed() {
    use manylogs_plant::{Bug, plant};

    let (all, _) = found_with_old_roots();
    plant(Some(Bug::SleeperRootBelieved));
    let (_, lost) = found_with_old_roots();
    plant(None);
    assert!(lost != all, "{lost:?}");
}

/// The version in both labels of each drive, if they are alike.
async fn label_versions(drives: &[Spindle<CrashDisk>]) -> Vec<u8> {
    let mut versions = Vec::new();
    for drive in drives {
        let extent = Extent::new(0, 1);
        let read = drive.below().submit(Request::Read { extent }).await.unwrap();
        versions.push(read.to_bytes().unwrap()[12]);
    }
    versions.dedup();
    versions
}

#[test]
fn labels_say_that_halves_may_sleep_until_the_chain_is_closed() {
    in_virtual_time(|world| async move {
        let pairs = Pairs::blank(&world, 1000);
        let (chain, _) = pairs.create_with_sleepers().await;
        assert_eq!(pairs.asleep().len(), 2);
        assert_eq!(label_versions(&pairs.drives).await, [6]);
        chain.close().await.unwrap();
        assert_eq!(label_versions(&pairs.drives).await, [2]);
    });
}
