//! The machines of a world: base volumes and stores on simulated disks, and the links between.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Payload, Request, Rng};
use manylogs_everest::{Call, CircularStore, Lender, Lending, Offloaded, StoreOptions};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, NodeId, Sim, Survival};

use super::plan::{EverestPlan, NetPlan};
use super::wire::{Serving, Wire};

/// Content of disks that are not in use: the base volumes' first, then the disks of each store.
#[derive(Clone)]
pub(super) struct Images {
    pub(super) disks: Vec<Vec<DiskImage>>,
    /// Messages that may still arrive, each with the number of its store.
    pub(super) messages: Vec<(usize, Call)>,
}

impl Images {
    pub(super) fn blank(plan: &EverestPlan) -> Self {
        let blank = |count: usize| vec![DiskImage::default(); count];
        let of_stores = plan.stores.iter().map(|disks| blank(disks.len()));
        let disks = plan.bases.iter().map(|_| blank(1)).chain(of_stores).collect();
        Self { disks, messages: Vec::new() }
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
        Images { disks, messages }
    }

    /// Starts the process of a store. If it is `fresh`, the store is made first.
    pub(super) fn start_store(&self, sim: &Sim, plan: &EverestPlan, store: usize, fresh: bool) {
        let machine = sim.handle(self.stores[store].node.get());
        let (devices, serving) = (self.stores[store].devices(), self.serving[store].clone());
        let options = StoreOptions { log: plan.log, table: plan.table };
        let problem = Rc::clone(&self.problem);
        let runtime = machine.clone();
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
                Ok(lending) => serving.set(Some((runtime, lending))),
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
            let link = |serving: &Serving| {
                let (id, longest) = serving.identity();
                let net = self.net.clone();
                Wire::new(net, plan, rng.split(), id, longest, serving.clone())
            };
            wires.push(self.serving.iter().map(link).collect());
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

/// Reads the whole content of a volume.
pub(super) async fn read_all(volume: &Offloaded) -> Result<Payload, String> {
    let extent = Extent::new(0, volume.capabilities().capacity.0);
    let read = volume.submit(Request::Read { extent }).await;
    read.map_err(|error| format!("read: {error}"))
}
