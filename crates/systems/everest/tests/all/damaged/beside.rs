//! What fails and is not damaged: sectors of the base beside off-loaded ones, and whole disks.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Nanos, Payload, Request, RequestKind, Sectors};
use manylogs_everest::{Forgotten, Lender, OffloadError, OffloadOptions, Policy};
use manylogs_filters::Rule;

use super::bench::{
    HEADER, block, get, in_virtual_time, is_right_beside, lent, put, with_sectors_of,
};

/// The half of a physical sector of the base that is off-loaded, and the other half.
const KEPT: Extent = Extent::new(480, 8);
const BAD: Extent = Extent::new(488, 8);
const MINUTE: Nanos = Nanos::from_secs(60);

fn at_home(extent: Extent) -> Extent {
    Extent { start: extent.start + HEADER, ..extent }
}

fn medium(extent: Extent) -> IoError {
    IoError::Medium { extent }
}

/// Whether a range goes home beside a sector that the base cannot read, which stays unreadable.
fn a_bad_sector_holds_nothing_up() -> bool {
    with_sectors_of(16, |bench| async move {
        let volume = bench.opened(false).await;
        put(&volume, KEPT, 4_800).await;
        put(&volume, block(2), 200).await;
        volume.close().await;
        let unread = Rule::new(&[RequestKind::Read], medium).within(at_home(BAD));
        bench.disk.below().add(unread.until_changed());
        let volume = bench.opened(true).await;
        let id = bench.store.id();
        let removed = bench.runtime.within(MINUTE, volume.remove(id, false)).await;
        let removed = match removed {
            Some(Ok(removed)) => removed,
            None | Some(Err(OffloadError::Base(IoError::Medium { .. }))) => return false,
            removed => panic!("{removed:?}"),
        };
        assert!(removed.done && removed.lost.is_empty(), "{removed:?}");
        assert_eq!(get(&volume, KEPT).await, Ok(Payload::tags(4_800, Sectors(8))));
        assert_eq!(get(&volume, block(2)).await, Ok(Payload::tags(200, Sectors(8))));
        assert_eq!(get(&volume, BAD).await, Err(medium(at_home(BAD))), "it is not made up");
        let home = Request::Read { extent: at_home(KEPT) };
        assert_eq!(bench.base.submit(home).await, Ok(Payload::tags(4_800, Sectors(8))));
        true
    })
}

#[test]
fn a_range_goes_home_beside_a_sector_that_the_base_cannot_read() {
    assert!(a_bad_sector_holds_nothing_up());
}

/// Whether a range stays in its store, and its physical sector at home as it is, if the base
/// returns some of the sectors beside it, and others not: a power cut in the write of a part of
/// the physical sector would take the good ones. All else goes home.
fn a_write_home_risks_no_good_sector() -> bool {
    with_sectors_of(8, |bench| async move {
        let (one, unread) = (Extent::new(480, 1), Extent::new(483, 1));
        let long = Extent::new(488, 12);
        let volume = bench.alone().await;
        put(&volume, Extent::new(480, 24), 1_000).await;
        volume.close().await;
        let volume = bench.opened(false).await;
        for (extent, tag) in [(one, 4_800), (long, 5_000), (block(2), 200)] {
            put(&volume, extent, tag).await;
        }
        volume.close().await;
        let before = bench.base.submit(Request::Read { extent: at_home(one) }).await.unwrap();
        // Of the long range the second physical sector has a bad one, too.
        for bad in [unread, Extent::new(502, 1)] {
            let unread = Rule::new(&[RequestKind::Read], medium).within(at_home(bad));
            bench.disk.below().add(unread.until_changed());
        }
        let volume = bench.opened(true).await;
        let (id, read) = (bench.store.id(), Request::Read { extent: at_home(one) });
        let removed = bench.runtime.within(MINUTE, volume.remove(id, true)).await;
        if bench.base.submit(read).await != Ok(before) {
            return false;
        }
        let Some(Err(OffloadError::Base(IoError::Medium { .. }))) = removed else {
            panic!("{removed:?}");
        };
        bench.runtime.sleep(MINUTE).await;
        let held = bench.store.held(volume.id());
        let kept = [one, Extent::new(496, 4)];
        assert_eq!(held.iter().map(|one| one.extent).collect::<Vec<_>>(), kept);
        assert_eq!(get(&volume, one).await, Ok(Payload::tags(4_800, Sectors(1))));
        assert_eq!(get(&volume, long).await, Ok(Payload::tags(5_000, Sectors(12))));
        // A write of the bad sectors mends them.
        for bad in [unread, Extent::new(502, 1)] {
            put(&volume, bad, 9_000).await;
        }
        let removed = bench.runtime.within(MINUTE, volume.remove(id, false)).await;
        let removed = removed.expect("it ends").unwrap();
        assert!(removed.done && removed.lost.is_empty(), "{removed:?}");
        assert_eq!(get(&volume, one).await, Ok(Payload::tags(4_800, Sectors(1))));
        assert_eq!(get(&volume, long).await, Ok(Payload::tags(5_000, Sectors(12))));
        true
    })
}

