//! A store returns ranges damaged that no other store has: who waits for it to become empty is told
//! so, and may give them up.

mod bench;
mod beside;
mod parts;

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Extent, IoError, Nanos, Payload, Sectors};
use manylogs_everest::{Lender, OffloadError};

use bench::{block, get, in_virtual_time, is_right_beside, put, with_sectors_of};

/// Damages block 3 and an eighth of the long range.
pub(crate) const SPOILT: [Extent; 2] = [block(3), Extent::new(400 + 24, 8)];

/// Whether a wait for a store that has damaged ranges ends, and names them.
fn damage_is_told() -> bool {
    in_virtual_time(|bench| async move {
        let volume = bench.spoiled(&SPOILT).await;
        let id = bench.store.id();
        let removed = bench.runtime.within(Nanos::from_secs(60), volume.remove(id, false)).await;
        let Some(removed) = removed else { return false };
        let removed = removed.unwrap();
        assert!(!removed.done, "{removed:?}");
        assert_eq!(removed.lost, SPOILT, "what can be read went home");
        let reclaimed = bench.runtime.within(Nanos::from_secs(60), volume.reclaim()).await;
        assert!(matches!(reclaimed, Some(Err(IoError::Medium { .. }))), "{reclaimed:?}");
        assert!(is_right_beside(&volume, &SPOILT).await);
        assert!(volume.stores().iter().any(|store| store.id == id), "it is kept");
        assert!(volume.lost().is_empty(), "nothing was accepted");
        true
    })
}

#[test]
fn removing_a_store_ends_if_it_returns_ranges_damaged() {
    assert!(damage_is_told());
}

/// A disk may take seconds for each request that fails. Writes to other ranges go on meanwhile.
#[test]
fn writes_go_on_while_damaged_ranges_are_looked_at() {
    in_virtual_time(|bench| async move {
        let volume = bench.spoiled(&SPOILT).await;
        let id = bench.store.id();
        assert_eq!(volume.remove(id, false).await.unwrap().lost, SPOILT);
        bench.slow.set(Nanos::from_secs(2));
        let (remover, ended) = (volume.clone(), Rc::new(Cell::new(None)));
        let told = Rc::clone(&ended);
        let removing = async move { told.set(Some(remover.remove(id, false).await.unwrap())) };
        bench.runtime.spawn(removing);
        let (began, mut longest) = (bench.runtime.now(), Nanos(0));
        let removed = loop {
            if let Some(removed) = ended.take() {
                break removed;
            }
            let before = bench.runtime.now();
            put(&volume, Extent::new(700, 8), 1).await;
            longest = longest.max(bench.runtime.now().since(before));
            bench.runtime.sleep(Nanos::from_millis(10)).await;
        };
        assert_eq!(removed.lost, SPOILT);
        let took = bench.runtime.now().since(began);
        assert!(took > Nanos::from_secs(4), "the disk was slow: {took:?}");
        assert!(longest < Nanos::from_millis(100), "a write waited for {longest:?}");
    });
}

/// A good range goes home only together with the damaged one in its physical sector: both are
/// stuck, and the damaged one alone is named.
#[test]
fn a_good_range_beside_a_damaged_one_does_not_wait_for_ever() {
    // The damaged range is the second and the first of its sector.
    for bad in [3, 4].map(block) {
        with_sectors_of(16, move |bench| async move {
            let volume = bench.spoiled(&[bad]).await;
            let (id, minute) = (bench.store.id(), Nanos::from_secs(60));
            let reclaimed = bench.runtime.within(minute, volume.reclaim()).await;
            assert!(matches!(reclaimed, Some(Err(IoError::Medium { .. }))), "{reclaimed:?}");
            let removed = bench.runtime.within(minute, volume.remove(id, false)).await;
            let removed = removed.expect("it ends").unwrap();
            assert!(!removed.done && removed.lost == [bad], "{removed:?}");
            let removed = bench.runtime.within(minute, volume.remove(id, true)).await;
            let removed = removed.expect("it ends").unwrap();
            assert!(removed.done && removed.lost == [bad], "{removed:?}");
            assert!(is_right_beside(&volume, &[bad]).await);
        });
    }
}

/// Whether ranges that were given up with their store are errors until they are written, also after
/// a crash that comes next.
fn what_is_given_up_stays_lost() -> bool {
    in_virtual_time(|bench| async move {
        let volume = bench.spoiled(&SPOILT).await;
        let removed = volume.remove(bench.store.id(), true).await.unwrap();
        assert!(removed.done && removed.lost == SPOILT, "{removed:?}");
        assert_eq!(bench.store.held(volume.id()), [], "the store has forgotten them");
        assert!(is_right_beside(&volume, &SPOILT).await);
        // Nothing of an opening that ends without a close is kept but what is on the base.
        drop(volume);
        let volume = bench.alone().await;
        let right = is_right_beside(&volume, &SPOILT).await;
        put(&volume, SPOILT[0], 300).await;
        right && get(&volume, SPOILT[0]).await == Ok(Payload::tags(300, Sectors(8)))
    })
}

#[test]
fn what_is_given_up_reads_as_errors_until_it_is_written() {
    assert!(what_is_given_up_stays_lost());
}

/// The disk of the store reads again, or the range is written anew: then nothing is lost, whatever
/// was accepted.
#[test]
fn what_was_damaged_and_is_not_any_more_goes_home() {
    in_virtual_time(|bench| async move {
        let volume = bench.spoiled(&SPOILT).await;
        let id = bench.store.id();
        assert!(!volume.remove(id, false).await.unwrap().done);
        put(&volume, SPOILT[1], 7_777).await;
        bench.device.clear();
        let removed = volume.remove(id, true).await.unwrap();
        assert!(removed.done && removed.lost.is_empty(), "{removed:?}");
        assert_eq!(get(&volume, block(3)).await, Ok(Payload::tags(300, Sectors(8))));
        assert_eq!(get(&volume, SPOILT[1]).await, Ok(Payload::tags(7_777, Sectors(8))));
        assert_eq!(volume.remove(id, true).await, Ok(removed));
        assert_eq!(
            volume.remove([7; 16], true).await,
            Err(OffloadError::Unknown { store: [7; 16] })
        );
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::DamageNotTold));
    assert!(!damage_is_told());
    plant(Some(Bug::DamageNotNoted));
    assert!(!what_is_given_up_stays_lost());
    plant(None);
}
