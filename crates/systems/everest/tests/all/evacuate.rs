//! Stores that are evacuated: they take no more writes, and are emptied in the background.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, MemoryDevice, Nanos, Payload, Request, Sectors};
use manylogs_everest::{
    BaseLabel, CircularStore, Lender, Lending, OffloadError, OffloadOptions, Offloaded, Policy,
    StoreFigures, StoreId, StoreOptions, StoreState,
};
use manylogs_filters::Delay;
use manylogs_sim::{Sim, TaskOrder};

/// Blocks that are written, of 4 KiB each.
const BLOCKS: u64 = 20;
/// Goes home at once if the base is not busy.
const HOME: OffloadOptions = OffloadOptions {
    policy: Policy::Counts { base: 2, store: 1000 },
    copies: 1,
    patience: Nanos::from_secs(3),
    reconnect_every: Nanos::from_millis(10),
    reclaim_every: Nanos::from_millis(10),
    pass: 4096,
    together: 4,
    calm: Nanos::from_millis(50),
    held_max: Sectors(u64::MAX),
    note_after: Nanos::from_secs(2),
};
/// Every write goes to stores, and stays there.
const STAYS: OffloadOptions =
    OffloadOptions { policy: Policy::Always, reclaim_every: Nanos(1 << 60), ..HOME };

fn in_virtual_time<F: Future<Output = ()> + 'static>(test: impl FnOnce(Handle) -> F) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node)));
}

/// A base volume, each request to which takes 5 ms, and stores.
struct Bench {
    runtime: Handle,
    base: Rc<dyn BlockDevice>,
    stores: Vec<Lending>,
}

impl Bench {
    async fn new(runtime: &Handle, stores: usize) -> Self {
        let slow = Delay::new(
            runtime.clone(),
            MemoryDevice::new(Sectors(256 + 800)),
            Nanos::from_millis(5),
        );
        let base: Rc<dyn BlockDevice> = Rc::new(slow);
        Offloaded::create(runtime, Rc::clone(&base)).await.unwrap();
        let mut bench = Self { runtime: runtime.clone(), base, stores: Vec::new() };
        for _ in 0..stores {
            let disk: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(64 + 9 * 128 + 16)));
            let options = StoreOptions { log: Sectors(128), table: Sectors(0) };
            let made = CircularStore::create(runtime.clone(), vec![disk], options).await.unwrap();
            bench.stores.push(Lending::open(made, None).await.unwrap());
        }
        bench
    }

    /// Opens the base volume, and gives it the time to reach its stores.
    async fn open(&self, options: OffloadOptions) -> Offloaded {
        let lender = |store: &Lending| Rc::new(store.clone()) as Rc<dyn Lender>;
        let stores = self.stores.iter().map(lender).collect();
        let (runtime, base) = (self.runtime.clone(), Rc::clone(&self.base));
        let opened = Offloaded::open(runtime, base, stores, options).await.unwrap();
        self.runtime.sleep(Nanos::from_secs(1)).await;
        opened
    }

    async fn label(&self) -> BaseLabel {
        let identified = Offloaded::identify(&self.runtime, Rc::clone(&self.base)).await;
        identified.unwrap().unwrap()
    }

    fn id(&self, store: usize) -> StoreId {
        Lender::id(&self.stores[store])
    }

    /// Blocks that a store holds of the volume.
    fn held(&self, store: usize, volume: &Offloaded) -> u64 {
        let held = self.stores[store].held(volume.id());
        held.iter().map(|range| range.extent.len.0).sum::<u64>() / 8
    }

    /// Keeps the base busy until `stop` is set. It answers one request after the other.
    fn keep_busy(&self, volume: &Offloaded, stop: &Rc<Cell<bool>>) {
        for nth in 0..8 {
            let (volume, stop) = (volume.clone(), Rc::clone(stop));
            let runtime = self.runtime.clone();
            self.runtime.spawn(async move {
                runtime.sleep(Nanos::from_micros(600 * nth)).await;
                while !stop.get() {
                    let extent = Extent::new(90 * 8, 8);
                    volume.submit(Request::Read { extent }).await.unwrap();
                }
            });
        }
    }

    async fn is_empty_within(&self, volume: &Offloaded, store: usize, most: Nanos) -> bool {
        let until = self.runtime.now() + most;
        while figures(volume, self.id(store)).state != StoreState::Empty {
            if self.runtime.now() > until {
                return false;
            }
            self.runtime.sleep(Nanos::from_millis(10)).await;
        }
        true
    }
}

