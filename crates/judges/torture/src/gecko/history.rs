//! One history: clients on a chain, with forks at the events of its drives.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::Phase;
use manylogs_block::{Nanos, Payload, Rng, Time, to_usize};
use manylogs_sim::{Sim, TaskOrder};

use super::clients::{Known, World};
use super::links::{Comings, Promised};
use super::loss::Bereavement;
use super::pairs::{Trouble, is_of_the_last};
use super::plan::GeckoPlan;
use super::watch::{Incarnation, Watch, current};
use super::world::{Drives, Images, read_all};
use crate::history::{self, States, Until};
use crate::report::Report;

/// Time and steps after which a history counts as hanging.
const PATIENCE: Time = Time(600_000_000_000);
const STEPS_MOST: u64 = 4_000_000;
/// Time at which a recovery and the reclaiming after it are over.
const AT_REST: Time = Time(2_000_000_000);
/// Time in which a chain has looked at all stripes of its SSD.
const UNTIL_LOOKED: Nanos = Nanos::from_millis(50);

struct History<'a> {
    plan: &'a GeckoPlan,
    rng: Rng,
    known: Rc<RefCell<Known>>,
    next_tag: Rc<Cell<u64>>,
    /// Which drives the chain must have.
    promised: Promised,
    states: States<u64>,
    /// Whether the last incarnation closed the chain in order.
    was_closed: bool,
    /// Content of the drives at the end of each incarnation.
    before: Vec<Images>,
    report: Report,
}

/// Runs the history of `plan`.
///
/// # Errors
/// The promise that was broken.
pub(crate) fn run_history(plan: &GeckoPlan) -> Result<Report, String> {
    let mut history = History {
        plan,
        rng: Rng::new(plan.seed ^ 0x5eed),
        known: Rc::new(RefCell::new(Known::of_blank(plan.export, plan.piece()))),
        next_tag: Rc::new(Cell::new(1)),
        promised: Promised::of_new(plan),
        states: States::default(),
        was_closed: false,
        before: Vec::new(),
        report: Report::default(),
    };
    let mut images = Images::blank(plan);
    for incarnation in 0..plan.settings.len() {
        images = history.live(incarnation, &images)?;
        history.mix(incarnation, &images)?;
        history.before.push(images.clone());
    }
    history.report.tally.histories = 1;
    Ok(history.report)
}

