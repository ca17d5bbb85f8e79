//! One incarnation of a volume: it is opened, clients use it, and it is closed or crashes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::{CreateOptions, DrainOptions, Layout, OpenOptions, PhaseProbe, Volume, VolumeError};
use manylogs_block::{Handle, Rng, Time};
use manylogs_sim::Oracle;

use crate::volume::clients::{World, adopt};
use crate::volume::kept::Kept;
use crate::volume::machine::Machine;
use crate::volume::plan::{Plan, Trouble};
use crate::volume::trouble::{Loss, Told, any_trouble, medium_trouble, opening_trouble};
use crate::volume::victims::heal;

/// Progress of an incarnation, which the clients report to the forks.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    pub(crate) problem: Rc<RefCell<Option<String>>>,
    pub(crate) volume: Rc<RefCell<Option<Volume>>>,
    /// Whether all clients have ended and the other work is done.
    pub(crate) ended: Rc<Cell<bool>>,
    /// Whether the volume was left in order, drained or not: nothing is in flight.
    pub(crate) left: Rc<Cell<bool>>,
    /// Whether the volume is drained.
    pub(crate) drained: Rc<Cell<bool>>,
    pub(crate) operations: Rc<Cell<u64>>,
    /// Time of the last answer to a client.
    pub(crate) answered: Rc<Cell<Time>>,
    /// Number of openings that the device's errors prevented.
    pub(crate) refused: Rc<Cell<u64>>,
    /// Number of openings that succeeded in spite of them.
    pub(crate) opened: Rc<Cell<u64>>,
    /// Whether the devices that fail have copies that do not.
    pub(crate) hidden: Rc<Cell<bool>>,
    /// Description of the device's faults.
    pub(crate) trouble: Rc<RefCell<Option<String>>>,
}

impl Watch {
    pub(crate) fn note(&self, problem: String) {
        self.problem.borrow_mut().get_or_insert(problem);
    }
}

/// Ways in which an incarnation ends, unless a crash comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The volume does background work for this many events, and then crashes.
    Crash(u64),
    Close,
    Drain(DrainOptions),
}

impl End {
    pub(crate) fn draw(rng: &mut Rng, soon: bool) -> Self {
        if soon {
            return match rng.below(5) {
                0..2 => Self::Drain(DrainOptions { wipe: rng.one_in(4) }),
                _ => Self::Crash(rng.below(4)),
            };
        }
        match rng.below(12) {
            0..2 => Self::Close,
            2..4 => Self::Drain(DrainOptions { wipe: rng.one_in(2) }),
            _ => Self::Crash(rng.below(40)),
        }
    }
}

/// Expected behaviour of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Sound,
    /// The device fails requests in this way.
    Failing(Trouble),
    /// The device failed requests in an earlier incarnation.
    Failed,
}

/// Parameters of the tasks of one incarnation.
pub(crate) struct Incarnation {
    pub(crate) plan: Plan,
    pub(crate) fresh: bool,
    pub(crate) device: Device,
    pub(crate) end: End,
    pub(crate) runtime: Handle,
    /// The clock of the devices.
    pub(crate) clock: Handle,
    pub(crate) machine: Machine,
    /// The layout of the last incarnation.
    pub(crate) layout: Option<Layout>,
    pub(crate) oracle: Rc<RefCell<Oracle>>,
    pub(crate) kept: Rc<RefCell<Kept>>,
    pub(crate) told: Told,
    pub(crate) next_tag: Rc<Cell<u64>>,
    pub(crate) rng: Rng,
    pub(crate) watch: Watch,
}

impl Incarnation {
    /// Opens the volume and starts the clients.
    pub(crate) async fn run(mut self) {
        let opened = match self.device {
            Device::Failing(Trouble::Opening) => self.open_in_trouble().await,
            _ => self.open().await.map_err(|error| format!("open: {error}")),
        };
        let volume = match opened {
            Ok(volume) => volume,
            Err(problem) => return self.watch.note(problem),
        };
        let lossy = self.told.lossy.get() || self.told.reads_fail.get();
        if let Err(problem) = adopt(&volume, &self.oracle, self.fresh, lossy).await {
            return self.watch.note(problem);
        }
        self.machine.disk.set_homes(volume.layout());
        self.watch.volume.replace(Some(volume.clone()));
        self.begin_trouble(&volume);
        let world = Rc::new(World {
            plan: self.plan.clone(),
            volume: volume.clone(),
            runtime: self.runtime.clone(),
            oracle: Rc::clone(&self.oracle),
            rng: RefCell::new(self.rng.split()),
            next_tag: Rc::clone(&self.next_tag),
            left: Cell::new(self.plan.operations),
            done: Rc::clone(&self.watch.operations),
            answered: Rc::clone(&self.watch.answered),
            kept: Rc::clone(&self.kept),
            troubled: self.device != Device::Sound,
            told: self.told.clone(),
            refuses: Cell::new(false),
        });
        let this = Rc::new(self);
        let running = Rc::new(Cell::new(this.plan.clients));
        for _ in 0..this.plan.clients {
            let (world, running, this) = (Rc::clone(&world), Rc::clone(&running), Rc::clone(&this));
            this.runtime.clone().spawn(async move {
                if let Err(problem) = world.client().await {
                    this.watch.note(problem);
                }
                running.set(running.get() - 1);
                if running.get() == 0 {
                    this.finish(&world).await;
                }
            });
        }
    }

