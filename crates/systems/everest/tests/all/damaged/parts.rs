//! Damage is looked for part by part, and costs nothing but the parts that have it.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Nanos, Payload, Request, Sectors};
use manylogs_everest::{Lender, OffloadOptions, Offloaded, Policy};

use super::SPOILT;
use super::bench::{LONG, block, get, in_virtual_time, lent, put, spoil_tag};

const MINUTE: Nanos = Nanos::from_secs(60);

/// Each of two stores has what the other one does not return.
#[test]
fn a_store_that_fails_for_one_part_is_asked_for_the_others() {
    in_virtual_time(|bench| async move {
        let (slow, second) = lent(&bench.runtime).await;
        let options = OffloadOptions {
            policy: Policy::Always,
            copies: 2,
            reclaim_every: Nanos(1 << 60),
            ..OffloadOptions::default()
        };
        let stores: Vec<Rc<dyn Lender>> =
            vec![Rc::new(bench.store.clone()), Rc::new(second.clone())];
        let base = Rc::clone(&bench.base);
        let opened = Offloaded::open(bench.runtime.clone(), base, stores, options).await;
        let volume = opened.unwrap();
        bench.runtime.sleep(Nanos::from_secs(1)).await;
        for number in 3..=5 {
            put(&volume, block(number), 100 * number).await;
        }
        spoil_tag(&bench.device, (300, 0), Sectors(8)).await;
        spoil_tag(slow.below(), (500, 0), Sectors(8)).await;
        let mut expected = Payload::default();
        (3..=5).for_each(|number| expected.append(Payload::tags(100 * number, Sectors(8))));
        assert_eq!(get(&volume, Extent::new(24, 24)).await, Ok(expected.clone()));
        // The reads began with the other store, too.
        spoil_tag(&bench.device, (400, 0), Sectors(8)).await;
        assert_eq!(get(&volume, Extent::new(24, 24)).await, Ok(expected));
        assert!(bench.device.failed() > 0 && slow.below().failed() + bench.device.failed() > 2);
    });
}

/// A range goes home in pieces of 4 MiB. If the first cannot be read, the others wait for it, and
/// who waits for the store is told so.
#[test]
fn a_damaged_first_piece_of_a_long_range_is_told() {
    in_virtual_time(|bench| async move {
        let all = Extent::new(600, 9_000);
        let volume = bench.opened(false).await;
        put(&volume, all, 60_000).await;
        spoil_tag(&bench.device, (60_000, 16), Sectors(8)).await;
        volume.close().await;
        let (volume, id) = (bench.opened(true).await, bench.store.id());
        let told = bench.runtime.within(MINUTE, volume.remove(id, false)).await;
        let told = told.expect("it ends").unwrap();
        let bad = Extent::new(616, 8);
        assert!(!told.done && told.lost == [bad], "{told:?}");
        let removed = volume.remove(id, true).await.unwrap();
        assert!(removed.done && removed.lost == [bad], "{removed:?}");
        for (from, len) in [(600, 16), (624, 4_000), (4_624, 4_976)] {
            let expected = Payload::tags(60_000, Sectors(9_000));
            let expected = expected.slice(Sectors(from - 600), Sectors(len));
            assert_eq!(get(&volume, Extent::new(from, len)).await, Ok(expected));
        }
    });
}

/// Reads and writes beside what is given up go on while the base notes the loss, which takes its
/// time.
#[test]
fn only_what_is_lost_is_locked() {
    in_virtual_time(|bench| async move {
        let volume = bench.spoiled(&SPOILT).await;
        let id = bench.store.id();
        assert_eq!(volume.remove(id, false).await.unwrap().lost, SPOILT);
        let told = Rc::new(Cell::new(None));
        let (remover, ended) = (volume.clone(), Rc::clone(&told));
        let is_under_way = || {
            let so_far = told.take();
            let is_none = so_far.is_none();
            told.set(so_far);
            is_none
        };
        bench.disk.set(Nanos::from_secs(2));
        let removing = async move { ended.set(Some(remover.remove(id, true).await.unwrap())) };
        bench.runtime.spawn(removing);
        // The locks are taken, and the base notes the loss.
        bench.runtime.sleep(Nanos::from_millis(10)).await;
        let read = Extent { start: LONG.start, len: Sectors(8) };
        let written = Extent { start: LONG.start + Sectors(32), len: Sectors(8) };
        let payload = || Payload::tags(7, Sectors(8));
        let (began, mut waited) = (bench.runtime.now(), Vec::new());
        while is_under_way() && bench.runtime.now().since(began) < MINUTE {
            let before = bench.runtime.now();
            let requests = [Request::Read { extent: read }, Request::write_fua(written, payload())];
            for asked in requests.map(|request| volume.submit(request)) {
                asked.await.unwrap();
            }
            if is_under_way() {
                waited.push(bench.runtime.now().since(before));
            }
            bench.runtime.sleep(Nanos::from_millis(10)).await;
        }
        // The write goes home, where it takes two seconds, and waits for nothing else. Later ones
        // wait for the rest of the range, which goes home, too.
        let first = waited.first().expect("the removal takes its time");
        assert!(*first < Nanos::from_millis(2_100), "a request waited: {waited:?}");
        let removed = told.take().expect("it ends");
        assert!(removed.done && removed.lost == SPOILT, "{removed:?}");
        assert_eq!(get(&volume, written).await, Ok(payload()));
    });
}
