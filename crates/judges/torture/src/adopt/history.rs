//! One history: a file system is taken over, used and given back, in turns. Each step is crashed.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs::Phase;
use manylogs_block::{Rng, to_usize};
use manylogs_ext4::{BLOCK_BYTES, Ext4, Ino, Memory, Options, Wanted};
use manylogs_mlfs::adopt::{
    AdoptError, LogEngine, LogLayout, Logs, Site, Spacing, Volumes, adopt, open, release,
};
use manylogs_near::{Near, NearOptions};
use manylogs_sim::{DiskImage, Sim};

use super::engine::{Engine, Small};
use super::judge::Judge;
use super::model::Model;
use crate::ext4::{self, Images, SMALL_MIB, World};
use crate::history::{self, States, Until};
use crate::report::Report;

/// Number of steps of tasks after which a history counts as hanging.
const STEPS_MOST: u64 = 6_000_000;
/// See [`AdoptPlan::e2fsck_every`].
const SAMPLE: u64 = 40;

/// The plan of a history.
#[derive(Clone, Debug)]
pub struct AdoptPlan {
    /// The seed of the plan.
    pub seed: u64,
    /// Number of the image, counted around.
    pub image: usize,
    /// Whether the logs are those of a volume, through which ext4 is used; if not, of a small
    /// engine.
    pub volume: bool,
    /// Where logs should lie.
    pub layout: LogLayout,
    /// The most blocks that the files of the image have together.
    pub blocks: u64,
    /// How often the file system is taken over and given back.
    pub turns: u64,
    /// Number of blocks that are written in each use.
    pub writes: u64,
    /// One event in this number is forked.
    pub fork_every: u64,
    /// One judged state in this number is also judged by e2fsck; none if zero.
    pub e2fsck_every: u64,
}

impl AdoptPlan {
    /// The plan of a seed; the same one each time.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0ad0_97ed);
        let volume = rng.one_in(3);
        let more = u32::try_from(rng.below(200)).unwrap_or(0);
        let most = if volume { 800 + more } else { 16 + more };
        let least = if volume { 780 } else { 8 + most / 4 };
        let wanted = Wanted { most, least };
        // A volume needs several of these small groups.
        let groups = if volume { 1 } else { 1 + u32::try_from(rng.below(3)).unwrap_or(0) };
        let most_blocks = if rng.one_in(4) && !volume { 2500 } else { 200 };
        Self {
            seed,
            image: to_usize(rng.below(60)),
            volume,
            layout: LogLayout { spacing: Spacing::Groups(groups), wanted },
            blocks: 20 + rng.below(most_blocks),
            turns: 1 + rng.below(2),
            writes: rng.below(if volume { 20 } else { 8 }),
            fork_every: 2 + rng.below(5),
            e2fsck_every: SAMPLE,
        }
    }

    /// The engine that keeps records in the logs.
    pub(super) fn engine(&self) -> Engine {
        if self.volume { Engine::Volume } else { Engine::Small(Small::default()) }
    }

    /// Sets how often e2fsck judges as well: one judged state in `every`, none if zero.
    #[must_use]
    pub fn with_e2fsck(self, every: u64) -> Self {
        Self { e2fsck_every: every, ..self }
    }
}

/// The step that is crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Adopt,
    Use,
    Release,
}

impl Step {
    /// The phase under which its crash states are counted.
    const fn phase(self) -> Phase {
        match self {
            Self::Adopt => Phase::Open,
            Self::Use => Phase::Append,
            Self::Release => Phase::Drain,
        }
    }
}

/// The world's disk, in the form that adoption uses.
pub(super) fn site(world: &World) -> Site {
    let runtime = world.runtime();
    Site { device: Rc::new(world.disk.clone()), clock: ext4::clock(&runtime), runtime }
}

/// Runs the history of `plan` on one of `images`.
///
/// # Errors
/// The promise that was broken.
pub(crate) fn run_history(plan: &AdoptPlan, images: &Images) -> Result<Report, String> {
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let (mut model, mut image) = fill(plan, images.to_adopt(plan.image), &mut rng)?;
    model.find_homes(&image, SMALL_MIB << 8);
    let mut history = History {
        plan,
        rng,
        model: Rc::new(RefCell::new(model)),
        states: States::default(),
        report: Report::default(),
    };
    for _ in 0..plan.turns {
        for step in [Step::Adopt, Step::Use, Step::Release] {
            image = history.live(step, image)?;
        }
    }
    history.report.tally.histories = 1;
    Ok(history.report)
}

