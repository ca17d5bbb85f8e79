//! One history: clients on a disk that crashes, with forks at the disk's events.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::{Layout, Phase, Volume, VolumeConfig};
use manylogs_block::{Nanos, Rng, Sectors, to_usize};
use manylogs_ext4::{Error, Ext4};
use manylogs_sim::Sim;

use super::broken_log::{self, Broken};
use super::client::Client;
use super::homes::{self, Births};
use super::images::Images;
use super::judge::{self, AllHeld, Left};
use super::model::{FileId, Model};
use super::plan::{Ext4Plan, Journal};
use super::trouble::Trouble;
use super::world::{JournalAt, Mounted, SMALL_MIB, World};
use crate::history::{self, States, Until};
use crate::report::Report;
use crate::volume::disks::DiskImages;

/// Number of steps of tasks after which clients count as hanging.
const STEPS_MOST: u64 = 6_000_000;

/// How old metadata becomes where it goes home soon.
const AGE: Nanos = Nanos::from_millis(4);
/// Most time between two saved maps, in milliseconds.
const SAVE_EVERY: u64 = 100;
/// Most time between two attempts to arrange metadata, in milliseconds.
const ARRANGE_EVERY: u64 = 200;
/// Most time between two checkpoints, snapshots or moves of a log, in milliseconds.
const CLEAN_EVERY: u64 = 400;
/// Shares of the logs that may be kept.
const SHARES: [f64; 3] = [0.01, 0.04, 0.5];

/// Runs the history of `plan` on one of `images`.
///
/// # Errors
/// The promise that was broken.
pub(crate) fn run_history(plan: &Ext4Plan, images: &Images) -> Result<Report, String> {
    let (mut image, journal) = begin(plan, images)?;
    let mut history = History {
        plan,
        journal,
        rng: Rng::new(plan.seed ^ 0x5eed),
        models: (0..plan.clients).map(|_| Rc::new(RefCell::new(Model::new()))).collect(),
        states: States::default(),
        layout: Rc::default(),
        births: Births::default(),
        report: Report::default(),
    };
    for incarnation in 0..plan.incarnations {
        let (crashed, left) = history.live(incarnation, &image)?;
        if left == Left::WithoutLogs {
            break;
        }
        image = crashed;
    }
    history.report.tally.histories = 1;
    Ok(history.report)
}

/// The disk or array with which a history begins, and the place of its journal.
fn begin(plan: &Ext4Plan, images: &Images) -> Result<(DiskImages, JournalAt), String> {
    let Some(array) = plan.array else {
        let (image, journal) = images.get(plan.journal, plan.image);
        return Ok((DiskImages::one(image.clone()), journal));
    };
    let (mut images, journal) = images.near_on(&array, plan.journal, plan.image)?;
    images.life = array.life;
    Ok((images, journal))
}

struct History<'p> {
    plan: &'p Ext4Plan,
    journal: JournalAt,
    rng: Rng,
    models: Vec<Rc<RefCell<Model>>>,
    /// The moment is the sum of the models' moments.
    states: States<u64, Left>,
    /// Layout of the logs near the head, once the file system has been mounted.
    layout: Rc<RefCell<Option<Layout>>>,
    /// Files that needed no place from their birth on.
    births: Births,
    report: Report,
}

/// Reports of an incarnation.
#[derive(Clone, Default)]
struct Watch {
    mounted: Rc<Cell<bool>>,
    running: Rc<Cell<usize>>,
    /// The volume with the logs near the head, once it is mounted.
    volume: Rc<RefCell<Option<Volume>>>,
    problem: Rc<RefCell<Option<String>>>,
}

impl Watch {
    fn note(&self, problem: String) {
        self.problem.borrow_mut().get_or_insert(problem);
    }
}

