//! Without a peak a base volume's device sees what it would see without the layer, at the same
//! instants, and stores and the links to them see nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, Hint, MemoryDevice, Nanos, Payload,
    Request, Rng, Sectors, Signal, Time,
};
use manylogs_everest::{
    Answer, Call, CircularStore, Lender, Lending, Load, OffloadOptions, Offloaded, Reply, StoreId,
    StoreOptions,
};
use manylogs_filters::Delay;
use manylogs_sim::{Sim, TaskOrder};

const CAPACITY: u64 = 8192;
/// Length of the header of a base volume: see `docs/format.md`.
const HEADER: u64 = 256;
/// A request takes so long, and others come so seldom that three never wait together.
const EACH: Nanos = Nanos::from_millis(4);
const APART: Nanos = Nanos::from_millis(3);
const REQUESTS: u64 = 20_000;

/// When a device was asked for what: a name of the request, its first sector, length, and FUA.
type Seen = Vec<(Time, &'static str, u64, u64, bool)>;

/// A device that notes what it is asked for.
struct Watched<D> {
    below: D,
    runtime: Handle,
    seen: Rc<RefCell<Seen>>,
}

impl<D: BlockDevice> BlockDevice for Watched<D> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let extent = request.extent().unwrap_or_default();
        let (name, fua) = match &request {
            Request::Read { .. } => ("read", false),
            Request::Write { fua, .. } => ("write", *fua),
            Request::WriteZeroes { fua, .. } => ("zero", *fua),
            Request::Discard { fua, .. } => ("discard", *fua),
            Request::Flush => ("flush", false),
        };
        let what = (self.runtime.now(), name, extent.start.0, extent.len.0, fua);
        self.seen.borrow_mut().push(what);
        self.below.submit(request)
    }
}

/// A store on a watched device, behind a link that counts its calls.
struct Counted {
    store: Lending,
    calls: Rc<Cell<u64>>,
}

impl Lender for Counted {
    fn id(&self) -> StoreId {
        self.store.id()
    }

    fn longest_write(&self) -> Sectors {
        Lender::longest_write(&self.store)
    }

    fn call(&self, call: Call) -> Answer<Reply> {
        self.calls.set(self.calls.get() + 1);
        self.store.call(call)
    }

    fn load(&self) -> Load {
        self.store.load()
    }

    fn progress(&self) -> &Signal {
        self.store.progress()
    }
}

/// What the base's device was asked for, and how many requests stores and calls there were.
struct Found {
    base: Seen,
    lent: usize,
    calls: u64,
}

/// Requests at times of chance, at places that are apart for as long as they are in flight.
async fn load(runtime: Handle, device: Rc<dyn BlockDevice>) {
    let (mut rng, left) = (Rng::new(7), Rc::new(Cell::new(REQUESTS)));
    for number in 0..REQUESTS {
        runtime.sleep(Nanos(APART.0 + rng.below(2 * APART.0))).await;
        let (fua, len) = (rng.one_in(2), 8 * (1 + rng.below(4)));
        let extent = Extent::new(number % 16 * 256 + 8 * rng.below(28), len);
        let request = match rng.below(10) {
            0..4 => Request::Read { extent },
            4..7 => {
                let payload = Payload::tags(number << 8, Sectors(len));
                Request::Write { extent, payload, fua, hint: Hint::None }
            }
            7 => Request::WriteZeroes { extent, fua, if_fast: false },
            8 => Request::Discard { extent, fua },
            _ => Request::Flush,
        };
        let (answer, left) = (device.submit(request), Rc::clone(&left));
        runtime.spawn(async move {
            answer.await.unwrap();
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        runtime.sleep(EACH).await;
    }
}

fn run(layer: bool) -> Found {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let watched = |sectors: u64, each: Nanos| {
            let memory = MemoryDevice::new(Sectors(sectors));
            let below = Delay::new(runtime.clone(), memory, each);
            let seen = Rc::default();
            let device: Rc<dyn BlockDevice> =
                Rc::new(Watched { below, runtime: runtime.clone(), seen: Rc::clone(&seen) });
            (device, seen)
        };
        let (base, of_base) = watched(HEADER + CAPACITY, EACH);
        let (lent, of_lent) = watched(64 + 9 * 128 + 16, EACH);
        let calls = Rc::new(Cell::new(0));
        let options = StoreOptions { log: Sectors(128), table: Sectors(0) };
        let made = CircularStore::create(runtime.clone(), vec![lent], options).await.unwrap();
        let store = Lending::open(made, None).await.unwrap();
        let far = Rc::new(Counted { store, calls: Rc::clone(&calls) });
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let options = OffloadOptions::default();
        let opened = Offloaded::open(runtime.clone(), Rc::clone(&base), vec![far], options).await;
        let volume = opened.unwrap();
        runtime.sleep(Nanos::from_secs(5)).await;
        assert!(calls.get() > 0, "the store was reached");
        calls.set(0);
        of_base.borrow_mut().clear();
        of_lent.borrow_mut().clear();
        let device: Rc<dyn BlockDevice> = if layer { Rc::new(volume) } else { base };
        load(runtime, device).await;
        Found { base: of_base.take(), lent: of_lent.borrow().len(), calls: calls.get() }
    })
}

/// Overlapping writes alone would differ: the layer does one after the other.
#[test]
fn without_a_peak_the_base_sees_the_same_requests_at_the_same_instants() {
    let (with, without) = (run(true), run(false));
    assert_eq!((with.lent, with.calls), (0, 0), "requests of the lent disk, and calls");
    let discards = |seen: &Seen| seen.iter().filter(|one| one.1 == "discard").count();
    assert_eq!(discards(&without.base), discards(&with.base));
    assert_eq!(with.base.len(), without.base.len());
    for (found, expected) in with.base.iter().zip(&without.base) {
        let at = if expected.1 == "flush" { 0 } else { expected.2 + HEADER };
        let expected = (expected.0, expected.1, at, expected.3, expected.4);
        assert_eq!(*found, expected);
    }
}