/// Makes random files on the image.
fn fill(plan: &AdoptPlan, image: &DiskImage, rng: &mut Rng) -> Result<(Model, DiskImage), String> {
    let model = Model::new(rng, plan.blocks);
    let world = World::new(plan.seed, SMALL_MIB, image.clone());
    let files = model.clone();
    let filled = world.run(async move |fs: Ext4| {
        files.create(&fs).await?;
        fs.unmount().await
    });
    filled.and_then(|filled| filled).map_err(|error| format!("files: {error}"))?;
    let mut image = world.settled();
    image.settle();
    Ok((model, image))
}

struct History<'p> {
    plan: &'p AdoptPlan,
    rng: Rng,
    model: Rc<RefCell<Model>>,
    /// Each state is judged once, whatever the model is at the time.
    states: States<()>,
    report: Report,
}

impl History<'_> {
    /// Repeats a step until it succeeds. Crashes may come in between, and one comes at its end.
    fn live(&mut self, step: Step, mut image: DiskImage) -> Result<DiskImage, String> {
        loop {
            let stop_at = self.rng.one_in(3).then(|| 1 + self.rng.below(300));
            let (done, after) = self.run(step, &image, stop_at)?;
            image = after;
            if done {
                return Ok(image);
            }
        }
    }

    /// Begins a step and forks the world at events. Crashes when the step is done, or at event
    /// `stop_at`.
    fn run(
        &mut self,
        step: Step,
        image: &DiskImage,
        stop_at: Option<u64>,
    ) -> Result<(bool, DiskImage), String> {
        let world = World::torn(self.rng.next_u64(), SMALL_MIB, image.clone());
        let ended = Rc::<RefCell<Ended>>::default();
        let work = Work {
            site: site(&world),
            engine: self.plan.engine(),
            layout: self.plan.layout,
            writes: self.plan.writes,
            model: Rc::clone(&self.model),
            rng: Rng::new(self.rng.next_u64()),
        };
        let told = Rc::clone(&ended);
        world.sim.handle(world.user).spawn(async move {
            let result = work.run(step).await;
            told.replace(Some(result));
        });
        self.report.tally.incarnations += 1;
        let mut living = Living { history: self, world: &world, step, ended: &ended };
        let ran = history::run(&world.sim, &mut living, Until { linger: 0, cut: stop_at })?;
        let result = ended.take();
        match &result {
            Some(Err(error)) => return Err(format!("{step:?}: {error}")),
            None if !ran.is_over => return Err(format!("{step:?} hangs")),
            _ => {}
        }
        let image = ext4::crash(&world, &mut self.rng);
        self.judge(&image, step.phase())?;
        Ok((result.is_some(), image))
    }

    /// Crashes a copy of the world here, and perhaps again in the step that follows.
    fn fork(&mut self, world: &World, step: Step) -> Result<(), String> {
        let mut image = ext4::crash(world, &mut self.rng);
        let mut phase = step.phase();
        while self.rng.one_in(5) {
            image = self.crash_again(&image);
            phase = Phase::Recovery;
            self.report.tally.nested += 1;
        }
        self.judge(&image, phase)
    }

    /// Begins to adopt or to release, by chance, and crashes somewhere.
    fn crash_again(&mut self, image: &DiskImage) -> DiskImage {
        let world = World::torn(self.rng.next_u64(), SMALL_MIB, image.clone());
        let (site, layout, back) = (site(&world), self.plan.layout, self.rng.one_in(2));
        let engine = self.plan.engine();
        world.sim.handle(world.user).spawn(async move {
            if back {
                let _ = release(&site, &engine).await;
            } else {
                let _ = adopt(&site, &layout, &engine).await;
            }
        });
        let at = 1 + self.rng.below(200);
        world.sim.run_until(|| world.disk.events() >= at);
        ext4::crash(&world, &mut self.rng)
    }

    fn judge(&mut self, image: &DiskImage, phase: Phase) -> Result<(), String> {
        let fingerprint = image.fingerprint();
        let sampled = ext4::is_due(&mut self.rng, self.plan.e2fsck_every);
        if !self.states.meet(fingerprint, phase, &mut self.report) {
            return Ok(());
        }
        let tally = &mut self.report.tally;
        tally.judged += 1;
        tally.judged_by_e2fsck += u64::from(sampled);
        tally.recovered += 1;
        let judge = Judge { plan: self.plan, model: self.model.borrow().clone() };
        judge.check(image, &mut self.rng, sampled)?;
        let seed = self.rng.next_u64();
        if self.rng.one_in(2) {
            let adopted = judge.finish_adopting(image, seed)?;
            if self.rng.one_in(2) {
                judge.finish_releasing(&adopted, seed, sampled)?;
            }
            return Ok(());
        }
        judge.finish_releasing(image, seed, sampled).map(drop)
    }
}

