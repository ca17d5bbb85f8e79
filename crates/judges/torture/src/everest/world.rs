//! The machines of a world: base volumes and stores on simulated disks, and the links between.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Payload, Request, Rng, Sectors};
use manylogs_everest::{Call, CircularStore, Lender, Lending, Offloaded, StoreOptions};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, NodeId, Sim, Survival};

use super::gone::{Gone, Lost, forget_closed};
use super::plan::{EverestPlan, HEADER, NetPlan};
use super::wire::{Serving, Wire};

/// Content of disks that are not in use: the base volumes' first, then the disks of each store.
#[derive(Clone)]
pub(super) struct Images {
    pub(super) disks: Vec<Vec<DiskImage>>,
    /// Messages that may still arrive, each with the number of its store.
    pub(super) messages: Vec<(usize, Call)>,
    /// The store that is gone for good.
    pub(super) gone: Option<Gone>,
    /// What openings after crashes have lost with it, of each base volume.
    pub(super) lost: Vec<Lost>,
}

impl Images {
    pub(super) fn blank(plan: &EverestPlan) -> Self {
        let blank = |count: usize| vec![DiskImage::default(); count];
        let of_stores = plan.stores.iter().map(|disks| blank(disks.len()));
        let disks = plan.bases.iter().map(|_| blank(1)).chain(of_stores).collect();
        let lost = plan.bases.iter().map(|_| Lost::default()).collect();
        Self { disks, messages: Vec::new(), gone: None, lost }
    }

    /// A hash: equal contents have equal hashes, and other contents different ones, except by rare
    /// chance.
    pub(super) fn fingerprint(&self) -> u64 {
        let mix = |sum: u64, image: &DiskImage| Rng::new(sum ^ image.fingerprint()).next_u64();
        self.disks.iter().flatten().fold(0, mix)
    }
}

/// A machine with its disks. It runs a process, or is down.
pub(super) struct Machine {
    pub(super) node: Cell<NodeId>,
    configs: Vec<CrashDiskConfig>,
    disks: RefCell<Vec<CrashDisk>>,
    /// Number of events of disks that were replaced.
    past: Cell<u64>,
}

impl Machine {
    fn new(sim: &Sim, drive: &Handle, configs: &[CrashDiskConfig], images: &[DiskImage]) -> Self {
        let machine = Self {
            node: Cell::new(sim.node()),
            configs: configs.to_vec(),
            disks: RefCell::default(),
            past: Cell::default(),
        };
        machine.plug_in(drive, images);
        machine
    }

    fn plug_in(&self, drive: &Handle, images: &[DiskImage]) {
        self.past.set(self.events());
        let disks = self.configs.iter().zip(images);
        let disks =
            disks.map(|(config, image)| CrashDisk::new(drive.clone(), *config, image.clone()));
        self.disks.replace(disks.collect());
    }

    /// Number of submissions and completions of the disks.
    pub(super) fn events(&self) -> u64 {
        let now: u64 = self.disks.borrow().iter().map(CrashDisk::events).sum();
        self.past.get() + now
    }

    /// The content of its disks if its processes are killed now, or its power is cut.
    pub(super) fn after_crash(&self, rng: &mut Rng) -> Vec<DiskImage> {
        let killed = rng.one_in(2);
        let mut crash = |disk: &CrashDisk| {
            if killed {
                return disk.after_kill(rng);
            }
            let survival = match rng.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random,
            };
            disk.after_power_cut(survival, rng)
        };
        self.disks.borrow().iter().map(&mut crash).collect()
    }

    /// Crashes the machine. It gets a new node, on which nothing runs.
    pub(super) fn crash(&self, sim: &Sim, drive: &Handle, rng: &mut Rng) {
        let images = self.after_crash(rng);
        sim.kill(self.node.get());
        self.node.set(sim.node());
        self.plug_in(drive, &images);
    }

    pub(super) fn disks(&self) -> Vec<CrashDisk> {
        self.disks.borrow().clone()
    }

    fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        let device = |disk: &CrashDisk| Rc::new(disk.clone()) as Rc<dyn BlockDevice>;
        self.disks.borrow().iter().map(device).collect()
    }
}

/// All machines, and the processes of the stores.
pub(super) struct Machines {
    pub(super) drive: Handle,
    net: Handle,
    pub(super) bases: Vec<Machine>,
    pub(super) stores: Vec<Machine>,
    pub(super) serving: Vec<Serving>,
    /// The links of each base to each store, once the stores are known.
    pub(super) wires: RefCell<Vec<Vec<Wire>>>,
    /// Why a store did not open.
    pub(super) problem: Rc<RefCell<Option<String>>>,
    /// Number of stores that were closed in order.
    pub(super) closed: Rc<Cell<u64>>,
    /// The store that is gone for good.
    pub(super) gone: Rc<RefCell<Option<Gone>>>,
    /// What openings after crashes lose with it, of each base volume.
    pub(super) lost: Vec<Lost>,
    /// How often a note on a closed base volume said what is lost.
    pub(super) noted: Rc<Cell<u64>>,
}

