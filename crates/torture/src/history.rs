//! One history: clients, a volume, its devices, and forks at their events.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::rc::Rc;

use manylogs_block::Rng;
use manylogs_sim::{Oracle, Order, Sim};

use crate::forks::{At, Forks, Report};
use crate::incarnation::{Device, End, Incarnation, Watch};
use crate::machine::{Images, Machine};
use crate::plan::Plan;

/// An incarnation that takes longer hangs: longer than a write waits for room at most.
const PATIENCE_NS: u64 = 300_000_000_000;
/// So does one that keeps the disk busier: it tries the same thing again and again.
const EVENTS_MOST: u64 = 5000;

struct History<'a> {
    plan: &'a Plan,
    faults: bool,
    rng: Rng,
    oracle: Rc<RefCell<Oracle>>,
    next_tag: Rc<Cell<u64>>,
    /// Operations on non-volatile RAM fork from within the engine's tasks.
    forks: Rc<RefCell<Forks>>,
}

/// Runs the history of `plan`, with faults of the medium or without.
///
/// # Errors
/// What did not hold.
pub(crate) fn run_history(plan: &Plan, faults: bool) -> Result<Report, String> {
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let oracle = Rc::new(RefCell::new(Oracle::new(0)));
    let forks = Forks::new(plan, faults, rng.split(), Rc::clone(&oracle));
    let forks = Rc::new(RefCell::new(forks));
    let next_tag = Rc::new(Cell::new(1));
    let mut history = History { plan, faults, rng, oracle, next_tag, forks };
    let troubled = history.rng.below(plan.incarnations);
    let mut images = Images::blank(plan.engine.table);
    let nvram = images.nvram.is_some();
    for incarnation in 0..plan.incarnations {
        let device = match incarnation.cmp(&troubled) {
            Ordering::Equal if plan.trouble => Device::Failing,
            // Logs that failed stay out of use; without any, the volume may refuse writes.
            Ordering::Greater if plan.trouble => Device::Failed,
            _ => Device::Sound,
        };
        images = history.live(incarnation == 0, images, device)?;
    }
    let mut report = std::mem::take(&mut history.forks.borrow_mut().report);
    report.tally.histories = 1;
    report.tally.nvram_histories = u64::from(nvram);
    Ok(report)
}

impl History<'_> {
    /// One incarnation, from opening to crash; returns what the devices hold then.
    fn live(&mut self, fresh: bool, images: Images, device: Device) -> Result<Images, String> {
        let sim = Sim::new(self.rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.plan.disk, images);
        self.forks.borrow_mut().lossy |= device == Device::Failing;
        if self.faults {
            machine.disk.remember_writes();
        }
        let end = End::draw(&mut self.rng);
        let watch = Watch::default();
        let incarnation = Incarnation {
            plan: self.plan.clone(),
            fresh,
            device,
            end,
            runtime: sim.handle(user),
            machine: machine.clone(),
            oracle: Rc::clone(&self.oracle),
            next_tag: Rc::clone(&self.next_tag),
            rng: self.rng.split(),
            watch: watch.clone(),
        };
        sim.handle(user).spawn(incarnation.run());
        let lived = self.watch(&sim, &machine, &watch, end);
        self.count(&watch, device, end);
        let images = machine.crash(&mut self.rng);
        // The next incarnation recovers by itself; versions that it may or may not find stay
        // possible.
        let mut forks = self.forks.borrow_mut();
        let lived = lived.and_then(|()| forks.judge(&images, None).map(drop));
        let lived = lived.and_then(|()| forks.check_homes(&images.disk, &watch));
        let trouble = || watch.trouble.take().map(|words| format!(" ({words})"));
        lived.map_err(|problem| problem + &trouble().unwrap_or_default())?;
        Ok(images)
    }

    /// Runs the world to the end of the incarnation, and forks it at the events of its devices.
    fn watch(&self, sim: &Sim, machine: &Machine, watch: &Watch, end: End) -> Result<(), String> {
        let fork = {
            let (forks, machine) = (Rc::clone(&self.forks), machine.clone());
            let watch = watch.clone();
            move |at| forks.borrow_mut().maybe_fork(&machine, &watch, at)
        };
        let between = fork.clone();
        machine.watch_nvram(move || between(At::Between));
        let mut seen = machine.disk.events();
        let mut last = None;
        sim.run_until(|| {
            let events = machine.disk.events();
            if events != seen {
                fork(At::Event);
            }
            seen = events;
            if watch.ended.get() && last.is_none() {
                let linger = if let End::Crash(linger) = end { linger } else { 0 };
                last = Some(events + linger);
            }
            let over = last.is_some_and(|last| events >= last);
            let hangs = events > EVENTS_MOST || sim.now().0 > PATIENCE_NS;
            over || hangs || watch.problem.borrow().is_some()
        });
        machine.unwatch_nvram();
        match watch.problem.take() {
            Some(problem) => Err(problem),
            None if !watch.ended.get() => {
                let volume = watch.volume.borrow();
                let time = sim.now();
                Err(format!("clients hang: {time:?}, {seen} events passed; {volume:?}"))
            }
            None => Ok(()),
        }
    }

    fn count(&self, watch: &Watch, device: Device, end: End) {
        let tally = &mut self.forks.borrow_mut().report.tally;
        tally.incarnations += 1;
        tally.operations += watch.operations.get();
        tally.troubled += u64::from(device == Device::Failing);
        tally.failed_requests += watch.failed_requests.get();
        tally.closed += u64::from(end == End::Close);
        tally.drained += u64::from(watch.drained.get());
        if let Some(volume) = watch.volume.borrow().as_ref() {
            tally.add_stats(&volume.stats());
        }
    }
}
