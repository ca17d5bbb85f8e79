//! A store's share of a disk whose own clients wait.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, MemoryDevice, Nanos, Request, Sectors,
};
use manylogs_everest::{DiskLoad, Load, Shared};
use manylogs_filters::Delay;
use manylogs_sim::{Sim, TaskOrder};

/// Time that the disk takes for each request, however many there are.
const EACH: Nanos = Nanos::from_millis(4);
const READ: Request = Request::Read { extent: Extent::new(0, 8) };
const SPAN: Nanos = Nanos::from_secs(10);

/// A disk with requests of its own clients.
#[derive(Clone, Default)]
struct Others(Rc<Cell<u64>>);

impl DiskLoad for Others {
    fn load(&self) -> Load {
        Load { in_flight: self.0.get(), wait: Nanos(self.0.get() * EACH.0) }
    }
}

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(Handle) -> F,
) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node)))
}

/// A store's device with a share of `percent`, and the disk's own clients.
fn shared(runtime: &Handle, percent: u8, others: u64) -> (Shared, Others) {
    let found = Others::default();
    found.0.set(others);
    let disk = Delay::new(runtime.clone(), MemoryDevice::new(Sectors(1024)), EACH);
    let shared = Shared::new(runtime.clone(), Rc::new(disk), Rc::new(found.clone()));
    assert_eq!(shared.percent(), 100, "no bound is the default");
    shared.set_percent(percent);
    (shared, found)
}

/// Reads one after another for a while. Returns the share of the time that the disk worked for
/// them, in per cent.
fn share_taken(percent: u8, others: u64) -> u64 {
    in_virtual_time(move |runtime| async move {
        let (shared, _) = shared(&runtime, percent, others);
        let (until, mut done) = (runtime.now() + SPAN, 0);
        while runtime.now() < until {
            shared.submit(READ).await.unwrap();
            done += 1;
        }
        done * EACH.0 * 100 / SPAN.0
    })
}

#[test]
fn while_others_wait_the_store_has_its_share_and_no_more() {
    for percent in [5, 15, 40, 85] {
        let taken = share_taken(percent, 10);
        // The pause ends up to 2 ms too late, by how often it is looked.
        let least = u64::from(percent) * 3 / 4;
        assert!((least..=u64::from(percent) + 1).contains(&taken), "{percent} %: {taken} %");
    }
}

#[test]
fn nothing_is_held_back_while_nobody_waits_or_without_a_bound() {
    assert_eq!(share_taken(15, 3), 100, "three requests of others are no reason");
    assert_eq!(share_taken(100, 1000), 100, "no bound");
}

/// What comes in a pause goes together, in order; and all of it goes at once when others wait no
/// more.
#[test]
fn requests_gather_and_go_when_nobody_waits() {
    in_virtual_time(|runtime| async move {
        let (shared, others) = shared(&runtime, 5, 10);
        let answered = Rc::new(Cell::new(0));
        let send = |count: u64| {
            for _ in 0..count {
                let (sent, answered) = (shared.submit(READ), Rc::clone(&answered));
                runtime.spawn(async move {
                    sent.await.unwrap();
                    answered.set(answered.get() + 1);
                });
            }
        };
        send(1);
        runtime.sleep(Nanos::from_millis(5)).await;
        assert_eq!(answered.get(), 1, "the first goes at once");
        send(20);
        runtime.sleep(Nanos::from_millis(60)).await;
        assert_eq!((answered.get(), shared.waiting()), (1, 20), "a pause of 76 ms");
        let told = shared.load();
        assert!(told.in_flight == 30 && told.wait > others.load().wait, "{told:?}");
        runtime.sleep(Nanos::from_millis(25)).await;
        assert_eq!((answered.get(), shared.waiting()), (21, 0), "all go together");
        send(20);
        runtime.sleep(Nanos::from_millis(10)).await;
        assert_eq!(answered.get(), 21);
        others.0.set(0);
        runtime.sleep(Nanos::from_millis(7)).await;
        assert_eq!(answered.get(), 41, "nobody waits any more");
        send(1);
        runtime.sleep(Nanos::from_millis(5)).await;
        assert_eq!(answered.get(), 42);
    });
}

/// A disk that takes ten times as long for all but its first sectors.
struct Uneven([Delay<MemoryDevice>; 2]);

const SLOW: Request = Request::Read { extent: Extent::new(512, 8) };

impl BlockDevice for Uneven {
    fn capabilities(&self) -> Capabilities {
        self.0[0].capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let is_slow = matches!(request, Request::Read { extent } if extent.start.0 >= 512);
        self.0[usize::from(is_slow)].submit(request)
    }
}

/// Requests are not gathered any more when the others stop, or when the bound is taken away, though
/// at every moment some are under way.
#[test]
fn gathering_ends_under_load() {
    for bound_goes in [false, true] {
        let done = in_virtual_time(move |runtime| async move {
            let others = Others::default();
            others.0.set(10);
            let disk = [EACH, Nanos(10 * EACH.0)]
                .map(|each| Delay::new(runtime.clone(), MemoryDevice::new(Sectors(1024)), each));
            let (disk, load) = (Rc::new(Uneven(disk)), Rc::new(others.clone()));
            let shared = Shared::new(runtime.clone(), disk, load);
            shared.set_percent(50);
            let counts = [READ, SLOW].map(|read| {
                let (shared, count) = (shared.clone(), Rc::new(Cell::new(0)));
                let counted = Rc::clone(&count);
                runtime.spawn(async move {
                    loop {
                        shared.submit(read.clone()).await.unwrap();
                        counted.set(counted.get() + 1);
                    }
                });
                count
            });
            runtime.sleep(SPAN).await;
            match bound_goes {
                true => shared.set_percent(100),
                false => others.0.set(0),
            }
            runtime.sleep(SPAN).await;
            let before = counts.each_ref().map(|count| count.get());
            runtime.sleep(SPAN).await;
            [counts[0].get() - before[0], counts[1].get() - before[1]]
        });
        let most = |each: Nanos| SPAN.0 / each.0;
        assert!(done[0] > most(EACH) * 9 / 10, "{done:?}");
        assert!(done[1] > most(Nanos(10 * EACH.0)) * 9 / 10, "{done:?}");
    }
}

#[test]
fn a_disk_that_stalls_once_holds_nobody_up_for_long() {
    in_virtual_time(|runtime| async move {
        let found = Others::default();
        found.0.set(10);
        let memory = MemoryDevice::new(Sectors(1024));
        let disk = Rc::new(Delay::new(runtime.clone(), memory, Nanos::from_secs(60)));
        let device = Rc::clone(&disk) as Rc<dyn BlockDevice>;
        let shared = Shared::new(runtime.clone(), device, Rc::new(found));
        shared.set_percent(1);
        shared.submit(READ).await.unwrap();
        disk.set(EACH);
        let began = runtime.now();
        shared.submit(READ).await.unwrap();
        assert!(runtime.now().since(began) < Nanos::from_secs(6));
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::ShareIgnored));
    let taken = share_taken(15, 10);
    plant(None);
    assert_eq!(taken, 100, "a store without a bound");
}
