//! One life of a world: machines start, crash apart and start again, and links are cut.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{Nanos, Rng, Time};
use manylogs_everest::{Lender, Offloaded};
use manylogs_sim::Sim;

use super::clients::Volume;
use super::gone::Gone;
use super::leaving::Seen;
use super::opening::Opening;
use super::plan::EverestPlan;
use super::trouble::Trouble;
use super::world::Machines;

/// The longest time that a machine is down or a link is cut.
const DOWN_MAX: Nanos = Nanos::from_secs(1);
/// Time in which a crash hits most stores that are being closed.
const CLOSING_MAX: Nanos = Nanos::from_millis(20);
/// The most outages at a time, and in a life: more would leave no time for work.
const AT_A_TIME: usize = 2;
const OUTAGES_MAX: u64 = 40;
/// Attempts to open a base volume whose stores cannot be reached.
const OPENINGS: u32 = 20;

/// An outage, which ends later.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Store(usize),
    /// A store is closed in order, and crashes in that or after it.
    Closing(usize),
    Base(usize),
    Cut(usize, usize),
    /// A store is gone for good.
    Gone,
}

pub(super) struct Life {
    plan: EverestPlan,
    pub(super) machines: Rc<Machines>,
    volumes: Vec<Volume>,
    fresh: bool,
    /// The trouble that the devices make once the stores are in use.
    pub(super) trouble: Option<(Trouble, Rng)>,
    linked: bool,
    /// Running tasks of each base volume's clients; `None` until the volume was opened and
    /// compared.
    running: Vec<Rc<Cell<Option<u64>>>>,
    /// Whether every base volume has existed: from then on it must be found.
    born: Cell<bool>,
    problem: Rc<RefCell<Option<String>>>,
    next_outage: Time,
    outages: Vec<(Time, Outage)>,
    crashes: u64,
    opened: Rc<RefCell<Vec<Option<Offloaded>>>>,
    /// How often a store that is gone was forgotten, by open volumes and closed ones.
    pub(super) forgotten: Rc<Cell<u64>>,
    pub(super) forgotten_closed: Rc<Cell<u64>>,
    pub(super) seen: Rc<Seen>,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Life")
            .field("outages", &self.outages)
            .field("running", &self.running)
            .field("opened", &self.opened.borrow())
            .finish_non_exhaustive()
    }
}

impl Life {
    pub(super) fn new(
        plan: &EverestPlan,
        machines: Rc<Machines>,
        volumes: Vec<Volume>,
        fresh: bool,
    ) -> Self {
        let running = volumes.iter().map(|_| Rc::default()).collect();
        let opened = Rc::new(RefCell::new(vec![None; volumes.len()]));
        Self {
            plan: plan.clone(),
            machines,
            volumes,
            fresh,
            trouble: None,
            linked: false,
            running,
            born: Cell::new(!fresh),
            problem: Rc::default(),
            next_outage: Time(0),
            outages: Vec::new(),
            crashes: 0,
            opened,
            forgotten: Rc::default(),
            forgotten_closed: Rc::default(),
            seen: Rc::default(),
        }
    }

    pub(super) fn begin(&self, sim: &Sim) {
        self.machines.start_stores(sim, &self.plan, self.fresh);
    }

    pub(super) fn is_born(&self) -> bool {
        self.born.get()
    }

    /// Whether all clients have ended.
    pub(super) fn is_over(&self) -> bool {
        self.linked && self.running.iter().all(|running| running.get() == Some(0))
    }

    pub(super) fn has_problem(&self) -> bool {
        self.problem.borrow().is_some() || self.machines.problem.borrow().is_some()
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.problem.take().or_else(|| self.machines.problem.take())
    }

    /// Called after each step of the world.
    pub(super) fn step(&mut self, sim: &Sim, rng: &mut Rng) {
        if !self.linked {
            if self.machines.are_up() {
                self.linked = true;
                self.machines.link(self.plan.net, rng);
                self.bar_evacuated();
                (0..self.volumes.len()).for_each(|base| self.start_base(sim, base, self.fresh));
                self.next_outage = sim.now() + self.plan.outages;
            }
            return;
        }
        if !self.born.get() {
            self.born.set(self.running.iter().all(|running| running.get().is_some()));
            self.next_outage = sim.now() + self.plan.outages;
            return;
        }
        self.begin_trouble();
        self.end_outages(sim, rng);
        let few = self.outages.len() < AT_A_TIME && self.crashes < OUTAGES_MAX;
        let may = self.plan.outages.0 > 0 && few && !self.is_over();
        if may && sim.now() >= self.next_outage {
            self.begin_outage(sim, rng);
        }
    }

    /// Makes devices fail once all volumes are open.
    fn begin_trouble(&mut self) {
        let open = self.running.iter().all(|running| running.get().is_some());
        if open && let Some((trouble, mut rng)) = self.trouble.take() {
            trouble.begin(&self.machines.stores[0].disks(), self.plan.log, &mut rng);
        }
    }