fn figures(volume: &Offloaded, store: StoreId) -> StoreFigures {
    volume.stores().into_iter().find(|one| one.id == store).unwrap()
}

fn tags(version: u64, block: u64) -> Payload {
    Payload::tags(10_000 * version + 8 * block, Sectors(8))
}

async fn put(volume: &Offloaded, version: u64) {
    for block in 0..BLOCKS {
        let request = Request::write_fua(Extent::new(8 * block, 8), tags(version, block));
        volume.submit(request).await.unwrap();
    }
}

async fn check(volume: &Offloaded, version: u64) {
    for block in 0..BLOCKS {
        let read = volume.submit(Request::Read { extent: Extent::new(8 * block, 8) }).await;
        assert_eq!(read.unwrap(), tags(version, block), "block {block}");
    }
}

/// Nothing goes home, because the base has no time for it.
#[test]
fn at_a_peak_what_a_store_holds_goes_to_others() {
    in_virtual_time(|runtime| async move {
        let bench = Bench::new(&runtime, 3).await;
        let volume = bench.open(OffloadOptions { copies: 2, ..HOME }).await;
        let stop = Rc::default();
        bench.keep_busy(&volume, &stop);
        runtime.sleep(Nanos::from_millis(100)).await;
        put(&volume, 1).await;
        assert_eq!((bench.held(0, &volume), bench.held(2, &volume)), (BLOCKS, 0));
        assert_eq!(figures(&volume, bench.id(0)).left_from, None);
        volume.evacuate(bench.id(0)).await.unwrap();
        assert_eq!(figures(&volume, bench.id(0)).left_from, Some(Sectors(8 * BLOCKS)));
        // Clients go on: some ranges are written anew as they move.
        put(&volume, 2).await;
        assert!(bench.is_empty_within(&volume, 0, Nanos::from_secs(10)).await, "{volume:?}");
        assert!(!bench.label().await.stores.contains(&bench.id(0)));
        let held = [0, 1, 2].map(|store| bench.held(store, &volume));
        assert_eq!(held, [0, BLOCKS, BLOCKS], "two copies of each are elsewhere");
        assert_eq!(volume.figures().reclaimed, 0);
        check(&volume, 2).await;
        // It is emptied, so that this needs no more than a change of the header.
        let from = runtime.now();
        volume.remove(bench.id(0), false).await.unwrap();
        assert!(runtime.now().since(from) < Nanos::from_millis(50));
        assert_eq!(bench.label().await.leaving, Vec::<StoreId>::new());
        stop.set(true);
        runtime.sleep(Nanos::from_secs(5)).await;
        assert_eq!(volume.figures().held, Sectors(0), "the peak is over");
        check(&volume, 2).await;
    });
}

/// With one store of two gone from the choice there is no second copy elsewhere: what is there
/// waits until the base has time.
#[test]
fn without_room_elsewhere_it_waits_and_goes_home() {
    in_virtual_time(|runtime| async move {
        let bench = Bench::new(&runtime, 2).await;
        let volume = bench.open(OffloadOptions { copies: 2, ..HOME }).await;
        let stop = Rc::default();
        bench.keep_busy(&volume, &stop);
        runtime.sleep(Nanos::from_millis(100)).await;
        put(&volume, 1).await;
        volume.evacuate(bench.id(0)).await.unwrap();
        assert!(!bench.is_empty_within(&volume, 0, Nanos::from_secs(5)).await);
        assert_eq!(bench.held(0, &volume), BLOCKS);
        stop.set(true);
        assert!(bench.is_empty_within(&volume, 0, Nanos::from_secs(5)).await, "{volume:?}");
        assert_eq!(volume.figures().moved, 0);
        check(&volume, 1).await;
    });
}