impl History<'_> {
    /// Runs one incarnation, from mount to crash. Returns the content of the disk, and its state.
    fn live(&mut self, incarnation: u64, image: &DiskImages) -> Result<(DiskImages, Left), String> {
        let world = World::of(self.plan.seed + incarnation, SMALL_MIB, image.clone());
        let watch = Watch::default();
        let seed = self.plan.seed + 1000 * incarnation;
        let layout = Rc::clone(&self.layout);
        let trouble = Trouble::new(&world.disks, world.runtime(), layout, seed);
        let trouble = self.plan.trouble.then_some(trouble);
        let start = Start {
            runtime: world.runtime(),
            models: self.models.clone(),
            plan: self.plan.clone(),
            incarnation,
            births: self.births.clone(),
            watch: watch.clone(),
            trouble: trouble.clone(),
        };
        let lost = world.disks.lost_members();
        if let Some(mut rng) = self.plan.leaving(incarnation) {
            world.disks.members_leave(&mut rng);
        }
        let journal = self.journal.in_some_mode(&mut self.rng);
        let mounting = world.mounting(&journal);
        let again = world.mounting(&journal);
        world.sim.handle(world.user).spawn(async move {
            let mounted = match &start.trouble {
                Some(trouble) => trouble.mount(mounting, again).await,
                None => mounting.await,
            };
            match mounted {
                Ok(mounted) => start.run(mounted).await,
                Err(error) => start.watch.note(format!("mount: {error}")),
            }
        });
        self.report.tally.incarnations += 1;
        let ended = self.watch(&world, &watch);
        world.disks.count(lost, &mut self.report.tally);
        if let Some(volume) = watch.volume.take() {
            self.report.tally.add_kept(&volume.stats());
        }
        let ended = ended.and_then(|()| {
            let image = judge::crash_disks(&world, &mut self.rng);
            let left = self.judge(&image, Phase::Recovery)?;
            Ok((image, left))
        });
        let Some(trouble) = trouble else { return ended };
        trouble.count(&mut self.report.tally);
        ended.map_err(|problem| trouble.explain(problem))
    }

    /// Runs the world until its clients have ended, and forks it at events of its disk.
    fn watch(&mut self, world: &World, watch: &Watch) -> Result<(), String> {
        let mut living = Living { history: self, world, watch };
        let ran = history::run(&world.sim, &mut living, Until::default())?;
        match watch.problem.take() {
            Some(problem) => Err(problem),
            None if ran.is_over => Ok(()),
            None => Err("the clients hang".to_owned()),
        }
    }

    fn fork(&mut self, world: &World, watch: &Watch) -> Result<(), String> {
        let mut image = judge::crash_disks(world, &mut self.rng);
        let mut phase = if watch.mounted.get() { world.disks.phase() } else { Phase::Open };
        while self.rng.one_in(4) {
            let journal = self.journal.in_some_mode(&mut self.rng);
            image = judge::crash_in_recovery(&image, &journal, &mut self.rng);
            phase = Phase::Recovery;
            self.report.tally.nested += 1;
        }
        self.judge(&image, phase).map(drop)
    }

    fn judge(&mut self, image: &DiskImages, phase: Phase) -> Result<Left, String> {
        let fingerprint = image.fingerprint();
        self.states.meet(fingerprint, phase, &mut self.report);
        let moment = self.models.iter().map(|model| model.borrow().moment).sum();
        let (seed, sampled) =
            (self.rng.next_u64(), judge::is_due(&mut self.rng, self.plan.e2fsck_every));
        let own = !self.plan.journal.is_near();
        let replayed = sampled && self.rng.one_in(2) && own;
        if let Some(left) = self.states.verdict(fingerprint, moment) {
            return Ok(left);
        }
        let models = self.models.clone();
        let models: Vec<_> = models.iter().map(|model| model.borrow()).collect();
        let models: Vec<&Model> = models.iter().map(|model| &**model).collect();
        let tally = &mut self.report.tally;
        tally.judged += 1;
        tally.judged_by_e2fsck += u64::from(sampled);
        tally.replayed_by_e2fsck += u64::from(replayed);
        if replayed {
            judge::by_e2fsck(image.first(), &models, seed)?;
        }
        tally.recovered += 1;
        let sampled = sampled && !replayed;
        let left = judge::by_ourselves(image, &self.journal, &models, seed, sampled)?;
        if left == Left::WithoutLogs && !self.plan.trouble {
            return Err("every log has failed".to_owned());
        }
        self.judge_homes(image, seed)?;
        let broken = broken_log::use_broken(image.first(), &self.journal, &models)?;
        self.report.tally.damaged_logs += u64::from(broken != Broken::Spared);
        self.report.tally.damaged_logs_told += u64::from(broken == Broken::Told);
        self.states.judged(fingerprint, moment, left);
        Ok(left)
    }

    /// Judges the homes alone now and then, if some files need no place.
    fn judge_homes(&mut self, image: &DiskImages, seed: u64) -> Result<(), String> {
        let every = self.plan.homes_every;
        let is_due = judge::is_due(&mut Rng::new(seed ^ 0x40e5), every);
        if !self.plan.durable || self.plan.journal != Journal::Near || !is_due {
            return Ok(());
        }
        let files =
            homes::show_no_stranger(&image.flat(Sectors(SMALL_MIB << 11)), &self.births, seed)?;
        self.report.tally.homes_judged += 1;
        self.report.tally.homes_files += files;
        Ok(())
    }
}