impl History<'_> {
    /// Runs one incarnation from opening to crash, and returns the content of the drives after it.
    fn live(&mut self, incarnation: usize, images: &Images) -> Result<Images, String> {
        let sim = Sim::new(self.rng.next_u64(), TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        // The last ones are those that it begins with.
        let older = self.before.iter().rev().nth(1);
        let images = &images.with_other_flash(self.plan, older, &mut self.rng);
        let drives = Drives::new(&sim.handle(drive), self.plan, images);
        drives.let_flash_fail(self.plan, &mut self.rng);
        let watch = Watch::default();
        watch.born.set(incarnation > 0);
        let given = Given {
            incarnation,
            known: Rc::clone(&self.known),
            next_tag: Rc::clone(&self.next_tag),
            promised: self.promised.clone(),
            rng: self.rng.split(),
            was_closed: self.was_closed,
        };
        let run = run(sim.handle(user), self.plan.clone(), drives.clone(), given, watch.clone());
        sim.handle(user).spawn(run);
        self.report.tally.incarnations += 1;
        self.report.tally.operations += self.plan.operations;
        let until = Until { linger: self.rng.below(200), cut: None };
        let mut living = Living { history: self, drives: &drives, watch: &watch };
        let ran = history::run(&sim, &mut living, until)?;
        if let Some(problem) = watch.problem.take() {
            return Err(problem);
        }
        if !ran.is_over {
            let time = sim.now();
            let state = watch.opened.borrow();
            return Err(format!("clients hang: {time:?} passed; {state:?}"));
        }
        watch.note(&mut self.report.tally);
        self.was_closed = watch.closed.get();
        let images = drives.crash(&mut self.rng);
        self.judge(&images, Phase::Recovery, true)?;
        Ok(images)
    }

    /// A chain with one drive from an earlier crash must not be opened.
    fn mix(&mut self, incarnation: usize, images: &Images) -> Result<(), String> {
        let Some(before) = self.before.last() else { return Ok(()) };
        let mut mixed = images.clone();
        let drive = manylogs_block::to_usize(self.rng.below(mixed.0.len() as u64));
        mixed.0[drive] = before.0[drive].clone();
        match self.recover(&mixed, None) {
            Err(_) => Ok(()),
            // The SSD of a tail cache, which may be of any age.
            Ok(content) if drive >= self.plan.drives.len() => {
                self.check(&content).map_err(|wrong| format!("with an older SSD: {wrong}"))
            }
            // A half that left its pair before that counts for nothing, whatever it holds.
            Ok(content) if self.plan.mirrored || self.promised.of(drive) != Some(true) => self
                .check(&content)
                .map_err(|wrong| format!("with drive {drive} from the opening before: {wrong}")),
            Ok(_) => Err(format!(
                "drive {drive} of opening {incarnation} was taken for one of the next opening"
            )),
        }
    }

    fn fork(&mut self, drives: &Drives, phase: Phase, born: bool) -> Result<(), String> {
        let (mut images, mut phase) = (drives.crash(&mut self.rng), phase);
        while born && self.rng.one_in(4) {
            images = self.crash_in_recovery(&images);
            phase = Phase::Recovery;
            self.report.tally.nested += 1;
        }
        self.judge(&images, phase, born)
    }

    /// Opens the crashed drives, and crashes somewhere during that or soon after.
    fn crash_in_recovery(&mut self, images: &Images) -> Images {
        let sim = Sim::new(self.rng.next_u64(), TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let drives = Drives::new(&sim.handle(drive), self.plan, images);
        let (runtime, plan, opened) = (sim.handle(user), self.plan.clone(), drives.clone());
        sim.handle(user).spawn(async move {
            let Ok(chain) = opened.open(runtime, &plan, 0, false).await else { return };
            let _ = read_all(&chain, &plan).await;
        });
        let is_long = self.plan.mirrored || self.plan.linked;
        let crash_at = 1 + self.rng.below(if is_long { 400 } else { 60 });
        sim.run_until(|| drives.events() >= crash_at || sim.now() > AT_REST);
        drives.crash(&mut self.rng)
    }

    /// Opens the images and compares the chain's content with the model.
    fn judge(&mut self, images: &Images, phase: Phase, born: bool) -> Result<(), String> {
        let fingerprint = images.fingerprint();
        self.states.meet(fingerprint, phase, &mut self.report);
        let moment = self.known.borrow().oracle.moment();
        if !self.states.judged(fingerprint, moment, ()) {
            return Ok(());
        }
        self.report.tally.judged += 1;
        self.report.tally.unborn += u64::from(!born);
        let other = images.with_other_flash(self.plan, self.before.last(), &mut self.rng);
        let content = match self.recover(&other, None) {
            Ok(content) => content,
            Err(_) if !born => return Ok(()),
            Err(problem) => return Err(problem),
        };
        self.report.tally.recovered += 1;
        self.check(&content).map_err(|wrong| format!("after recovery: {wrong}"))?;
        let out = self.promised.any_out().filter(|_| self.plan.linked);
        let any = self.plan.mirrored.then(|| to_usize(fingerprint % images.0.len() as u64));
        // Any drive may be missing, unless it is the last of its link; one that is out, always.
        let Some(without) = out.filter(|_| fingerprint & 1 == 0).or(any) else { return Ok(()) };
        match self.recover(images, Some(without)) {
            Ok(content) => {
                self.report.tally.degraded += 1;
                let checked = self.check(&content);
                checked.map_err(|wrong| format!("without drive {without}: {wrong}"))
            }
            Err(problem) if out != Some(without) && is_of_the_last(&problem) => Ok(()),
            Err(problem) => Err(format!("without drive {without}: {problem}")),
        }
    }

    fn check(&self, content: &Payload) -> Result<(), String> {
        self.known.borrow().changes.check(content).map(drop)
    }

    fn recover(&self, images: &Images, without: Option<usize>) -> Result<Payload, String> {
        let sim = Sim::new(self.plan.seed, TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let drives = Drives::new(&sim.handle(drive), self.plan, images);
        let (runtime, plan) = (sim.handle(user), self.plan.clone());
        let (pause, promised) = (runtime.clone(), self.promised.clone());
        let is_checked = plan.linked && without.is_none();
        sim.block_on(user, async move {
            let first = to_usize(plan.seed);
            let (chain, given) = drives.open_without(runtime, &plan, 0, (first, without)).await;
            let chain = chain.map_err(|error| format!("recovery failed: {error}"))?;
            if plan.flash.is_some() {
                pause.sleep(UNTIL_LOOKED).await;
            }
            if is_checked {
                promised.check(&chain, &given)?;
            }
            read_all(&chain, &plan).await
        })
    }
}

/// An incarnation that runs.
struct Living<'h, 'p> {
    history: &'h mut History<'p>,
    drives: &'h Drives,
    watch: &'h Watch,
}

impl history::World for Living<'_, '_> {
    fn events(&self) -> u64 {
        self.drives.events()
    }

    fn is_due(&mut self) -> bool {
        self.history.rng.one_in(self.history.plan.fork_every)
    }

    fn fork(&mut self) -> Result<(), String> {
        let born = self.watch.born.get();
        self.history.fork(self.drives, if born { Phase::Append } else { Phase::Open }, born)
    }

    fn has_ended(&self) -> bool {
        self.watch.ended.get()
    }

    fn has_problem(&self) -> bool {
        self.watch.problem.borrow().is_some()
    }

    fn hangs(&self, sim: &Sim, steps: u64) -> bool {
        steps > STEPS_MOST || sim.now() > PATIENCE
    }
}

/// State that an incarnation takes over from the last one.
struct Given {
    incarnation: usize,
    known: Rc<RefCell<Known>>,
    next_tag: Rc<Cell<u64>>,
    promised: Promised,
    rng: Rng,
    /// Whether the chain was closed in order before.
    was_closed: bool,
}

/// Opens the chain, compares its content, and starts the clients.
async fn run(
    runtime: manylogs_block::Handle,
    plan: GeckoPlan,
    drives: Drives,
    given: Given,
    watch: Watch,
) {
    let Given { incarnation, known, next_tag, promised, mut rng, was_closed } = given;
    let closes = plan.mirrored && rng.one_in(3);
    let note = |problem: String| {
        watch.problem.borrow_mut().get_or_insert(problem);
    };
    let opened = match incarnation {
        0 => {
            let chain = drives.open(runtime.clone(), &plan, 0, true).await;
            (chain, (0..plan.members).collect())
        }
        later => {
            // The drive that joins misses some openings.
            let joining = if plan.mirrored { drives.joining().await } else { None };
            let without = joining.filter(|_| rng.one_in(3));
            drives.open_without(runtime.clone(), &plan, later, (later, without)).await
        }
    };
    let (chain, given) = match opened {
        (Ok(chain), given) => (chain, given),
        (Err(error), _) => return note(format!("open: {error}")),
    };
    let settled = chain.figures().settled;
    if was_closed && settled.0 > 0 {
        return note(format!("after an orderly close {settled:?} were settled"));
    }
    watch.opened.replace(Some(chain.clone()));
    let content = match read_all(&chain, &plan).await {
        Ok(content) => content,
        Err(problem) => return note(problem),
    };
    if let Err(wrong) = known.borrow_mut().go_on_with(&content) {
        return note(format!("reopened: {wrong}"));
    }
    if plan.linked {
        if let Err(wrong) = promised.check(&chain, &given) {
            return note(wrong);
        }
        promised.go_on_with(&chain, &given);
    }
    watch.born.set(true);
    let of = || Incarnation {
        runtime: runtime.clone(),
        plan: plan.clone(),
        drives,
        chain: chain.clone(),
        given,
        rng: rng.split(),
    };
    if plan.bereft {
        let loss = Bereavement { of: of(), promised, lost: Rc::clone(&watch.lost) };
        watch.start(&runtime, loss.run());
    } else if plan.linked {
        let comings = Comings { of: of(), promised, counted: watch.links.clone() };
        watch.start(&runtime, comings.run());
    } else if plan.mirrored {
        let (replaced, failed) = (Rc::clone(&watch.replaced), Rc::clone(&watch.failed));
        let trouble = Trouble { of: of(), replaced, failed };
        watch.start(&runtime, trouble.run());
    }
    let world = Rc::new(World {
        runtime: runtime.clone(),
        chain,
        known,
        rng: RefCell::new(rng),
        next_tag,
        longest: plan.longest,
        everywhere: plan.everywhere,
        reads: plan.reads,
        may_lose: plan.bereft,
        cache: plan.settings[incarnation].cache,
        left: Cell::new(plan.operations),
    });
    let running = Rc::new(Cell::new(plan.clients));
    let (before, plan) = (current(&world.chain), Rc::new(plan));
    for _ in 0..plan.clients {
        let (world, running, watch) = (Rc::clone(&world), Rc::clone(&running), watch.clone());
        let plan = Rc::clone(&plan);
        runtime.spawn(async move {
            if let Err(problem) = world.client().await {
                watch.problem.borrow_mut().get_or_insert(problem);
            }
            running.set(running.get() - 1);
            if running.get() > 0 {
                return;
            }
            watch.look_for_lost_sleepers(before, &plan);
            if closes {
                watch.closed.set(world.chain.close().await.is_ok());
            }
            watch.ended.set(true);
        });
    }
}