impl Machines {
    pub(super) fn new(sim: &Sim, plan: &EverestPlan, images: &Images) -> Self {
        let (drive, net) = (sim.handle(sim.node()), sim.handle(sim.node()));
        let (of_bases, of_stores) = images.disks.split_at(plan.bases.len());
        let base = |(config, images): (&CrashDiskConfig, &Vec<DiskImage>)| {
            Machine::new(sim, &drive, std::slice::from_ref(config), images)
        };
        let store = |(configs, images): (&Vec<CrashDiskConfig>, &Vec<DiskImage>)| {
            Machine::new(sim, &drive, configs, images)
        };
        Self {
            bases: plan.bases.iter().zip(of_bases).map(base).collect(),
            stores: plan.stores.iter().zip(of_stores).map(store).collect(),
            serving: plan.stores.iter().map(|_| Serving::default()).collect(),
            wires: RefCell::default(),
            problem: Rc::default(),
            closed: Rc::default(),
            gone: Rc::new(RefCell::new(images.gone.clone())),
            lost: images.lost.iter().map(Lost::copy).collect(),
            noted: Rc::default(),
            drive,
            net,
        }
    }

    pub(super) fn events(&self) -> (u64, u64) {
        let sum = |machines: &[Machine]| machines.iter().map(Machine::events).sum();
        (sum(&self.bases), sum(&self.stores))
    }

    /// The content of the disks if all machines crash now, each in its own way.
    pub(super) fn after_crash(&self, rng: &mut Rng) -> Images {
        let machines = self.bases.iter().chain(&self.stores);
        let disks = machines.map(|machine| machine.after_crash(rng)).collect();
        let mut messages = Vec::new();
        for wires in self.wires.borrow().iter() {
            for (store, wire) in wires.iter().enumerate() {
                messages.extend(wire.under_way().into_iter().map(|call| (store, call)));
            }
        }
        let lost = self.lost.iter().map(Lost::copy).collect();
        Images { disks, messages, gone: self.gone.borrow().clone(), lost }
    }

    /// Ends the history: this is wrong.
    pub(super) fn object(&self, what: String) {
        self.problem.borrow_mut().get_or_insert(what);
    }

    /// Whether the store is gone for good.
    pub(super) fn is_gone(&self, store: usize) -> bool {
        self.gone.borrow().as_ref().is_some_and(|gone| gone.store == store)
    }

    /// Whether all stores are up that are not gone for good.
    pub(super) fn are_up(&self) -> bool {
        let mut stores = self.serving.iter().enumerate();
        stores.all(|(store, serving)| serving.is_up() || self.is_gone(store))
    }

    /// Starts all stores that are not gone for good.
    pub(super) fn start_stores(&self, sim: &Sim, plan: &EverestPlan, fresh: bool) {
        let here = (0..plan.stores.len()).filter(|store| !self.is_gone(*store));
        here.for_each(|store| self.start_store(sim, plan, store, fresh));
    }

    /// No store holds more of a base volume than its bound.
    pub(super) fn check_bounds(&self, each: Sectors) -> Result<(), String> {
        for (store, serving) in self.serving.iter().enumerate() {
            let Some((_, lending)) = serving.get() else { continue };
            if let Some((_, held)) = lending.clients().iter().find(|(_, held)| *held > each) {
                return Err(format!(
                    "store {store} holds {} sectors of a base volume, and {} are its bound",
                    held.0, each.0
                ));
            }
        }
        Ok(())
    }

    /// Forgets the store that is gone for good on a base volume that is closed.
    pub(super) async fn forget_closed(
        &self,
        runtime: &Handle,
        base: usize,
        gone: &Gone,
        lost: &Lost,
    ) -> Result<(), String> {
        let disk = Rc::clone(&self.bases[base].devices()[0]);
        let lose = |sectors| lost.add(sectors);
        let whole = Extent::new(0, disk.capabilities().capacity.0 - HEADER.0);
        let id = gone.held.get(base).map(|(id, _)| *id).unwrap_or_default();
        let known = forget_closed(runtime, disk, gone, (id, whole), lose).await?;
        self.noted.set(self.noted.get() + u64::from(known));
        Ok(())
    }