    async fn open(&self) -> Result<Volume, VolumeError> {
        let runtime = self.runtime.clone();
        if self.fresh {
            let (probe, nvram) = (PhaseProbe::default(), self.machine.nvram());
            let device = self.machine.device(&probe);
            let options = CreateOptions { probe, nvram, ..CreateOptions::default() };
            let created = self.plan.created();
            let volume = Volume::create_with(runtime, device, &created, &options).await?;
            // On an array the volume shortens records to what the log of a column takes.
            self.kept.borrow_mut().create(volume.settings());
            return Ok(volume);
        }
        let options = OpenOptions { config: Some(self.plan.config), ..OpenOptions::default() };
        self.machine.open(runtime, options).await.map(|(volume, _)| volume)
    }

    /// Opens the volume while the device fails reads. That may prevent the opening. In that case
    /// nothing may be lost once the device can be read again.
    async fn open_in_trouble(&mut self) -> Result<Volume, String> {
        let Some(layout) = self.layout.clone() else { return Err("nothing to open".to_owned()) };
        let lossy = self.told.lossy.get();
        let victims = self.machine.disk.victims(&self.clock, &mut self.rng);
        let with = (&mut self.rng, Loss::Possible);
        let words = opening_trouble(&victims.disks, &layout, with, &self.told);
        self.watch.trouble.replace(Some(words));
        if victims.are_hidden {
            self.hide(lossy);
        }
        match self.open().await {
            Ok(volume) => {
                self.watch.opened.set(1);
                Ok(volume)
            }
            Err(error) if victims.are_hidden => Err(format!("open without a member: {error}")),
            Err(VolumeError::NotAVolume) => Err("what cannot be read is called no volume".into()),
            Err(_) => {
                self.watch.refused.set(1);
                heal(&victims.disks);
                self.told.reads_fail.set(false);
                self.told.lossy.set(lossy);
                self.device = Device::Sound;
                self.open().await.map_err(|error| format!("open after the device healed: {error}"))
            }
        }
    }

    fn begin_trouble(&mut self, volume: &Volume) {
        let Device::Failing(trouble @ (Trouble::Medium | Trouble::Any)) = self.device else {
            return;
        };
        let (layout, lossy) = (volume.layout(), self.told.lossy.get());
        let victims = self.machine.disk.victims(&self.clock, &mut self.rng);
        let words = match trouble {
            Trouble::Medium => medium_trouble(&victims.disks, layout, &mut self.rng, &self.told),
            _ => {
                let with = (&mut self.rng, Loss::Possible);
                any_trouble(&victims.disks, layout, with, &self.told)
            }
        };
        self.watch.trouble.replace(Some(words));
        if victims.are_hidden {
            self.hide(lossy);
        }
    }

    /// The array has other copies of all that fails: its user must notice nothing.
    fn hide(&mut self, lossy: bool) {
        self.watch.hidden.set(true);
        self.told.reads_fail.set(false);
        self.told.lossy.set(lossy);
        self.device = Device::Sound;
    }

    /// Ends the incarnation after the clients' last operation.
    async fn finish(&self, world: &World) {
        let flush = self.oracle.borrow_mut().submit_flush();
        let left = match self.end {
            End::Crash(_) => return self.watch.ended.set(true),
            End::Close => world.volume.close().await,
            End::Drain(options) => world.volume.drain(&options).await.map(drop),
        };
        match left {
            // All acknowledged writes are durable now.
            Ok(()) => {
                self.oracle.borrow_mut().acknowledge_flush(flush);
                self.watch.left.set(true);
                self.watch.drained.set(matches!(self.end, End::Drain(_)));
            }
            Err(_) if self.device != Device::Sound => {}
            Err(error) => self.watch.note(format!("{:?}: {error}", self.end)),
        }
        self.watch.ended.set(true);
    }
}
