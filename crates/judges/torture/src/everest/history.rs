//! One history: clients, base volumes, stores, and forks at the events of their disks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::Phase;
use manylogs_block::{Rng, Time};
use manylogs_sim::{CrashDiskConfig, Oracle, Sim, TaskOrder};

use super::clients::Volume;
use super::gone::Lost;
use super::leaving::Evacuated;
use super::life::Life;
use super::plan::{EverestPlan, HEADER};
use super::recovery::{crash_in_recovery, recover};
use super::trouble::Trouble;
use super::world::{Images, Machines};
use crate::history::{self, States, Until};
use crate::report::Report;

/// Time and steps after which a history counts as hanging.
const PATIENCE: Time = Time(900_000_000_000);
const STEPS_MOST: u64 = 6_000_000;

struct History<'a> {
    plan: &'a EverestPlan,
    rng: Rng,
    volumes: Vec<Volume>,
    /// The moment is the sum of the oracles' moments.
    states: States<u64>,
    /// Decides how devices fail.
    trouble: Rng,
    report: Report,
}

/// Runs the history of `plan`.
///
/// # Errors
/// The promise that was broken.
pub(crate) fn run_history(plan: &EverestPlan) -> Result<Report, String> {
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let volume = |base: &CrashDiskConfig| Volume {
        oracle: Rc::new(RefCell::new(Oracle::new(manylogs_block::to_usize(
            base.capacity.0 - HEADER.0,
        )))),
        rng: Rc::new(RefCell::new(rng.split())),
        next_tag: Rc::new(Cell::new(1)),
        left: Rc::default(),
        failed_reads: Rc::default(),
        longest: plan.longest,
        held_most: plan.held_most(),
        lost: Lost::default(),
        held: Lost::default(),
        has_loss: Rc::default(),
        evacuated: Evacuated::default(),
        may_fail: plan.outages.0 > 0 || plan.net.lost > 0 || plan.net.late > 0,
    };
    let mut history = History {
        plan,
        volumes: plan.bases.iter().map(volume).collect(),
        rng,
        states: States::default(),
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
        let sim = Sim::new(self.rng.next_u64(), TaskOrder::Shuffled);
        let machines = Rc::new(Machines::new(&sim, self.plan, images));
        let trouble = Trouble::default();
        let disks = machines.stores[0].disks();
        let opens = self.plan.trouble && !fresh && self.trouble.one_in(3);
        if opens {
            trouble.opening(&disks, &mut self.trouble);
        }
        let mut life = Life::new(self.plan, Rc::clone(&machines), self.volumes.clone(), fresh);
        if self.plan.trouble && !opens {
            life.trouble = Some((trouble.clone(), self.trouble.split()));
        }
        self.volumes.iter().for_each(|volume| volume.left.set(self.plan.operations));
        self.report.tally.incarnations += 1;
        self.report.tally.operations += self.plan.operations * self.volumes.len() as u64;
        let linger = self.rng.below(200);
        let lived = self.watch(&sim, &mut life, linger);
        lived.map_err(|problem| trouble.explain(problem))?;
        let (failed, transient) = trouble.counts();
        let tally = &mut self.report.tally;
        tally.failed_requests += failed;
        tally.transient_errors += transient;
        tally.troubled_openings += u64::from(opens && failed > 0);
        tally.closed += machines.closed.get();
        tally.forgotten_stores += life.forgotten.get();
        tally.noted_losses += machines.noted.get();
        tally.forgotten_by_closed += life.forgotten_closed.get();
        tally.emptied_stores += life.seen.emptied.get();
        tally.moved_ranges += life.seen.moved.get();
        tally.troubled += u64::from(self.plan.trouble && !opens);
        let images = machines.after_crash(&mut self.rng);
        self.judge(&images, Phase::Recovery, true)?;
        Ok(images)
    }

    /// Runs the world until its clients have ended and `linger` events more have passed, and forks
    /// it at its events.
    fn watch(&mut self, sim: &Sim, life: &mut Life, linger: u64) -> Result<(), String> {
        let machines = Rc::clone(&life.machines);
        let seen = machines.events();
        life.begin(sim);
        let mut living = Living { history: self, life, machines, seen, phase: Phase::Open };
        let ran = history::run(sim, &mut living, Until { linger, cut: None })?;
        match life.problem() {
            Some(problem) => Err(problem),
            None if ran.is_over => Ok(()),
            None => Err(format!("clients hang: {:?} passed; {life:?}", sim.now())),
        }
    }

    fn fork(&mut self, machines: &Machines, phase: Phase, born: bool) -> Result<(), String> {
        machines.check_bounds(self.plan.each)?;
        let (mut images, mut phase) = (machines.after_crash(&mut self.rng), phase);
        while born && self.rng.one_in(4) {
            images = crash_in_recovery(self.plan, &images, &mut self.rng);
            phase = Phase::Recovery;
            self.report.tally.nested += 1;
        }
        self.judge(&images, phase, born)
    }

    /// Opens the images and compares every sector of every volume with its oracle.
    fn judge(&mut self, images: &Images, phase: Phase, born: bool) -> Result<(), String> {
        let fingerprint = images.fingerprint();
        self.states.meet(fingerprint, phase, &mut self.report);
        let moment = |volume: &Volume| volume.oracle.borrow().moment();
        let moments = self.volumes.iter().map(moment).sum();
        if !self.states.judged(fingerprint, moments, ()) {
            return Ok(());
        }
        self.report.tally.judged += 1;
        self.report.tally.unborn += u64::from(!born);
        let (contents, noted) = match recover(self.plan, images, fingerprint) {
            Ok(found) => found,
            Err(_) if !born => return Ok(()),
            Err(problem) => return Err(format!("after a crash in {phase:?}: {problem}")),
        };
        self.report.tally.recovered += 1;
        self.report.tally.noted_losses += noted;
        for (number, (volume, found)) in self.volumes.iter().zip(&contents).enumerate() {
            let wrong = |what: String| format!("after recovery: volume {number}: {what}");
            let checked = volume.oracle.borrow().check_crashed(&found.content);
            checked.map_err(|error| wrong(error.to_string()))?;
            if let Some(store) = volume.evacuated.forgotten(&found.leaving) {
                return Err(wrong(format!("store {store:02x?} was evacuated, and is borrowed")));
            }
            let absent = (0..).zip(found.content.sectors()).filter(|(_, held)| held.is_none());
            let is_lost = |sector| volume.lost.has(sector) || found.lost.has(sector);
            if let Some((sector, _)) = absent.into_iter().find(|(sector, _)| !is_lost(*sector)) {
                return Err(wrong(format!("sector {sector} is lost, and nobody has said so")));
            }
        }
        Ok(())
    }
}