    /// Starts the process of a store. If it is `fresh`, the store is made first.
    pub(super) fn start_store(&self, sim: &Sim, plan: &EverestPlan, store: usize, fresh: bool) {
        let machine = sim.handle(self.stores[store].node.get());
        let (devices, serving) = (self.stores[store].devices(), self.serving[store].clone());
        let options = StoreOptions { log: plan.log, table: plan.table };
        let problem = Rc::clone(&self.problem);
        let (runtime, each) = (machine.clone(), plan.each);
        machine.spawn(async move {
            let opened = if fresh {
                CircularStore::create(runtime.clone(), devices, options).await
            } else {
                CircularStore::open(runtime.clone(), devices).await
            };
            let opened = match opened {
                Ok(store) => Lending::open(store, None).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match opened {
                Ok(lending) => {
                    lending.bound_each(each);
                    serving.set(Some((runtime, lending)));
                }
                Err(error) => {
                    problem.borrow_mut().get_or_insert(format!("store {store}: {error}"));
                }
            }
        });
    }

    pub(super) fn crash_store(&self, sim: &Sim, store: usize, rng: &mut Rng) {
        self.serving[store].set(None);
        self.stores[store].crash(sim, &self.drive, rng);
    }

    /// Begins to close a store in order, as a lent part's server does at its end: calls that arrive
    /// from now on are lost, and those that have begun go on.
    pub(super) fn close_store(&self, store: usize) {
        let Some((runtime, lending)) = self.serving[store].get() else { return };
        self.serving[store].set(None);
        let closed = Rc::clone(&self.closed);
        runtime.spawn(async move {
            // A store whose device fails leaves no table.
            if lending.store().close().await.is_ok() {
                closed.set(closed.get() + 1);
            }
        });
    }

    /// Links every base to every store. All stores must be up.
    pub(super) fn link(&self, plan: NetPlan, rng: &mut Rng) {
        let mut wires = Vec::new();
        for _ in &self.bases {
            let gone = self.gone.borrow();
            let link = |(store, serving): (usize, &Serving)| {
                let (mut id, longest) = serving.identity();
                if let Some(gone) = gone.as_ref().filter(|gone| gone.store == store) {
                    id = gone.id;
                }
                let net = self.net.clone();
                let to = (serving.clone(), Rc::clone(&self.problem));
                Wire::new(net, plan, rng.split(), id, longest, to)
            };
            wires.push(self.serving.iter().enumerate().map(link).collect());
        }
        self.wires.replace(wires);
    }

    /// Opens a base volume. If it is `fresh`, the volume is made first.
    pub(super) fn open_base(
        &self,
        sim: &Sim,
        plan: &EverestPlan,
        base: usize,
        fresh: bool,
    ) -> impl Future<Output = Result<Offloaded, String>> + use<> {
        let runtime = sim.handle(self.bases[base].node.get());
        let disk = Rc::clone(&self.bases[base].devices()[0]);
        let lender = |wire: &Wire| Rc::new(wire.clone()) as Rc<dyn Lender>;
        let stores: Vec<_> = self.wires.borrow()[base].iter().map(lender).collect();
        let options = plan.options;
        async move {
            if fresh {
                let made = Offloaded::create(&runtime, Rc::clone(&disk)).await;
                made.map_err(|error| format!("create: {error}"))?;
            }
            let opened = Offloaded::open(runtime, disk, stores, options).await;
            opened.map_err(|error| format!("open: {error}"))
        }
    }
}

/// Opens a base volume; if it needs the store that is gone for good, that is forgotten before.
pub(super) async fn open_or_forget(
    machines: Rc<Machines>,
    runtime: Handle,
    base: usize,
    attempts: [impl Future<Output = Result<Offloaded, String>>; 2],
) -> Result<Offloaded, String> {
    let [first, second] = attempts;
    let failed = match first.await {
        Ok(volume) => return Ok(volume),
        Err(error) => error,
    };
    let gone = machines.gone.borrow().clone();
    let Some(gone) = gone else { return Err(failed) };
    machines.forget_closed(&runtime, base, &gone, &machines.lost[base]).await?;
    second.await
}

/// Reads the whole content of a volume. Sectors that are lost are absent.
pub(super) async fn read_all(volume: &Offloaded) -> Result<Payload, String> {
    let capacity = volume.capabilities().capacity;
    let failed = |error: IoError| format!("read: {error}");
    let read = |extent| volume.submit(Request::Read { extent });
    match read(Extent::new(0, capacity.0)).await {
        Err(IoError::Medium { .. }) => {}
        other => return other.map_err(failed),
    }
    let mut content = Payload::default();
    for sector in 0..capacity.0 {
        content.append(match read(Extent::new(sector, 1)).await {
            Err(IoError::Medium { .. }) => Payload::absent(Sectors(1)),
            other => other.map_err(failed)?,
        });
    }
    Ok(content)
}
