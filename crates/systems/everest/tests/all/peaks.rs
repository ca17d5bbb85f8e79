//! Base volumes and stores on disks that do one request after the other, at their peaks: figures in
//! virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, MemoryDevice, Nanos, Payload, Request,
    Sectors, Time, completion,
};
use manylogs_everest::{
    CircularStore, Lender, Lending, Meter, OffloadOptions, Offloaded, Policy, StoreOptions,
};
use manylogs_sim::{Sim, TaskOrder};

/// Sectors of a base volume, with its header.
const BASE: u64 = 256 + 8192;
/// Sectors of a store.
const STORE: u64 = 64 + 12 * 1024 + 16;

/// A disk that takes the same time for each request.
struct Disk {
    below: Rc<MemoryDevice>,
    runtime: Handle,
    each: Nanos,
    /// When it has done what it was asked for.
    free: Cell<Time>,
}

impl Disk {
    fn metered(runtime: &Handle, sectors: u64, each: Nanos) -> Meter {
        let below = Rc::new(MemoryDevice::new(Sectors(sectors)));
        let disk = Self { below, runtime: runtime.clone(), each, free: Cell::new(Time(0)) };
        Meter::new(runtime.clone(), Rc::new(disk))
    }
}

impl BlockDevice for Disk {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let now = self.runtime.now();
        // There is no cache that could be flushed.
        let each = if matches!(request, Request::Flush) { Nanos(0) } else { self.each };
        let done = self.free.get().max(now) + each;
        self.free.set(done);
        let (below, sleep) = (Rc::clone(&self.below), self.runtime.sleep(done.since(now)));
        let (completer, answer) = completion();
        self.runtime.spawn(async move {
            sleep.await;
            completer.complete(below.submit(request).await);
        });
        answer
    }
}

/// A part of a disk.
struct Part {
    disk: Rc<dyn BlockDevice>,
    extent: Extent,
}

impl BlockDevice for Part {
    fn capabilities(&self) -> Capabilities {
        Capabilities { capacity: self.extent.len, ..self.disk.capabilities() }
    }

    fn submit(&self, request: Request) -> Completion {
        let moved = |extent: Extent| Extent {
            start: self.extent.start + Sectors(extent.start.0),
            ..extent
        };
        self.disk.submit(match request {
            Request::Read { extent } => Request::Read { extent: moved(extent) },
            Request::Write { extent, payload, fua, hint } => {
                Request::Write { extent: moved(extent), payload, fua, hint }
            }
            Request::WriteZeroes { extent, fua, if_fast } => {
                Request::WriteZeroes { extent: moved(extent), fua, if_fast }
            }
            Request::Discard { extent, fua } => Request::Discard { extent: moved(extent), fua },
            Request::Flush => Request::Flush,
        })
    }
}

fn part(disk: &Meter, start: u64, len: u64) -> Rc<dyn BlockDevice> {
    Rc::new(Part { disk: Rc::new(disk.clone()), extent: Extent::new(start, len) })
}

/// A store on a part of a disk. Its load is that of the whole disk.
async fn lent(runtime: &Handle, disk: &Meter, start: u64) -> Rc<dyn Lender> {
    let options = StoreOptions { log: Sectors(1024), table: Sectors(0) };
    let made =
        CircularStore::create(runtime.clone(), vec![part(disk, start, STORE)], options).await;
    Rc::new(Lending::open(made.unwrap(), Some(Rc::new(disk.clone()))).await.unwrap())
}

/// A base volume at the start of a disk.
async fn base(
    runtime: &Handle,
    disk: &Meter,
    stores: Vec<Rc<dyn Lender>>,
    policy: Policy,
) -> Offloaded {
    let device = part(disk, 0, BASE);
    Offloaded::create(runtime, Rc::clone(&device)).await.unwrap();
    let options = OffloadOptions { policy, ..OffloadOptions::default() };
    let volume = Offloaded::open(runtime.clone(), device, stores, options).await.unwrap();
    runtime.sleep(Nanos::from_secs(2)).await;
    volume
}

