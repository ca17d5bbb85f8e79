//! A store whose disk is put back to an old state has less than it acknowledged.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request, Sectors,
};
use manylogs_everest::{
    CircularStore, Lender, Lending, OffloadError, OffloadOptions, Offloaded, Policy, StoreOptions,
};
use manylogs_filters::Delay;

use crate::far::{Far, a_base, block, get, in_virtual_time, opened, options, put, staying, tags};

/// A store on a disk that can be put back.
struct Store {
    far: Far,
    disk: Rc<MemoryDevice>,
}

impl Store {
    async fn new(runtime: &Handle) -> Self {
        let log = Sectors(1024);
        let disk = Rc::new(MemoryDevice::new(Sectors(64 + 9 * log.0 + 16)));
        let disks = vec![Rc::clone(&disk) as Rc<dyn BlockDevice>];
        let options = StoreOptions { log, table: Sectors(0) };
        let made = CircularStore::create(runtime.clone(), disks, options).await.unwrap();
        let store = Lending::open(made, None).await.unwrap();
        Self { far: Far { runtime: runtime.clone(), store, link: Rc::default() }, disk }
    }

    /// What the disk holds now.
    async fn image(&self) -> Payload {
        whole(&*self.disk).await
    }

    /// Puts the disk back while the store cannot be reached, and starts the store anew.
    async fn put_back(&mut self, volume: &Offloaded, image: Payload) {
        let runtime = self.far.runtime.clone();
        self.far.set_cut(true);
        // The client learns of the cut when it asks for something.
        drop(get(volume, 1).await);
        self.far.store.store().close().await.unwrap();
        let all = Extent::new(0, image.len().0);
        self.disk.submit(Request::write_fua(all, image)).await.unwrap();
        let disks = vec![Rc::clone(&self.disk) as Rc<dyn BlockDevice>];
        let store = CircularStore::open(runtime.clone(), disks).await.unwrap();
        self.far.store = Lending::open(store, None).await.unwrap();
        self.far.link.swapped.replace(Some(self.far.store.clone()));
        self.far.set_cut(false);
        runtime.sleep(Nanos::from_secs(2)).await;
    }
}

async fn whole(device: &dyn BlockDevice) -> Payload {
    let all = Extent::new(0, device.capabilities().capacity.0);
    device.submit(Request::Read { extent: all }).await.unwrap()
}

/// What a power cut of the client leaves of its base. The client goes on, and its stores serve it
/// no more once the copy is opened.
async fn cut_off(base: &dyn BlockDevice) -> Rc<dyn BlockDevice> {
    let image = whole(base).await;
    let copy = Rc::new(MemoryDevice::new(image.len()));
    copy.submit(Request::write_fua(Extent::new(0, image.len().0), image)).await.unwrap();
    copy
}

/// A base whose block 2 was 5, and a store that has 10 as block 1 and 20 as block 2. Also the
/// store's disk before it had block 2.
async fn a_peak(runtime: &Handle) -> (Rc<dyn BlockDevice>, Store, Offloaded, Payload) {
    let (base, store) = (a_base(runtime).await, Store::new(runtime).await);
    let home = Extent::new(256 + 16, 8);
    base.submit(Request::write_fua(home, tags(5))).await.unwrap();
    let volume = opened(runtime, &base, &[&store.far], staying(Policy::Always)).await.unwrap();
    runtime.sleep(Nanos::from_secs(1)).await;
    put(&volume, 1, 10).await.unwrap();
    let old = store.image().await;
    put(&volume, 2, 20).await.unwrap();
    (base, store, volume, old)
}

/// Options with which nothing goes home for a while.
fn at_leisure() -> OffloadOptions {
    OffloadOptions { reclaim_every: Nanos::from_secs(30), ..staying(Policy::Always) }
}

fn is_lost(read: &Result<Payload, IoError>) -> bool {
    *read == Err(IoError::Medium { extent: block(2) })
}

/// Whether what a store lost is an error: in the opening that found out, and after a crash.
fn lost_blocks_are_errors() -> [bool; 2] {
    let seen = Rc::new(std::cell::Cell::default());
    let found = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let (base, mut store, volume, old) = a_peak(&runtime).await;
        store.put_back(&volume, old).await;
        assert_eq!(get(&volume, 1).await.unwrap(), tags(10));
        let now = is_lost(&get(&volume, 2).await);
        let copy = cut_off(&*base).await;
        let again = opened(&runtime, &copy, &[&store.far], staying(Policy::Always)).await.unwrap();
        assert_eq!(get(&again, 1).await.unwrap(), tags(10));
        found.set([now, is_lost(&get(&again, 2).await)]);
        put(&again, 2, 21).await.unwrap();
        assert_eq!(get(&again, 2).await.unwrap(), tags(21), "what was lost can be written");
        again.reclaim().await.unwrap();
        assert_eq!((again.lost(), again.unnoted_losses()), (Vec::new(), Sectors(0)));
        assert_eq!(get(&again, 2).await.unwrap(), tags(21));
    });
    seen.get()
}

