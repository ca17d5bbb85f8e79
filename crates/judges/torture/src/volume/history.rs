//! One history: clients on a volume and its devices, with forks at their events.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::rc::Rc;

use manylogs::{Layout, Settings};
use manylogs_block::{Nanos, Rng};
use manylogs_sim::{CrashDiskConfig, Oracle, Sim, TaskOrder};

use crate::history::{self, Until};
use crate::report::Report;
use crate::volume::between::Work;
use crate::volume::forks::{At, Forks, Models};
use crate::volume::incarnation::{Device, End, Incarnation, Watch};
use crate::volume::kept::Kept;
use crate::volume::machine::{Images, Machine};
use crate::volume::plan::{Between, Plan, Shape, Trouble};
use crate::volume::trouble::Told;

/// An incarnation with more disk events hangs: it repeats the same work.
const EVENTS_MOST: u64 = 5000;
/// If the device fails, reads are repeated sector by sector, and passes again and again. Writes may
/// wait two minutes for room, while snapshots go on every few milliseconds.
const EVENTS_MOST_IN_TROUBLE: u64 = 500_000;
/// The most steps of tasks: an incarnation with more hangs, too.
const STEPS_MOST: u64 = 2_000_000;
/// Between two incarnations a crash comes within this number of events, or none comes.
const BETWEEN_EVENTS: u64 = 16;
/// The same if the volume is drained between them.
const DRAIN_EVENTS: u64 = 160;

struct History<'a> {
    plan: &'a Plan,
    /// The present device, which may become larger.
    disk: CrashDiskConfig,
    faults: bool,
    rng: Rng,
    oracle: Rc<RefCell<Oracle>>,
    kept: Rc<RefCell<Kept>>,
    next_tag: Rc<Cell<u64>>,
    told: Told,
    /// Whether the devices that failed had copies that did not.
    hidden: bool,
    layout: Option<Layout>,
    /// Forks. Operations on non-volatile RAM fork from within the volume's tasks, so they share
    /// them.
    forks: Rc<RefCell<Forks>>,
}

/// Runs the history of `plan`, with faults of the medium or without.
///
/// # Errors
/// The promise that was broken.
pub(crate) fn run_history(plan: &Plan, faults: bool) -> Result<Report, String> {
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let (told, kept) = (Told::default(), Rc::new(RefCell::new(Kept::default())));
    let oracle = Rc::new(RefCell::new(Oracle::new(0)));
    let models = Models { oracle: Rc::clone(&oracle), kept: Rc::clone(&kept) };
    let forks = Forks::new(plan, faults, rng.split(), models, Rc::clone(&told.lossy));
    let forks = Rc::new(RefCell::new(forks));
    let next_tag = Rc::new(Cell::new(1));
    let (disk, layout, hidden) = (plan.disk, None, false);
    let mut history =
        History { plan, disk, faults, rng, oracle, kept, next_tag, told, hidden, layout, forks };
    let mut troubled = history.rng.below(plan.incarnations);
    let opening = plan.trouble == Trouble::Opening;
    if opening {
        troubled = troubled.max(1);
    }
    let two = opening || plan.between.is_some();
    let incarnations = plan.incarnations.max(if two { 2 } else { 1 });
    let mut images = Images::blank(plan.config.table, plan.array);
    let nvram = images.nvram.is_some();
    images.disk.life = plan.array_life;
    for incarnation in 0..incarnations {
        if incarnation > 0
            && let Some(array) = plan.reshape(incarnation)
        {
            images.disk = images.disk.reshaped(array, history.disk.capacity);
            if plan.follows(incarnation) {
                images = history.pass_between(Between::Geometry, images, Device::Sound)?;
            }
        }
        let trouble = plan.trouble != Trouble::Never;
        let device = match incarnation.cmp(&troubled) {
            Ordering::Equal if trouble => Device::Failing(plan.trouble),
            // Logs that failed stay out of use. With none left the volume may refuse writes.
            Ordering::Greater if trouble && !history.hidden => Device::Failed,
            _ => Device::Sound,
        };
        images = history.live(incarnation, images, device)?;
        let device = if history.hidden { Device::Sound } else { device };
        if let (0, Some(between)) = (incarnation, plan.between) {
            images = history.pass_between(between, images, device)?;
        }
    }
    let mut report = std::mem::take(&mut history.forks.borrow_mut().report);
    report.tally.histories = 1;
    report.tally.nvram_histories = u64::from(nvram);
    report.tally.add_plan(plan);
    Ok(report)
}