    fn end_outages(&mut self, sim: &Sim, rng: &mut Rng) {
        let now = sim.now();
        let (over, on): (Vec<_>, Vec<_>) = self.outages.iter().partition(|(end, _)| *end <= now);
        self.outages = on;
        for (_, outage) in over {
            match outage {
                Outage::Gone => {}
                Outage::Store(store) | Outage::Closing(store) if self.machines.is_gone(store) => {}
                Outage::Store(store) => self.machines.start_store(sim, &self.plan, store, false),
                Outage::Closing(store) => {
                    self.machines.crash_store(sim, store, rng);
                    self.machines.start_store(sim, &self.plan, store, false);
                }
                Outage::Base(base) => self.start_base(sim, base, false),
                Outage::Cut(base, store) => {
                    self.machines.wires.borrow()[base][store].set_cut([false; 2]);
                }
            }
        }
    }

    /// Begins to close all stores that are up.
    pub(super) fn close_stores(&self) {
        (0..self.plan.stores.len()).for_each(|store| self.machines.close_store(store));
    }

    fn begin_outage(&mut self, sim: &Sim, rng: &mut Rng) {
        let now = sim.now();
        self.next_outage = now + Nanos(1 + rng.below(2 * self.plan.outages.0));
        let base = manylogs_block::to_usize(rng.below(self.volumes.len() as u64));
        let store = manylogs_block::to_usize(rng.below(self.plan.stores.len() as u64));
        let outage = match rng.below(4) {
            0 if self.goes_for_good(store) && rng.one_in(2) => {
                self.lose_store(sim, store, rng);
                Outage::Gone
            }
            0 if self.machines.serving[store].is_up() => {
                match self.plan.table.0 > 0 && rng.one_in(2) {
                    true => {
                        self.machines.close_store(store);
                        Outage::Closing(store)
                    }
                    false => {
                        self.machines.crash_store(sim, store, rng);
                        Outage::Store(store)
                    }
                }
            }
            1 if !self
                .outages
                .iter()
                .any(|(_, on)| matches!(on, Outage::Base(b) if *b == base)) =>
            {
                self.machines.bases[base].crash(sim, &self.machines.drive, rng);
                self.running[base] = Rc::default();
                Outage::Base(base)
            }
            _ => {
                let cut = [[true, false], [false, true], [true, true]];
                let cut = cut[manylogs_block::to_usize(rng.below(3))];
                self.machines.wires.borrow()[base][store].set_cut(cut);
                Outage::Cut(base, store)
            }
        };
        self.crashes += 1;
        let longest = match outage {
            // Some stores crash while they are closed.
            Outage::Closing(_) if rng.one_in(2) => CLOSING_MAX,
            _ => DOWN_MAX,
        };
        let end = now + Nanos(1 + rng.below(longest.0));
        self.outages.push((end, outage));
        // Timers make time pass, whatever the machines do.
        for alarm in [end, self.next_outage] {
            let clock = self.machines.drive.clone();
            self.machines.drive.spawn(async move { clock.sleep_until(alarm).await });
        }
    }

    /// No writes go to stores that were evacuated in earlier lives.
    fn bar_evacuated(&self) {
        for (wires, volume) in self.machines.wires.borrow().iter().zip(&self.volumes) {
            wires.iter().for_each(|wire| wire.bar(volume.evacuated.has(wire.id())));
        }
    }

    /// Whether this store may go for good now: one does in a history, while all volumes are open,
    /// so that it is known what it holds of each.
    fn goes_for_good(&self, store: usize) -> bool {
        let all_open = self.opened.borrow().iter().all(Option::is_some);
        let free = self.machines.gone.borrow().is_none();
        self.plan.loses && all_open && free && self.machines.serving[store].is_up()
    }

    fn lose_store(&self, sim: &Sim, store: usize, rng: &mut Rng) {
        let Some((_, lending)) = self.machines.serving[store].get() else { return };
        let opened = self.opened.borrow();
        let held = |(volume, device): (&Volume, &Offloaded)| {
            let ranges = lending.held(device.id());
            volume.held.add(ranges.iter().flat_map(|range| range.extent.range()));
            volume.has_loss.set(true);
            (device.id(), volume.held.clone())
        };
        let had = |device: &Offloaded| {
            let ranges = lending.held(device.id());
            (device.id(), ranges.iter().flat_map(|range| range.extent.range()).collect())
        };
        let had = opened.iter().flatten().map(had).collect();
        let held = self.volumes.iter().zip(opened.iter().flatten()).map(held).collect();
        let forget_at = sim.now() + Nanos(rng.below(2 * DOWN_MAX.0));
        let id = self.machines.serving[store].identity().0;
        self.machines.gone.replace(Some(Gone { store, id, forget_at, held, had }));
        self.machines.crash_store(sim, store, rng);
    }

    /// Opens a base volume, compares its content, and starts its clients.
    fn start_base(&self, sim: &Sim, base: usize, fresh: bool) {
        let clock = sim.handle(self.machines.bases[base].node.get());
        let opening = Opening {
            base,
            clock: clock.clone(),
            plan: self.plan.clone(),
            machines: Rc::clone(&self.machines),
            volume: self.volumes[base].clone(),
            running: Rc::clone(&self.running[base]),
            problem: Rc::clone(&self.problem),
            opened: Rc::clone(&self.opened),
            forgotten: Rc::clone(&self.forgotten),
            forgotten_closed: Rc::clone(&self.forgotten_closed),
            seen: Rc::clone(&self.seen),
        };
        // Each attempt is an opening of its own.
        let attempts: Vec<_> = (0..OPENINGS)
            .map(|attempt| self.machines.open_base(sim, &self.plan, base, fresh && attempt == 0))
            .collect();
        clock.spawn(opening.begin(attempts));
    }
}