#[test]
fn a_range_stays_in_its_store_if_its_way_home_risks_good_sectors() {
    assert!(a_write_home_risks_no_good_sector());
}

/// All others go home, and who waits is told what keeps the last.
#[test]
fn what_the_base_does_not_take_is_told() {
    with_sectors_of(16, |bench| async move {
        let volume = bench.opened(false).await;
        for (extent, tag) in [(block(2), 200), (KEPT, 4_800), (block(90), 9_000)] {
            put(&volume, extent, tag).await;
        }
        volume.close().await;
        let bad = Rule::new(&[RequestKind::Read, RequestKind::Write], medium);
        bench.disk.below().add(bad.within(at_home(KEPT)));
        let volume = bench.opened(true).await;
        let (id, min) = (bench.store.id(), MINUTE);
        let removed = bench.runtime.within(min, volume.remove(id, true)).await;
        let Some(Err(OffloadError::Base(IoError::Medium { .. }))) = removed else {
            panic!("{removed:?}");
        };
        let reclaimed = bench.runtime.within(min, volume.reclaim()).await;
        assert!(matches!(reclaimed, Some(Err(IoError::Medium { .. }))), "{reclaimed:?}");
        let held = bench.store.held(volume.id());
        assert_eq!(held.iter().map(|one| one.extent).collect::<Vec<_>>(), [KEPT]);
        assert!(volume.lost().is_empty(), "the store has it, whatever was accepted");
        for (extent, tag) in [(block(2), 200), (KEPT, 4_800), (block(90), 9_000)] {
            assert_eq!(get(&volume, extent).await, Ok(Payload::tags(tag, Sectors(8))));
        }
        bench.disk.below().clear();
        let removed = volume.remove(id, false).await.unwrap();
        assert!(removed.done && removed.lost.is_empty(), "{removed:?}");
        assert_eq!(get(&volume, KEPT).await, Ok(Payload::tags(4_800, Sectors(8))));
    });
}

/// Whether nothing is lost, whatever was accepted, with a store whose disk fails and says nothing
/// of damage.
fn a_pulled_disk_is_waited_for(error: fn(Extent) -> IoError) -> bool {
    in_virtual_time(move |bench| async move {
        let volume = bench.spoiled(&[]).await;
        volume.close().await;
        let volume = bench.opened(false).await;
        put(&volume, block(3), 300).await;
        put(&volume, block(5), 500).await;
        bench.device.add(Rule::new(&[RequestKind::Read], error));
        volume.close().await;
        let volume = bench.opened(true).await;
        let id = bench.store.id();
        for _ in 0..3 {
            let removed = bench.runtime.within(MINUTE, volume.remove(id, true)).await;
            match removed.expect("it ends") {
                Err(OffloadError::Store { store, .. }) => assert_eq!(store, id),
                Ok(Forgotten { lost, done: true }) if !lost.is_empty() => return false,
                removed => panic!("{removed:?}"),
            }
        }
        let reclaimed = bench.runtime.within(MINUTE, volume.reclaim()).await;
        assert!(matches!(reclaimed, Some(Err(IoError::Transient { .. }))), "{reclaimed:?}");
        let read = get(&volume, block(3)).await;
        assert_eq!(read, Err(IoError::Transient { extent: block(3) }), "it may come back");
        assert!(volume.lost().is_empty());
        bench.device.clear();
        let removed = volume.remove(id, true).await.unwrap();
        removed.done && removed.lost.is_empty() && is_right_beside(&volume, &[]).await
    })
}

/// Whether what was written after ranges that fail goes home, though they are more than a pass has
/// room for, and who waits is told of them once all others are home.
fn failing_ranges_hold_nothing_up() -> bool {
    in_virtual_time(|bench| async move {
        let volume = bench.opened(false).await;
        for number in 0..8 {
            put(&volume, block(2 * number), 100 * number).await;
        }
        volume.close().await;
        let bad = Rule::new(&[RequestKind::Read, RequestKind::Write], medium);
        bench.disk.below().add(bad.within(at_home(Extent::new(0, 5 * 16))));
        let options = OffloadOptions {
            policy: Policy::Never,
            pass: 4,
            reclaim_every: Nanos::from_millis(10),
            ..OffloadOptions::default()
        };
        let volume = bench.opened_as(options).await;
        bench.runtime.sleep(Nanos::from_secs(5)).await;
        let held = || bench.store.held(volume.id()).len();
        if held() != 5 {
            return false;
        }
        let id = bench.store.id();
        let removed = bench.runtime.within(MINUTE, volume.remove(id, true)).await;
        let Some(Err(OffloadError::Base(IoError::Medium { .. }))) = removed else {
            panic!("{removed:?}");
        };
        bench.disk.below().clear();
        let removed = bench.runtime.within(MINUTE, volume.remove(id, false)).await;
        let removed = removed.expect("it ends").unwrap();
        assert!(removed.done && removed.lost.is_empty() && held() == 0, "{removed:?}");
        true
    })
}

