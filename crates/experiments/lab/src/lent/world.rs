//! Volumes and stores on modelled drives, and their clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, Sectors, Time,
};
use manylogs_everest::{Lender, Lending, Meter, OffloadOptions, Offloaded};
use manylogs_filters::Part;
use manylogs_sim::{NodeId, Sim, TaskOrder};

use super::case::{LentLoad, LoadAt};
use crate::episodes::EpisodeFailure;
use crate::episodes::devices::{Beginning, HEADER, end_of, lend};
use crate::replay::{DriveSettings, Drives};

/// Stores in the same world are reached sooner.
const REACHED: Nanos = Nanos::from_secs(1);
/// Salt of the seeds of places.
const PLACES: u64 = 0x1e47_ed00;

/// A simulated world with some drives.
pub(super) struct World {
    pub(super) sim: Sim,
    pub(super) host: NodeId,
    pub(super) drives: Vec<Meter>,
}

impl World {
    /// `count` drives, or arrays of them.
    pub(super) fn new(settings: &DriveSettings, count: u64, seed: u64) -> Self {
        let sim = Sim::new(seed, TaskOrder::Fifo);
        let (host, node) = (sim.node(), sim.node());
        let drive = |number: u64| {
            let drives = Drives::new(&sim.handle(node), settings, seed ^ number << 32);
            Meter::new(sim.handle(host), drives.top())
        };
        let drives = (0..count).map(drive).collect();
        Self { sim, host, drives }
    }

    pub(super) fn runtime(&self) -> Handle {
        self.sim.handle(self.host)
    }

    /// A store on the drive of this number: at its end, or from `behind` on. While others wait it
    /// has `share` per cent of the drive's time.
    pub(super) fn lend(
        &self,
        drive: usize,
        behind: Option<Sectors>,
        share: u8,
    ) -> Result<Lending, EpisodeFailure> {
        let (runtime, meter) = (self.runtime(), self.drives[drive].clone());
        let end = end_of(&meter);
        let extent = behind.map_or(end, |from| Extent::new(from.0, end.len.0));
        self.sim.block_on(self.host, async move { lend(&runtime, meter, extent, share).await })
    }

    /// The device on which a base volume of the drive of this number is made.
    pub(super) fn base(&self, drive: usize) -> Rc<dyn BlockDevice> {
        Rc::new(Beginning::new(Rc::new(self.drives[drive].clone()), HEADER))
    }

    /// Makes a base volume, and opens it.
    pub(super) fn borrow(
        &self,
        drive: usize,
        lenders: &[Lending],
        options: OffloadOptions,
    ) -> Result<Offloaded, EpisodeFailure> {
        let (runtime, base) = (self.runtime(), self.base(drive));
        let lenders = shared(lenders);
        self.sim.block_on(self.host, async move {
            Offloaded::create(&runtime, Rc::clone(&base)).await?;
            open_with_stores(runtime, base, lenders, options).await
        })
    }

    /// The device for clients of a plain drive: the drive, or the part where a store would be.
    pub(super) fn plain(&self, drive: usize, at: LoadAt) -> Rc<dyn BlockDevice> {
        let device: Rc<dyn BlockDevice> = Rc::new(self.drives[drive].clone());
        match at {
            LoadAt::Beginning => device,
            LoadAt::End => {
                let extent = end_of(&*device);
                Rc::new(Part::new(device, extent))
            }
        }
    }
}

/// Opens a base volume, and gives it the time to reach its stores: it waits for none.
pub(super) async fn open_with_stores(
    runtime: Handle,
    base: Rc<dyn BlockDevice>,
    lenders: Vec<Rc<dyn Lender>>,
    options: OffloadOptions,
) -> Result<Offloaded, EpisodeFailure> {
    let volume = Offloaded::open(runtime.clone(), base, lenders, options).await?;
    runtime.sleep(REACHED).await;
    Ok(volume)
}

pub(super) fn shared(lenders: &[Lending]) -> Vec<Rc<dyn Lender>> {
    lenders.iter().map(|lender| Rc::new(lender.clone()) as Rc<dyn Lender>).collect()
}

/// Clients of one volume.
pub(super) struct Clients {
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    load: LentLoad,
    rng: RefCell<Rng>,
    next: Cell<u64>,
    /// Requests that were answered in each of two times.
    pub(super) answered: [Cell<u64>; 2],
    running: Cell<u32>,
    failed: RefCell<Option<IoError>>,
}

/// When clients ask, and which answers count.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) counted: [(Time, Time); 2],
}

impl Clients {
    /// Clients of `device`.
    pub(super) fn new(
        world: &World,
        device: Rc<dyn BlockDevice>,
        load: LentLoad,
        seed: u64,
    ) -> Result<Rc<Self>, EpisodeFailure> {
        let capacity = device.capabilities().capacity;
        if load.over > capacity || load.over < load.request {
            return Err(EpisodeFailure::Room { over: load.over, capacity });
        }
        Ok(Rc::new(Self {
            runtime: world.runtime(),
            device,
            load,
            rng: RefCell::new(Rng::new(seed ^ PLACES)),
            next: Cell::default(),
            answered: Default::default(),
            running: Cell::default(),
            failed: RefCell::default(),
        }))
    }

    /// Asks at these times.
    pub(super) fn start(self: &Rc<Self>, times: Times) {
        self.running.set(self.load.depth);
        for _ in 0..self.load.depth {
            let clients = Rc::clone(self);
            self.runtime.spawn(async move { clients.ask(times).await });
        }
    }

    /// Writes `count` requests, each client its share. Ends when all are answered.
    pub(super) fn write_all(self: &Rc<Self>, count: u64) {
        self.running.set(self.load.depth);
        for _ in 0..self.load.depth {
            let clients = Rc::clone(self);
            self.runtime.spawn(async move {
                while clients.next.get() < count && clients.failed.borrow().is_none() {
                    clients.one().await;
                }
                clients.running.set(clients.running.get() - 1);
            });
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.running.get() == 0 || self.failed.borrow().is_some()
    }

    /// The first request that failed, or that clients still wait.
    pub(super) fn failure(&self) -> Result<(), EpisodeFailure> {
        match self.failed.borrow_mut().take() {
            Some(error) => Err(error.into()),
            None if self.running.get() > 0 => Err(EpisodeFailure::Stalled),
            None => Ok(()),
        }
    }

    async fn ask(self: Rc<Self>, times: Times) {
        self.runtime.sleep_until(times.from).await;
        while self.runtime.now() < times.until && self.failed.borrow().is_none() {
            self.one().await;
            let now = self.runtime.now();
            for ((from, until), answered) in times.counted.into_iter().zip(&self.answered) {
                if (from..until).contains(&now) {
                    answered.set(answered.get() + 1);
                }
            }
        }
        self.running.set(self.running.get() - 1);
    }

    async fn one(&self) {
        if let Err(error) = self.device.submit(self.request()).await {
            *self.failed.borrow_mut() = Some(error);
        }
    }

    fn request(&self) -> Request {
        let LentLoad { reads_percent, request, over, sequential, .. } = self.load;
        let (number, places) = (self.next.get(), over.0 / request.0);
        self.next.set(number + 1);
        let rng = &mut *self.rng.borrow_mut();
        let place = if sequential { number % places } else { rng.below(places) };
        let extent = Extent::new(place * request.0, request.0);
        if rng.below(100) < reads_percent {
            return Request::Read { extent };
        }
        let payload = Payload::tags(number << 8, request);
        Request::Write { extent, payload, fua: true, hint: Hint::None }
    }
}