/// The other store refuses what it is sent. Nothing is forgotten before it is elsewhere.
#[test]
fn what_no_other_store_takes_stays_there() {
    in_virtual_time(|runtime| async move {
        let bench = Bench::new(&runtime, 2).await;
        let volume = bench.open(HOME).await;
        let stop = Rc::default();
        bench.keep_busy(&volume, &stop);
        runtime.sleep(Nanos::from_millis(100)).await;
        put(&volume, 1).await;
        assert_eq!(bench.held(0, &volume), BLOCKS);
        bench.stores[1].bound_each(Sectors(0));
        volume.evacuate(bench.id(0)).await.unwrap();
        runtime.sleep(Nanos::from_secs(3)).await;
        assert_eq!((bench.held(0, &volume), bench.held(1, &volume)), (BLOCKS, 0));
        check(&volume, 1).await;
        bench.stores[1].bound_each(Sectors(u64::MAX));
        assert!(bench.is_empty_within(&volume, 0, Nanos::from_secs(5)).await, "{volume:?}");
        assert_eq!(bench.held(1, &volume), BLOCKS, "it is asked again");
        stop.set(true);
        check(&volume, 1).await;
    });
}

/// Evacuates a store that holds something, and opens the base volume again. Whether the store still
/// takes no more writes, and is emptied.
fn goes_on_after_an_opening() -> bool {
    let seen = Rc::new(Cell::new(false));
    let goes_on = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let bench = Bench::new(&runtime, 2).await;
        let volume = bench.open(STAYS).await;
        put(&volume, 1).await;
        assert_eq!(bench.held(0, &volume), BLOCKS, "equally idle: the first takes writes");
        volume.evacuate(bench.id(0)).await.unwrap();
        let unknown = OffloadError::Unknown { store: [7; 16] };
        assert_eq!(volume.evacuate([7; 16]).await, Err(unknown));
        // As after a crash: nobody closes it, which would write the header.
        drop(volume);

        let volume = bench.open(STAYS).await;
        for block in BLOCKS..2 * BLOCKS {
            let request = Request::write_fua(Extent::new(8 * block, 8), tags(1, block));
            volume.submit(request).await.unwrap();
        }
        let (there, elsewhere) = (bench.held(0, &volume), bench.held(1, &volume));
        let left_from = figures(&volume, bench.id(0)).left_from;
        let is_leaving = bench.label().await.leaving == [bench.id(0)];
        volume.close().await;
        if (there, elsewhere, is_leaving) != (BLOCKS, BLOCKS, true) {
            return;
        }
        assert_eq!(left_from, Some(Sectors(8 * BLOCKS)));

        let volume = bench.open(HOME).await;
        assert!(bench.is_empty_within(&volume, 0, Nanos::from_secs(5)).await);
        check(&volume, 1).await;
        volume.close().await;
        // Empty it gets nothing either, until it is called back.
        let volume = bench.open(STAYS).await;
        put(&volume, 2).await;
        assert_eq!(bench.held(0, &volume), 0);
        volume.add(Rc::new(bench.stores[0].clone()), "unix:/one").await.unwrap();
        assert_eq!(bench.label().await.leaving, Vec::<StoreId>::new());
        put(&volume, 3).await;
        assert_eq!(bench.held(0, &volume), BLOCKS);
        check(&volume, 3).await;
        goes_on.set(true);
    });
    seen.get()
}

#[test]
fn an_evacuation_goes_on_after_an_opening() {
    assert!(goes_on_after_an_opening());
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::EvacuationForgotten));
    let goes_on = goes_on_after_an_opening();
    plant(Some(Bug::EvacuatedEarly));
    let stays = std::panic::catch_unwind(what_no_other_store_takes_stays_there).is_ok();
    plant(None);
    assert!(!goes_on, "an evacuation that is not durable is not noticed");
    assert!(!stays, "versions that are forgotten before they are elsewhere are not noticed");
}