/// An incarnation that runs.
struct Living<'h, 'p> {
    history: &'h mut History<'p>,
    life: &'h mut Life,
    machines: Rc<Machines>,
    /// Events of records and of homes, at the last look.
    seen: (u64, u64),
    /// The use of the disks at the last event.
    phase: Phase,
}

impl history::World for Living<'_, '_> {
    fn step(&mut self, sim: &Sim) {
        self.life.step(sim, &mut self.history.rng);
    }

    fn events(&self) -> u64 {
        let (records, homes) = self.machines.events();
        records + homes
    }

    fn is_due(&mut self) -> bool {
        let events = self.machines.events();
        self.phase = phase_of(self.seen, events, self.life.is_born());
        self.seen = events;
        self.history.rng.one_in(self.history.plan.fork_every)
    }

    fn fork(&mut self) -> Result<(), String> {
        self.history.fork(&self.machines, self.phase, self.life.is_born())
    }

    fn has_ended(&self) -> bool {
        self.life.is_over()
    }

    fn ended(&mut self) {
        if self.history.plan.table.0 > 0 && self.history.rng.one_in(2) {
            self.life.close_stores();
        }
    }

    fn has_problem(&self) -> bool {
        self.life.has_problem()
    }

    fn hangs(&self, sim: &Sim, steps: u64) -> bool {
        steps > STEPS_MOST || sim.now() > PATIENCE
    }
}

/// The use of the disks at the last event: records, or writes home.
fn phase_of(before: (u64, u64), now: (u64, u64), born: bool) -> Phase {
    match (born, now.1 > before.1) {
        (false, _) => Phase::Open,
        (true, true) => Phase::Append,
        (true, false) => Phase::Checkpoint,
    }
}