#[test]
fn ranges_that_fail_go_after_all_others() {
    assert!(failing_ranges_hold_nothing_up());
}

/// A whole reclaiming tries all ranges before it ends with an error.
#[test]
fn reclaiming_all_tries_what_is_beyond_a_pass() {
    in_virtual_time(|bench| async move {
        let volume = bench.opened(false).await;
        for number in 0..8 {
            put(&volume, block(2 * number), 100 * number).await;
        }
        volume.close().await;
        let bad = Rule::new(&[RequestKind::Read, RequestKind::Write], medium);
        bench.disk.below().add(bad.within(at_home(Extent::new(0, 5 * 16))));
        let (policy, reclaim_every) = (Policy::Always, Nanos(1 << 60));
        let options = OffloadOptions { policy, reclaim_every, pass: 4, ..Default::default() };
        let volume = bench.opened_as(options).await;
        let reclaimed = bench.runtime.within(MINUTE, volume.reclaim()).await;
        assert!(matches!(reclaimed, Some(Err(IoError::Medium { .. }))), "{reclaimed:?}");
        assert_eq!(bench.store.held(volume.id()).len(), 5);
    });
}

/// Beside a store whose disk was pulled another takes writes, and they go home: who waits for the
/// first is told all the same, and who waits for the second is told nothing of the first.
#[test]
fn a_pulled_disk_is_told_beside_a_busy_store() {
    in_virtual_time(|bench| async move {
        let volume = bench.opened(false).await;
        put(&volume, block(3), 300).await;
        bench.device.add(Rule::new(&[RequestKind::Read], |_| IoError::Gone));
        volume.close().await;
        let (_slow, second) = lent(&bench.runtime).await;
        let options = OffloadOptions {
            policy: Policy::Counts { base: 2, store: 1000 },
            reclaim_every: Nanos::from_millis(10),
            calm: Nanos::from_millis(1),
            ..OffloadOptions::default()
        };
        let volume = bench.opened_as(options).await;
        volume.add(Rc::new(second.clone()), "unix:/second").await.unwrap();
        bench.disk.set(Nanos::from_millis(5));
        let (busy, clock) = (volume.clone(), bench.runtime.clone());
        bench.runtime.spawn(async move {
            for number in 0..10_000 {
                let writes = [1, 2, 3, 4].map(|of| {
                    let payload = Payload::tags(of, Sectors(8));
                    busy.submit(Request::write_fua(block(10 * of + number % 10), payload))
                });
                for write in writes {
                    write.await.unwrap();
                }
                clock.sleep(Nanos::from_millis(20)).await;
            }
        });
        let id = bench.store.id();
        let removed = bench.runtime.within(MINUTE, volume.remove(id, true)).await;
        let gone = OffloadError::Store { store: id, source: IoError::Gone.into() };
        assert_eq!(removed, Some(Err(gone)));
        assert!(volume.figures().reclaimed > 0 && volume.figures().offloaded > 0);
        let removed = bench.runtime.within(MINUTE, volume.remove(second.id(), false)).await;
        assert!(matches!(&removed, Some(Ok(removed)) if removed.done), "{removed:?}");
        assert!(volume.lost().is_empty());
    });
}

/// `EIO`, and `ENODEV` or `ENXIO`, as the kernel answers for a disk that is there no more.
const PULLED: [fn(Extent) -> IoError; 2] =
    [|extent| IoError::Transient { extent }, |_| IoError::Gone];

#[test]
fn a_disk_that_was_pulled_is_not_taken_for_damaged() {
    for error in PULLED {
        assert!(a_pulled_disk_is_waited_for(error));
    }
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::BadSectorHoldsAll));
    assert!(!a_bad_sector_holds_nothing_up());
    plant(Some(Bug::BadSectorTakesGood));
    assert!(!a_write_home_risks_no_good_sector());
    plant(Some(Bug::FailedComeFirst));
    assert!(!failing_ranges_hold_nothing_up());
    plant(Some(Bug::FailureIsDamage));
    assert!(!a_pulled_disk_is_waited_for(PULLED[0]));
    plant(None);
}