/// An incarnation that runs.
struct Living<'h, 'p> {
    history: &'h mut History<'p>,
    world: &'h World,
    watch: &'h Watch,
}

impl history::World for Living<'_, '_> {
    fn events(&self) -> u64 {
        self.world.disks.events()
    }

    fn is_due(&mut self) -> bool {
        self.history.rng.one_in(self.history.plan.fork_every)
    }

    fn fork(&mut self) -> Result<(), String> {
        self.history.fork(self.world, self.watch)
    }

    fn has_ended(&self) -> bool {
        self.watch.mounted.get() && self.watch.running.get() == 0
    }

    fn has_problem(&self) -> bool {
        self.watch.problem.borrow().is_some()
    }

    fn hangs(&self, _sim: &Sim, steps: u64) -> bool {
        steps > STEPS_MOST
    }
}

/// The input of the clients of an incarnation.
struct Start {
    runtime: manylogs_block::Handle,
    models: Vec<Rc<RefCell<Model>>>,
    plan: Ext4Plan,
    incarnation: u64,
    births: Births,
    watch: Watch,
    trouble: Option<Trouble>,
}

impl Start {
    /// Compares the files with what was promised, and goes on from there.
    async fn run(self, mounted: Mounted) {
        let fs = mounted.fs();
        let dirs: Vec<_> = self.models.iter().map(|model| model.borrow().dir).collect();
        let held = judge::read_all(fs, &dirs).await.and_then(|held| self.adopt(held));
        if let Err(problem) = held {
            return self.watch.note(format!("mounted again: {problem}"));
        }
        if self.plan.durable {
            fs.keep_synced_writes();
        }
        let failed = self.trouble.as_ref().map(|trouble| {
            trouble.begin(&mounted);
            Rc::clone(&trouble.told.failed)
        });
        for (number, model) in self.models.iter().enumerate() {
            let turn = self.incarnation * 1000 + number as u64;
            let client = Client {
                fs: fs.clone(),
                runtime: self.runtime.clone(),
                name: format!("client {number}").into_bytes(),
                model: Rc::clone(model),
                rng: RefCell::new(Rng::new(self.plan.seed + 1000 * turn)),
                shape: self.plan.shape,
                durable: self.plan.durable,
                mount: self.incarnation,
                births: self.births.clone(),
                next: Cell::new(turn * 1_000_000),
                open: Cell::new(None),
                failed: failed.clone(),
                ended: Cell::new(false),
                losses: Cell::new(fs.losses()),
            };
            let (watch, steps) = (self.watch.clone(), self.plan.steps);
            watch.running.set(watch.running.get() + 1);
            self.runtime.spawn(async move {
                if let Err(error) = client.run(steps).await {
                    watch.note(format!("client {number}: {error}"));
                }
                watch.running.set(watch.running.get() - 1);
            });
        }
        self.watch.mounted.set(true);
        if self.plan.arranges && (self.plan.seed / 3).is_multiple_of(2) {
            self.arrange(fs);
        } else if self.plan.arranges {
            fs.max_age(None);
            fs.arrange_every(Some(AGE)); // In each moment of rest, where it gains.
        }
        if self.plan.saves {
            self.save(fs);
        }
        if self.plan.ages {
            fs.max_age(Some(AGE));
        }
        if let Mounted::Near(near) = &mounted {
            if self.plan.durable || self.plan.journal == Journal::NearLazy {
                self.clean(near.volume());
            }
            self.watch.volume.replace(Some(near.volume().clone()));
        }
    }

