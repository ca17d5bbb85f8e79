//! One history: clients, base volumes, a store, and forks at the events of their disks.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use manylogs::Phase;
use manylogs_block::{Payload, Rng, Time};
use manylogs_sim::{Oracle, Order, Sim};

use super::clients::World;
use super::plan::EverestPlan;
use super::trouble::Trouble;
use super::world::{Disks, Events, Images, Opened};
use crate::forks::Report;

/// A history that goes on for longer hangs.
const PATIENCE: Time = Time(600_000_000_000);
const STEPS_MOST: u64 = 4_000_000;
/// By then a recovery and the reclaiming behind it are over.
const AT_REST: Time = Time(2_000_000_000);

struct History<'a> {
    plan: &'a EverestPlan,
    rng: Rng,
    oracles: Rc<RefCell<Vec<Oracle>>>,
    next_tag: Rc<Cell<u64>>,
    /// States that were judged, at the moments of the oracles.
    judged: HashSet<(u64, u64)>,
    seen: HashSet<u64>,
    /// Decides how devices fail.
    trouble: Rng,
    report: Report,
}

/// Progress of an incarnation.
#[derive(Clone, Default)]
struct Watch {
    problem: Rc<RefCell<Option<String>>>,
    /// The store is there: from now on it must be found.
    born: Rc<Cell<bool>>,
    ended: Rc<Cell<bool>>,
    opened: Rc<RefCell<Option<Opened>>>,
}

/// Runs the history of `plan`.
///
/// # Errors
/// What did not hold.
pub(crate) fn run_history(plan: &EverestPlan) -> Result<Report, String> {
    let oracles =
        plan.bases.iter().map(|base| Oracle::new(manylogs_block::to_usize(base.capacity.0)));
    let mut history = History {
        plan,
        rng: Rng::new(plan.seed ^ 0x5eed),
        oracles: Rc::new(RefCell::new(oracles.collect())),
        next_tag: Rc::new(Cell::new(1)),
        judged: HashSet::new(),
        seen: HashSet::new(),
        trouble: Rng::new(plan.seed ^ 0x7_20b1e),
        report: Report::default(),
    };
    let mut images = Images::blank(plan);
    for incarnation in 0..plan.incarnations {
        images = history.live(incarnation == 0, &images)?;
    }
    history.report.tally.histories = 1;
    Ok(history.report)
}

