//! A store returns ranges damaged that no other store has: who waits for it to become empty is told
//! so, and may give them up.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request,
    RequestKind, Sectors,
};
use manylogs_everest::{
    CircularStore, Lender, Lending, OffloadError, OffloadOptions, Offloaded, Policy, StoreOptions,
};
use manylogs_filters::{Delay, Faults, Reported, Rule};
use manylogs_sim::{Sim, TaskOrder};

const BLOCKS: u64 = 20;
/// The range of 64 sectors that one write has.
const LONG: Extent = Extent { start: manylogs_block::Lba(400), len: Sectors(64) };
/// Where the store's records lie on its device.
const LOGS: Extent = Extent { start: manylogs_block::Lba(64), len: Sectors(9 * 512) };

type Device = Rc<Faults<MemoryDevice>>;

struct Bench {
    runtime: Handle,
    base: Rc<dyn BlockDevice>,
    device: Device,
    /// Before the device: how long it takes for each request.
    slow: Rc<Delay<Device>>,
    store: Lending,
}

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(Bench) -> F + 'static,
) -> T {
    with_sectors_of(1, test)
}

/// A base volume with physical sectors of so many logical ones.
fn with_sectors_of<T: 'static, F: Future<Output = T> + 'static>(
    physical: u64,
    test: impl FnOnce(Bench) -> F + 'static,
) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let base: Rc<dyn BlockDevice> =
            Rc::new(Reported::new(MemoryDevice::new(Sectors(256 + 800)), move |told| {
                Capabilities { physical_sector: Sectors(physical), ..told }
            }));
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let device = Rc::new(Faults::new(MemoryDevice::new(Sectors(64 + LOGS.len.0 + 16))));
        let slow = Rc::new(Delay::new(runtime.clone(), Rc::clone(&device), Nanos(0)));
        let options = StoreOptions { log: Sectors(512), table: Sectors(0) };
        let disks = vec![Rc::clone(&slow) as Rc<dyn BlockDevice>];
        let made = CircularStore::create(runtime.clone(), disks, options).await.unwrap();
        let store = Lending::open(made, None).await.unwrap();
        test(Bench { runtime, base, device, slow, store }).await
    })
}

impl Bench {
    /// A client whose writes go to the store. What is there goes home if `homeward`.
    async fn opened(&self, homeward: bool) -> Offloaded {
        let options = OffloadOptions {
            policy: if homeward { Policy::Never } else { Policy::Always },
            patience: Nanos::from_secs(1),
            reclaim_every: if homeward { Nanos::from_millis(10) } else { Nanos(1 << 60) },
            ..OffloadOptions::default()
        };
        let stores: Vec<Rc<dyn Lender>> = vec![Rc::new(self.store.clone())];
        let base = Rc::clone(&self.base);
        let opened = Offloaded::open(self.runtime.clone(), base, stores, options).await.unwrap();
        self.runtime.sleep(Nanos::from_secs(1)).await;
        opened
    }

    /// Off-loads blocks and the long range, and damages in the store what `spoils` says: sectors of
    /// the base volume.
    async fn spoiled(&self, spoils: &[Extent]) -> Offloaded {
        let volume = self.opened(false).await;
        for number in 0..BLOCKS {
            put(&volume, block(number), 100 * number).await;
        }
        put(&volume, LONG, 9_000).await;
        let whole = Extent { start: LOGS.start, len: LOGS.len };
        let log = self.device.below().submit(Request::Read { extent: whole }).await.unwrap();
        for spoil in spoils {
            // The tags of the content tell where it lies in the log.
            let of = if LONG.overlaps(*spoil) { 9_000 } else { spoil.start.0 / 8 * 100 };
            let within = if LONG.overlaps(*spoil) { spoil.start.0 - LONG.start.0 } else { 0 };
            let sought = Payload::tags(of, LONG.len).slice(Sectors(within), Sectors(1));
            let at = (0..LOGS.len.0).find(|at| log.slice(Sectors(*at), Sectors(1)) == sought);
            let place = Extent { start: LOGS.start + Sectors(at.unwrap()), len: spoil.len };
            let bad = Rule::new(&[RequestKind::Read], |extent| IoError::Medium { extent });
            self.device.add(bad.within(place));
        }
        volume.close().await;
        self.opened(true).await
    }
}

const fn block(number: u64) -> Extent {
    Extent::new(number * 8, 8)
}

async fn put(volume: &Offloaded, extent: Extent, tag: u64) {
    let payload = Payload::tags(tag, extent.len);
    volume.submit(Request::write_fua(extent, payload)).await.unwrap();
}

async fn get(volume: &Offloaded, extent: Extent) -> Result<Payload, IoError> {
    volume.submit(Request::Read { extent }).await
}

/// Whether all is as it was written but for the lost ranges, which are errors.
async fn is_right_beside(volume: &Offloaded, lost: &[Extent]) -> bool {
    let mut right = true;
    let all = (0..BLOCKS).map(|number| (block(number), 100 * number, 0));
    let long = (0..LONG.len.0 / 8).map(|eighth| {
        (Extent { start: LONG.start + Sectors(8 * eighth), len: Sectors(8) }, 9_000, 8 * eighth)
    });
    for (extent, tag, skip) in all.chain(long) {
        let read = get(volume, extent).await;
        let expected = Payload::tags(tag, LONG.len).slice(Sectors(skip), Sectors(8));
        right &= match lost.iter().any(|lost| lost.overlaps(extent)) {
            true => matches!(read, Err(IoError::Medium { .. })),
            false => read == Ok(expected),
        };
    }
    right
}

/// Damages block 3 and an eighth of the long range.
const SPOILT: [Extent; 2] = [block(3), Extent::new(400 + 24, 8)];

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
        let never = OffloadOptions { policy: Policy::Never, ..OffloadOptions::default() };
        let (runtime, base) = (bench.runtime.clone(), Rc::clone(&bench.base));
        let volume = Offloaded::open(runtime, base, Vec::new(), never).await.unwrap();
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