impl History<'_> {
    /// Runs one incarnation from opening to crash, and returns the content of the devices after it.
    fn live(&mut self, incarnation: u64, images: Images, device: Device) -> Result<Images, String> {
        let sim = Sim::new(self.rng.next_u64(), TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.disk, images);
        if self.faults {
            machine.disk.remember_writes();
        }
        let lost = machine.disk.lost_members();
        if let Some(mut rng) = self.plan.leaving(incarnation) {
            machine.disk.members_leave(&mut rng);
        }
        let end = End::draw(&mut self.rng, self.plan.short_lives);
        let watch = Watch::default();
        let (failed, transient) = (self.told.failed.get(), self.told.transient.get());
        let clients = Incarnation {
            plan: self.plan.clone(),
            fresh: incarnation == 0,
            device,
            end,
            runtime: sim.handle(user),
            clock: sim.handle(drive),
            machine: machine.clone(),
            layout: self.layout.clone(),
            oracle: Rc::clone(&self.oracle),
            kept: Rc::clone(&self.kept),
            told: self.told.clone(),
            next_tag: Rc::clone(&self.next_tag),
            rng: self.rng.split(),
            watch: watch.clone(),
        };
        sim.handle(user).spawn(clients.run());
        let linger = if let End::Crash(linger) = end { linger } else { 0 };
        let lived = self.watch(&sim, &machine, &watch, Until { linger, cut: None });
        self.count(&watch, device, end);
        self.hidden |= watch.hidden.get();
        {
            let tally = &mut self.forks.borrow_mut().report.tally;
            machine.disk.count(lost, tally);
            tally.failed_requests += self.told.failed.get() - failed;
            tally.transient_errors += self.told.transient.get() - transient;
        }
        self.told.reads_fail.set(false);
        if let Some(volume) = watch.volume.borrow().as_ref() {
            self.layout = Some(volume.layout().clone());
        }
        self.end_run(&machine, &watch, lived)
    }

    /// Changes the closed volume, unless a crash comes first. Returns the content of the devices.
    fn pass_between(
        &mut self,
        between: Between,
        mut images: Images,
        device: Device,
    ) -> Result<Images, String> {
        if let Between::Grow(larger) = between {
            if images.nvram.is_some() {
                return Ok(images);
            }
            // Homes are about to take the place of structures.
            images.disk.make_whole();
            self.disk.capacity += larger;
            self.forks.borrow_mut().grow_device(self.disk.capacity);
        }
        let sim = Sim::new(self.rng.next_u64(), TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine::new(sim.handle(drive), self.disk, images);
        if self.faults {
            machine.disk.remember_writes();
        }
        if between == Between::Geometry {
            self.forks.borrow_mut().forget_layout();
        }
        let within = match between {
            Between::Geometry => DRAIN_EVENTS,
            Between::Grow(_) | Between::Repair | Between::Set => BETWEEN_EVENTS,
        };
        let cut = self.rng.one_in(2).then(|| self.rng.below(within));
        let watch = Watch::default();
        let work = Work {
            between,
            runtime: sim.handle(user),
            machine: machine.clone(),
            settings: Settings::of(&self.plan.changed(&mut self.rng)),
            kept: Rc::clone(&self.kept),
            troubled: device != Device::Sound,
            watch: watch.clone(),
        };
        sim.handle(user).spawn(work.run());
        let done = self.watch(&sim, &machine, &watch, Until { linger: 0, cut });
        self.end_run(&machine, &watch, done)
    }

    /// Crashes at the end of a run and judges the result.
    fn end_run(
        &mut self,
        machine: &Machine,
        watch: &Watch,
        ran: Result<(), String>,
    ) -> Result<Images, String> {
        self.kept.borrow_mut().crash();
        let copies = if watch.left.get() { machine.disk.check_copies() } else { Ok(()) };
        // A write that the array failed may have reached it in part, and a part of a row is read.
        let all_whole = self.told.failed.get() == 0;
        let rows = watch.volume.borrow().as_ref().map(|volume| volume.layout().clone());
        let rows =
            rows.filter(|_| all_whole).map_or(Ok(()), |layout| machine.disk.check_rows(&layout));
        let images = machine.crash(&mut self.rng);
        // The next incarnation recovers by itself. Versions that it may or may not find stay
        // possible.
        let mut forks = self.forks.borrow_mut();
        let ran = ran.and(copies).and(rows);
        let ran = ran.and_then(|()| forks.judge(&images, None).map(drop));
        let ran = ran.and_then(|()| forks.check_homes(&images.disk, watch));
        let trouble = || watch.trouble.take().map(|words| format!(" ({words})"));
        ran.map_err(|problem| problem + &trouble().unwrap_or_default())?;
        Ok(images)
    }

    /// Runs the world to the end of the incarnation, and forks it at the events of its devices.
    fn watch(
        &self,
        sim: &Sim,
        machine: &Machine,
        watch: &Watch,
        until: Until,
    ) -> Result<(), String> {
        let mut living = Living {
            forks: Rc::clone(&self.forks),
            machine,
            watch,
            events_most: self.events_most(),
            patience: self.plan.patience(),
        };
        let (forks, machine_of, watch_of) =
            (Rc::clone(&self.forks), machine.clone(), watch.clone());
        machine.watch_nvram(move || {
            forks.borrow_mut().maybe_fork(&machine_of, &watch_of, At::Between);
        });
        let ran = history::run(sim, &mut living, until);
        machine.unwatch_nvram();
        let ran = ran?;
        match watch.problem.take() {
            Some(problem) => Err(problem),
            None if !ran.is_over => {
                let (volume, time) = (watch.volume.borrow(), sim.now());
                let (events, steps) = (machine.disk.events(), ran.steps);
                Err(format!(
                    "clients hang: {time:?}, {events} events, {steps} steps passed; {volume:?}"
                ))
            }
            None => Ok(()),
        }
    }

    /// The most events of an incarnation: see [`EVENTS_MOST`].
    fn events_most(&self) -> u64 {
        let sound = self.plan.trouble == Trouble::Never && self.plan.shape == Shape::Small;
        let events_most = if sound { EVENTS_MOST } else { EVENTS_MOST_IN_TROUBLE };
        // Every record goes to every member of an array with parity.
        let rows = self.plan.array.filter(|array| array.parity > 0);
        let resyncs = 1 + u64::from(self.plan.array_life.pace.is_some());
        events_most * rows.map_or(1, |it| u64::from(it.columns + it.parity)) * resyncs
    }

    fn count(&self, watch: &Watch, device: Device, end: End) {
        let tally = &mut self.forks.borrow_mut().report.tally;
        tally.incarnations += 1;
        tally.operations += watch.operations.get();
        tally.troubled += u64::from(matches!(device, Device::Failing(_)));
        tally.refused_openings += watch.refused.get();
        tally.troubled_openings += watch.opened.get();
        tally.closed += u64::from(end == End::Close);
        tally.drained += u64::from(watch.drained.get());
        if let Some(volume) = watch.volume.borrow().as_ref() {
            tally.add_stats(&volume.stats());
            if self.plan.shape == Shape::Days {
                tally.daily_checkpoints += volume.stats().checkpoints;
            }
        }
    }
}

/// An incarnation that runs, or the work between two.
struct Living<'h> {
    forks: Rc<RefCell<Forks>>,
    machine: &'h Machine,
    watch: &'h Watch,
    events_most: u64,
    /// The longest that clients may be without an answer.
    patience: Nanos,
}

impl history::World for Living<'_> {
    fn events(&self) -> u64 {
        self.machine.disk.events()
    }

    fn is_due(&mut self) -> bool {
        true
    }

    /// The forks decide themselves whether they are due, as they are made between events as well.
    fn fork(&mut self) -> Result<(), String> {
        self.forks.borrow_mut().maybe_fork(self.machine, self.watch, At::Event);
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.watch.ended.get()
    }

    fn has_problem(&self) -> bool {
        self.watch.problem.borrow().is_some()
    }

    fn hangs(&self, sim: &Sim, steps: u64) -> bool {
        let unanswered = sim.now().since(self.watch.answered.get());
        self.events() > self.events_most || steps > STEPS_MOST || unanswered > self.patience
    }
}