impl History<'_> {
    /// Runs one incarnation from opening to crash, and returns the content of the disks after it.
    fn live(&mut self, fresh: bool, images: &Images) -> Result<Images, String> {
        let sim = Sim::new(self.rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let disks = Disks::new(&sim.handle(drive), self.plan, images);
        let watch = Watch::default();
        watch.born.set(!fresh);
        let trouble = Trouble::default();
        let opens = self.plan.trouble && !fresh && self.trouble.one_in(3);
        if opens {
            trouble.opening(&disks.stores, &mut self.trouble);
        }
        let run = run(
            sim.handle(user),
            self.plan.clone(),
            disks.clone(),
            fresh,
            Given {
                oracles: Rc::clone(&self.oracles),
                next_tag: Rc::clone(&self.next_tag),
                rng: self.rng.split(),
                trouble: (self.plan.trouble && !opens)
                    .then(|| (trouble.clone(), self.trouble.split())),
            },
            watch.clone(),
        );
        sim.handle(user).spawn(run);
        self.report.tally.incarnations += 1;
        self.report.tally.operations += self.plan.operations;
        let linger = self.rng.below(200);
        self.watch(&sim, &disks, &watch, linger).map_err(|problem| trouble.explain(problem))?;
        let (failed, transient) = trouble.counts();
        let tally = &mut self.report.tally;
        tally.failed_requests += failed;
        tally.transient_errors += transient;
        tally.troubled_openings += u64::from(opens && failed > 0);
        tally.troubled += u64::from(self.plan.trouble && !opens);
        if !watch.ended.get() {
            let time = sim.now();
            let state = watch.opened.borrow();
            let problem = format!("clients hang: {time:?} passed; {state:?}");
            return Err(trouble.explain(problem));
        }
        let images = disks.crash(&mut self.rng);
        self.judge(&images, Phase::Recovery, true)?;
        Ok(images)
    }

    /// Runs the world until its clients have ended and `linger` events more have passed, and forks
    /// it at its events.
    fn watch(
        &mut self,
        sim: &Sim,
        disks: &Disks,
        watch: &Watch,
        linger: u64,
    ) -> Result<(), String> {
        let mut seen = disks.events();
        let (mut steps, mut last, mut wrong) = (0, None, None);
        sim.run_until(|| {
            steps += 1;
            let events = disks.events();
            if events != seen {
                let phase = phase_of(seen, events, watch.born.get());
                seen = events;
                if self.rng.one_in(self.plan.fork_every)
                    && let Err(problem) = self.fork(disks, phase, watch.born.get())
                {
                    wrong = Some(problem);
                }
            }
            let total = events.bases + events.stores;
            if watch.ended.get() && last.is_none() {
                last = Some(total + linger);
            }
            let hangs = steps > STEPS_MOST || sim.now() > PATIENCE;
            let over = last.is_some_and(|last| total >= last);
            over || hangs || wrong.is_some() || watch.problem.borrow().is_some()
        });
        match wrong.or_else(|| watch.problem.take()) {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    fn fork(&mut self, disks: &Disks, phase: Phase, born: bool) -> Result<(), String> {
        let (mut images, mut phase) = (disks.crash(&mut self.rng), phase);
        while born && self.rng.one_in(4) {
            images = self.crash_in_recovery(&images);
            phase = Phase::Recovery;
            self.report.tally.nested += 1;
        }
        self.judge(&images, phase, born)
    }

    /// Opens the crashed disks and crashes somewhere within that, or in what follows.
    fn crash_in_recovery(&mut self, images: &Images) -> Images {
        let sim = Sim::new(self.rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let disks = Disks::new(&sim.handle(drive), self.plan, images);
        let (runtime, plan, opened) = (sim.handle(user), self.plan.clone(), disks.clone());
        sim.handle(user).spawn(async move {
            let Ok(opened) = opened.open(runtime, &plan, false).await else { return };
            for volume in &opened.volumes {
                let _ = volume.reclaim().await;
            }
        });
        let crash_at = 1 + self.rng.below(60);
        let total = || disks.events().bases + disks.events().stores;
        sim.run_until(|| total() >= crash_at || sim.now() > AT_REST);
        disks.crash(&mut self.rng)
    }

    /// Opens the images and compares every sector of every volume with its oracle.
    fn judge(&mut self, images: &Images, phase: Phase, born: bool) -> Result<(), String> {
        let fingerprint = images.fingerprint();
        let state = Rng::new(fingerprint ^ phase as u64).next_u64();
        if self.seen.insert(state) {
            self.report.states.push((state, phase));
        }
        let moments = self.oracles.borrow().iter().fold(0, |sum, oracle| sum + oracle.moment());
        if !self.judged.insert((fingerprint, moments)) {
            return Ok(());
        }
        self.report.tally.judged += 1;
        self.report.tally.unborn += u64::from(!born);
        let contents = match self.recover(images) {
            Ok(contents) => contents,
            Err(_) if !born => return Ok(()),
            Err(problem) => return Err(problem),
        };
        self.report.tally.recovered += 1;
        for (number, (oracle, content)) in self.oracles.borrow().iter().zip(&contents).enumerate() {
            let checked = oracle.check_crashed(content);
            checked.map_err(|wrong| format!("after recovery: volume {number}: {wrong}"))?;
        }
        Ok(())
    }

    fn recover(&self, images: &Images) -> Result<Vec<Payload>, String> {
        let sim = Sim::new(self.plan.seed, Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let disks = Disks::new(&sim.handle(drive), self.plan, images);
        let (runtime, plan) = (sim.handle(user), self.plan.clone());
        sim.block_on(user, async move {
            let opened = disks.open(runtime, &plan, false).await;
            let opened = opened.map_err(|error| format!("recovery failed: {error}"))?;
            opened.read_all().await
        })
    }
}

/// State that an incarnation takes over from the last one.
struct Given {
    oracles: Rc<RefCell<Vec<Oracle>>>,
    next_tag: Rc<Cell<u64>>,
    rng: Rng,
    /// What the devices do when the store is in use.
    trouble: Option<(Trouble, Rng)>,
}

/// Opens the store, compares what the volumes hold, and lets the clients work.
async fn run(
    runtime: manylogs_block::Handle,
    plan: EverestPlan,
    disks: Disks,
    fresh: bool,
    given: Given,
    watch: Watch,
) {
    let Given { oracles, next_tag, rng, trouble } = given;
    let note = |watch: &Watch, problem: String| {
        watch.problem.borrow_mut().get_or_insert(problem);
    };
    let opened = match disks.open(runtime.clone(), &plan, fresh).await {
        Ok(opened) => opened,
        Err(error) => return note(&watch, format!("open: {error}")),
    };
    watch.opened.replace(Some(opened.clone()));
    Trouble::heal(&disks.stores);
    if let Some((trouble, mut rng)) = trouble {
        trouble.begin(&disks.stores, plan.log, &mut rng);
    }
    let contents = match opened.read_all().await {
        Ok(contents) => contents,
        Err(problem) => return note(&watch, problem),
    };
    for (oracle, content) in oracles.borrow_mut().iter_mut().zip(&contents) {
        if let Err(wrong) = oracle.check_recovered(content) {
            return note(&watch, format!("reopened: {wrong}"));
        }
    }
    watch.born.set(true);
    let world = Rc::new(World {
        runtime: runtime.clone(),
        opened,
        oracles,
        rng: RefCell::new(rng),
        next_tag,
        longest: plan.longest,
        left: Cell::new(plan.operations),
    });
    let running = Rc::new(Cell::new(plan.clients));
    for _ in 0..plan.clients {
        let (world, running, watch) = (Rc::clone(&world), Rc::clone(&running), watch.clone());
        runtime.spawn(async move {
            if let Err(problem) = world.client().await {
                watch.problem.borrow_mut().get_or_insert(problem);
            }
            running.set(running.get() - 1);
            watch.ended.set(running.get() == 0);
        });
    }
}

/// Use of the disks at the last event: records, or writes home.
fn phase_of(before: Events, now: Events, born: bool) -> Phase {
    match (born, now.stores > before.stores) {
        (false, _) => Phase::Open,
        (true, true) => Phase::Append,
        (true, false) => Phase::Checkpoint,
    }
}