#[test]
fn a_store_that_returns_with_less_is_found_out() {
    assert_eq!(lost_blocks_are_errors(), [true, true]);
}

/// Somebody has put back the wrong copy, and puts the right one back.
#[test]
fn what_was_missing_counts_again_when_it_is_back() {
    in_virtual_time(|runtime| async move {
        let (base, mut store, volume, old) = a_peak(&runtime).await;
        let new = store.image().await;
        store.put_back(&volume, old).await;
        assert!(is_lost(&get(&volume, 2).await));
        store.put_back(&volume, new).await;
        assert_eq!(get(&volume, 2).await.unwrap(), tags(20));
        let copy = cut_off(&*base).await;
        let again = opened(&runtime, &copy, &[&store.far], at_leisure()).await.unwrap();
        assert_eq!(get(&again, 2).await.unwrap(), tags(20));
        again.reclaim().await.unwrap();
        assert_eq!(again.lost(), [], "it is home");
        assert_eq!(get(&again, 2).await.unwrap(), tags(20));
        let removed = again.remove(store.far.id(), false).await.unwrap();
        assert!(removed.done && removed.lost.is_empty());
    });
}

/// The same, while what the wrong copy has goes home, so that the store holds nothing that counts.
/// Once also with an opening in between, and once with a store that stays away for long.
#[test]
fn what_was_missing_counts_again_after_the_rest_has_gone_home() {
    for (opens_anew, is_long) in [(false, false), (true, false), (false, true)] {
        in_virtual_time(async move |runtime| {
            let (base, mut store, volume, old) = a_peak(&runtime).await;
            let new = store.image().await;
            store.put_back(&volume, old).await;
            assert!(is_lost(&get(&volume, 2).await));
            let never_busy = Nanos::from_secs(60);
            let homeward = options(Policy::Wait { base: never_busy, store: never_busy });
            let base = cut_off(&*base).await;
            let mut again = opened(&runtime, &base, &[&store.far], homeward).await.unwrap();
            runtime.sleep(Nanos::from_secs(5)).await;
            assert!(!again.stores()[0].is_listed, "all that it has is home");
            assert!(is_lost(&get(&again, 2).await));
            if opens_anew {
                again.close().await;
                again = opened(&runtime, &base, &[&store.far], homeward).await.unwrap();
                assert!(is_lost(&get(&again, 2).await));
            }
            if is_long {
                store.far.set_cut(true);
                drop(get(&again, 1).await);
                runtime.sleep(Nanos::from_secs(600)).await;
            }
            store.put_back(&again, new).await;
            runtime.sleep(Nanos::from_secs(5)).await;
            assert_eq!(get(&again, 2).await, Ok(tags(20)), "{opens_anew} {is_long}");
            assert_eq!(get(&again, 1).await, Ok(tags(10)));
            runtime.sleep(Nanos::from_secs(60)).await;
            assert_eq!((again.lost(), again.figures().held), (Vec::new(), Sectors(0)));
            let copy = cut_off(&*base).await;
            let last = opened(&runtime, &copy, &[], homeward).await.unwrap();
            assert_eq!(get(&last, 2).await, Ok(tags(20)));
        });
    }
}

/// What was lost is written, and lost again before it is home: the note of the first loss does not
/// hide the version between.
#[test]
fn what_is_lost_twice_is_noted_twice() {
    in_virtual_time(|runtime| async move {
        let (base, mut store, volume, old) = a_peak(&runtime).await;
        store.put_back(&volume, old).await;
        put(&volume, 2, 21).await.unwrap();
        let between = store.image().await;
        put(&volume, 2, 22).await.unwrap();
        store.put_back(&volume, between).await;
        assert!(is_lost(&get(&volume, 2).await));
        let copy = cut_off(&*base).await;
        let again = opened(&runtime, &copy, &[&store.far], staying(Policy::Always)).await.unwrap();
        assert!(is_lost(&get(&again, 2).await), "and not what was there between");
    });
}

/// A store that was away lacks what was written home over its range meanwhile.
#[test]
fn what_is_void_need_not_be_there() {
    in_virtual_time(|runtime| async move {
        let (base, mut store) = (a_base(&runtime).await, Store::new(&runtime).await);
        let empty = store.image().await;
        let volume = opened(&runtime, &base, &[&store.far], at_leisure()).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 1, 10).await.unwrap();
        store.far.set_cut(true);
        drop(get(&volume, 1).await);
        runtime.sleep(Nanos::from_secs(10)).await;
        put(&volume, 1, 11).await.unwrap();
        volume.close().await;
        store.put_back(&volume, empty).await;
        let again = opened(&runtime, &base, &[&store.far], at_leisure()).await.unwrap();
        assert_eq!(get(&again, 1).await, Ok(tags(11)));
    });
}