/// Asks for `count` writes, one after each span of `apart`, whether or not the ones before were
/// answered. Returns the mean time of an answer, and when the last one came.
async fn burst(runtime: Handle, volume: Offloaded, count: u64, apart: Nanos) -> (Nanos, Time) {
    let (sum, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(count)));
    for number in 0..count {
        let (began, place) = (runtime.now(), number * 37 % 1000);
        let content = Payload::tags(number << 4, Sectors(8));
        let write = volume.submit(Request::write_fua(Extent::new(place * 8, 8), content));
        let (sum, left, clock) = (Rc::clone(&sum), Rc::clone(&left), runtime.clone());
        runtime.spawn(async move {
            write.await.unwrap();
            sum.set(sum.get() + clock.now().since(began).0);
            left.set(left.get() - 1);
        });
        runtime.sleep(apart).await;
    }
    while left.get() > 0 {
        runtime.sleep(Nanos::from_millis(1)).await;
    }
    (Nanos(sum.get() / count), runtime.now())
}

/// The mean time of a write in a burst, one each span of `apart`, that a base takes with stores
/// whose disks take so long for each request.
fn mean_with(stores: &[Nanos], apart: Nanos) -> Nanos {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let (runtime, stores) = (sim.handle(node), stores.to_vec());
    sim.block_on(node, async move {
        let disk = Disk::metered(&runtime, BASE, Nanos::from_millis(8));
        let mut lenders = Vec::new();
        for each in stores {
            let disk = Disk::metered(&runtime, STORE, each);
            lenders.push(lent(&runtime, &disk, 0).await);
        }
        let volume = base(&runtime, &disk, lenders, Policy::DEFAULT).await;
        burst(runtime, volume, 1000, apart).await.0
    })
}

/// How much longer a write takes, in the mean, if a store that is ten times slower lends, too: of a
/// store that takes `fast` milliseconds for a write, in a burst with one each `apart` milliseconds.
fn times_with_a_slow_one(fast: u64, apart: u64) -> f64 {
    let (fast, slow) = (Nanos::from_millis(fast), Nanos::from_millis(10 * fast));
    let apart = Nanos::from_millis(apart);
    let mean = |stores: &[Nanos]| mean_with(stores, apart).as_secs_f64() * 1e3;
    let (none, alone, both) = (mean(&[]), mean(&[fast]), mean(&[slow, fast]));
    let times = both / alone;
    println!(
        "{fast:?} each, {apart:?} apart: {none:.0} ms without, {alone:.1} with the fast one, \
         {both:.1} with both: {times:.2}"
    );
    assert!(none > 3.0 * alone, "the store takes the burst");
    times
}

/// Of two stores one is ten times slower: the mean is at most 1.3 times that without it, whether or
/// not the fast store's queue grows.
#[test]
fn a_slow_store_hardly_slows_a_burst() {
    for (fast, apart) in [(1, 2), (2, 4), (2, 3), (2, 2), (2, 1), (3, 2), (5, 2)] {
        let times = times_with_a_slow_one(fast, apart);
        assert!(times <= 1.3, "{times}");
    }
}

/// Stores that are compared by the wait that they tell alone are equal while both are idle.
#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::PaceIgnored));
    let times = times_with_a_slow_one(2, 2);
    plant(None);
    assert!(times > 1.3, "PaceIgnored is not noticed: {times}");
}

/// Two volumes lend to each other and have their peak at the same time. Returns when both had done
/// their writes.
fn both_at_their_peaks(policy: Policy) -> Time {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let disk = || Disk::metered(&runtime, BASE + STORE, Nanos::from_millis(8));
        let (one, two) = (disk(), disk());
        let (of_one, of_two) = (lent(&runtime, &one, BASE).await, lent(&runtime, &two, BASE).await);
        let volumes = [
            base(&runtime, &one, vec![of_two], policy).await,
            base(&runtime, &two, vec![of_one], policy).await,
        ];
        let began = runtime.now();
        let ends = Rc::new(RefCell::new(Vec::new()));
        for volume in volumes {
            let (clock, ends) = (runtime.clone(), Rc::clone(&ends));
            runtime.spawn(async move {
                let (_, end) = burst(clock, volume, 1500, Nanos::from_millis(2)).await;
                ends.borrow_mut().push(end);
            });
        }
        while ends.borrow().len() < 2 {
            runtime.sleep(Nanos::from_millis(1)).await;
        }
        let last = ends.borrow().iter().copied().max().unwrap();
        Time(last.since(began).0)
    })
}

/// If every volume is at its peak, off-loading costs at most 2 % of the throughput.
#[test]
fn off_loading_costs_little_when_every_volume_is_at_its_peak() {
    let (without, with) =
        (both_at_their_peaks(Policy::Never), both_at_their_peaks(Policy::DEFAULT));
    let times = without.0 as f64 / with.0 as f64;
    println!("without {without:?}, with {with:?}: {times:.3} of the throughput");
    assert!(times >= 0.98, "{times}");
}