/// The result of a step, once it has ended.
type Ended = Option<Result<(), AdoptError>>;

/// A step that runs.
struct Living<'h, 'p> {
    history: &'h mut History<'p>,
    world: &'h World,
    step: Step,
    ended: &'h RefCell<Ended>,
}

impl history::World for Living<'_, '_> {
    fn events(&self) -> u64 {
        self.world.disk.events()
    }

    fn is_due(&mut self) -> bool {
        self.history.rng.one_in(self.history.plan.fork_every)
    }

    fn fork(&mut self) -> Result<(), String> {
        let forked = self.history.fork(self.world, self.step);
        forked.map_err(|problem| format!("{:?}: {problem}", self.step))
    }

    fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    fn has_problem(&self) -> bool {
        false
    }

    fn hangs(&self, _sim: &Sim, steps: u64) -> bool {
        steps > STEPS_MOST
    }
}

/// The input of a step.
pub(super) struct Work {
    site: Site,
    engine: Engine,
    layout: LogLayout,
    writes: u64,
    model: Rc<RefCell<Model>>,
    pub(super) rng: Rng,
}

impl Work {
    /// Runs a step. It is no error if an earlier attempt has done it.
    async fn run(mut self, step: Step) -> Result<(), AdoptError> {
        match step {
            Step::Adopt => match adopt(&self.site, &self.layout, &self.engine).await {
                Ok(_) | Err(AdoptError::AlreadyAdopted) => Ok(()),
                Err(error) => Err(error),
            },
            Step::Use => {
                let logs = open(&self.site, &self.engine).await?.logs;
                match self.engine {
                    Engine::Small(small) => self.write(small, logs).await,
                    Engine::Volume => self.write_files(&logs).await,
                }
            }
            Step::Release => match release(&self.site, &self.engine).await {
                Ok(()) | Err(AdoptError::NotAdopted) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes blocks of files through the logs.
    async fn write(&mut self, small: Small, logs: Logs) -> Result<(), AdoptError> {
        let mut open = if small.is_drained(&self.site, &logs).await? {
            small.begin(&self.site, logs).await?
        } else {
            small.go_on(&self.site, logs).await?
        };
        for _ in 0..self.writes {
            if !Small::has_room(&open) {
                break;
            }
            let written = self.model.borrow_mut().write(&mut self.rng);
            let Some(written) = written else { break };
            small.append(&self.site, &mut open, written.home, &written.block).await?;
            self.model.borrow_mut().acknowledge(written.chosen);
        }
        Ok(())
    }

    /// Writes blocks of files as programs do, and syncs them.
    async fn write_files(&mut self, logs: &Logs) -> Result<(), AdoptError> {
        let near = NearOptions { open: Volumes::open_options(logs)?, ..NearOptions::default() };
        let options = Options {
            clock: Rc::clone(&self.site.clock),
            read_only: false,
            durability: Default::default(),
            replay: Default::default(),
            memory: Memory::default(),
        };
        let (device, runtime) = (Rc::clone(&self.site.device), self.site.runtime.clone());
        let (near, _) = Near::mount(runtime, device, &near, options).await?;
        for _ in 0..self.writes {
            let written = self.model.borrow_mut().write(&mut self.rng);
            let Some(written) = written else { break };
            let ino = near.fs().lookup(Ino::ROOT, &written.file).await?.ino;
            let offset = (written.at * BLOCK_BYTES) as u64;
            if ino.0.is_multiple_of(2) {
                // Content that is given back must not be in the logs alone.
                self.set_durable(near.fs(), ino).await?;
            }
            near.fs().write(ino, offset, written.block).await?;
            near.fs().sync(ino).await?;
            self.model.borrow_mut().acknowledge(written.chosen);
            self.keep_house(&near).await?;
        }
        Ok(near.unmount().await?)
    }
}