/// Whether an opening compares a store with what the base noted at the close.
fn compared_at_the_opening() -> bool {
    let seen = Rc::new(std::cell::Cell::default());
    let found = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let (base, mut store, volume, old) = a_peak(&runtime).await;
        volume.close().await;
        let new = store.image().await;
        store.put_back(&volume, old).await;
        let (id, missing) = (store.far.id(), vec![Extent::new(8, 16)]);
        let result = opened(&runtime, &base, &[&store.far], staying(Policy::Always)).await;
        let refused = result.err() == Some(OffloadError::RolledBack { store: id, missing });
        found.set(refused);
        if !refused {
            return;
        }
        store.put_back(&volume, new).await;
        let again = opened(&runtime, &base, &[&store.far], staying(Policy::Always)).await.unwrap();
        assert_eq!(get(&again, 2).await.unwrap(), tags(20));
    });
    seen.get()
}

#[test]
fn a_base_knows_what_its_stores_had() {
    assert!(compared_at_the_opening());
}

/// A write that is under way when the base volume is closed goes home over what a store has, which
/// the base has just noted. The store must not forget it then.
#[test]
fn a_store_keeps_what_is_noted_at_the_close() {
    in_virtual_time(|runtime| async move {
        let (fast, store) = (a_base(&runtime).await, Store::new(&runtime).await);
        let slow = Delay::new(runtime.clone(), fast, Nanos::from_millis(50));
        let base: Rc<dyn BlockDevice> = Rc::new(slow);
        let volume = opened(&runtime, &base, &[&store.far], at_leisure()).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 1, 10).await.unwrap();
        volume.evacuate(store.far.id()).await.unwrap();
        let write = Request::write_fua(block(1), tags(11));
        let under_way = volume.submit(write);
        volume.close().await;
        let answer = under_way.await;
        let again = opened(&runtime, &base, &[&store.far], at_leisure()).await.unwrap();
        let read = get(&again, 1).await.unwrap();
        assert!(read == tags(11) || answer.is_err() && read == tags(10), "{answer:?}");
    });
}

/// Nobody has a newer copy of the store's disk.
#[test]
fn a_store_that_has_less_for_good_is_forgotten() {
    in_virtual_time(|runtime| async move {
        let (base, mut store, volume, old) = a_peak(&runtime).await;
        volume.close().await;
        store.put_back(&volume, old).await;
        let refused = opened(&runtime, &base, &[&store.far], staying(Policy::Always)).await;
        assert!(matches!(refused, Err(OffloadError::RolledBack { .. })));
        let id = store.far.id();
        let forget = |accept| Offloaded::forget_closed(&runtime, Rc::clone(&base), id, accept);
        let asked = forget(false).await.unwrap();
        assert_eq!((asked.done, &asked.lost[..]), (false, &[Extent::new(8, 16)][..]));
        assert!(forget(true).await.unwrap().done);
        let again = opened(&runtime, &base, &[&store.far], staying(Policy::Always)).await.unwrap();
        assert!(is_lost(&get(&again, 2).await));
    });
}

/// More is lost than the header can note: a store that leaves is not dropped without a word.
#[test]
fn losses_without_a_note_are_told_when_a_store_is_removed() {
    in_virtual_time(|runtime| async move {
        let base: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(256 + 8000)));
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let mut store = Store::new(&runtime).await;
        let volume = opened(&runtime, &base, &[&store.far], at_leisure()).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        let old = store.image().await;
        let sector = |number: u64| Extent::new(2 * number, 1);
        let most = 1500;
        for number in 0..most {
            let content = Payload::tags(number, Sectors(1));
            volume.submit(Request::write_fua(sector(number), content)).await.unwrap();
        }
        store.put_back(&volume, old).await;
        runtime.sleep(Nanos::from_secs(20)).await;
        let noted: u64 = volume.lost().iter().map(|lost| lost.len.0).sum();
        assert_eq!(noted + volume.unnoted_losses().0, most);
        println!("the header notes {noted} of {most} lost ranges");
        assert_eq!(noted, 1003, "half of the room, however often it is looked");
        let id = store.far.id();
        let asked = volume.remove(id, false).await.unwrap();
        let named: u64 = asked.lost.iter().map(|lost| lost.len.0).sum();
        assert!(!asked.done && named >= volume.unnoted_losses().0);
        assert!(volume.remove(id, true).await.unwrap().done);
        assert_eq!(volume.unnoted_losses(), Sectors(0));
        let copy = cut_off(&*base).await;
        let again = opened(&runtime, &copy, &[], at_leisure()).await.unwrap();
        for number in 0..most {
            let read = again.submit(Request::Read { extent: sector(number) }).await;
            assert!(read.is_err(), "{number} of {most}");
        }
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;

    use crate::noticed::assert_noticed;
    assert_noticed(Bug::RolledBackBelieved, || lost_blocks_are_errors()[0]);
    assert_noticed(Bug::RollbackNotNoted, || lost_blocks_are_errors()[1]);
    assert_noticed(Bug::NoteNotCompared, compared_at_the_opening);
}