    /// Starts a task that brings home what the logs keep, or moves logs, as long as there are
    /// clients. It changes how much may stay, too.
    fn clean(&self, volume: &Volume) {
        let (volume, runtime, watch) = (volume.clone(), self.runtime.clone(), self.watch.clone());
        let mut rng = Rng::new(self.plan.seed ^ (self.incarnation + 0xc1ea));
        self.runtime.spawn(async move {
            while watch.running.get() > 0 {
                runtime.sleep(Nanos::from_millis(rng.below(CLEAN_EVERY))).await;
                // An error shows in what is read later.
                match rng.below(4) {
                    0 => drop(volume.checkpoint().await),
                    1 => drop(volume.snapshot().await),
                    2 => {
                        let durable_budget = SHARES[to_usize(rng.below(SHARES.len() as u64))];
                        let config = VolumeConfig { durable_budget, ..volume.config() };
                        drop(volume.reconfigure(&config));
                    }
                    _ => drop(volume.swap().await),
                }
            }
        });
    }

    /// Starts a task that arranges metadata as long as there are clients.
    fn arrange(&self, fs: &Ext4) {
        let (fs, runtime, watch) = (fs.clone(), self.runtime.clone(), self.watch.clone());
        let mut rng = Rng::new(self.plan.seed ^ (self.incarnation + 0xa55));
        self.runtime.spawn(async move {
            while watch.running.get() > 0 {
                runtime.sleep(Nanos::from_millis(rng.below(ARRANGE_EVERY))).await;
                match fs.arrange().await {
                    Ok(_) => {}
                    // It is mounted in another mode.
                    Err(Error::Unsupported(_)) => return,
                    Err(error) => return watch.note(format!("arrange: {error}")),
                }
            }
        });
    }

    /// Starts a task that saves the map of the journal as long as there are clients.
    fn save(&self, fs: &Ext4) {
        let (fs, runtime, watch) = (fs.clone(), self.runtime.clone(), self.watch.clone());
        let mut rng = Rng::new(self.plan.seed ^ (self.incarnation + 0x5a7e));
        self.runtime.spawn(async move {
            while watch.running.get() > 0 {
                runtime.sleep(Nanos::from_millis(rng.below(SAVE_EVERY))).await;
                if let Err(error) = fs.save_map().await {
                    return watch.note(format!("save the map: {error}"));
                }
            }
        });
    }

    fn adopt(&self, held: AllHeld) -> Result<(), String> {
        for (number, (model, held)) in self.models.iter().zip(held).enumerate() {
            let Some((names, contents)) = held else { continue };
            let fresh = FileId((self.incarnation * 1000 + number as u64) * 1_000_000);
            model.borrow_mut().adopt(&names, &contents, fresh)?;
        }
        Ok(())
    }
}
