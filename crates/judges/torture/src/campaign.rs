//! Many histories, on several threads, and their results together.
//!
//! Each history depends on its seed alone. Reports are added up in the order of the seeds,
//! whichever ended first, so the number of threads does not change the result.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use manylogs_array::Shape;
use manylogs_block::Rng;

use crate::adopt::{self, AdoptPlan};
use crate::everest::{self, EverestPlan};
use crate::ext4::{self, Ext4Plan, Images, Journal, Templates};
use crate::gecko::{self, GeckoPlan};
use crate::report::{Report, Violation};
use crate::tally::Tally;
use crate::volume::history::run_history;
use crate::volume::plan::Plan;

/// The system under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum System {
    /// A Manylogs volume on a disk.
    #[default]
    Volume,
    /// Base volumes whose writes are off-loaded to Everest's circular store.
    Everest,
    /// A chain of drives.
    Gecko,
    /// The file system ext4 with its own journal.
    Ext4,
    /// As [`System::Ext4`], but the journal keeps its transactions; some mounts are in another
    /// mode.
    Lazy,
    /// File systems that MLFS takes over and gives back.
    Adopt,
    /// The file system ext4 with its journal in the logs of a volume, near the head.
    Mlfs,
    /// As [`System::Mlfs`], and metadata stays in the logs; some mounts bring it home.
    MlfsLazy,
}

/// Options of ext4 histories that do not come from their seeds.
#[derive(Clone, Debug)]
pub struct Ext4Campaign {
    /// The images that histories begin with.
    pub images: Templates,
    /// One judged state in this number is also judged by e2fsck; none if zero.
    pub e2fsck_every: u64,
    /// Whether nothing crashes, and each seed damages an image, which is then used.
    pub mutate: bool,
}

/// Options of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The system under test.
    pub system: System,
    /// The seeds, first and last included.
    pub seeds: RangeInclusive<u64>,
    /// Stop at this number of distinct crash states.
    pub states: Option<u64>,
    /// Number of threads.
    pub jobs: usize,
    /// Whether images are also damaged, to see whether that is noticed.
    pub faults: bool,
    /// Whether devices fail requests in every history of [`System::Volume`], [`System::Mlfs`] and
    /// [`System::Everest`]. Few crashes are forked then, except with MLFS: such a campaign tests
    /// the answers of requests and the history's own recoveries.
    pub trouble: bool,
    /// Puts [`System::Volume`], [`System::Mlfs`] or [`System::MlfsLazy`] on an array whose members
    /// lose their caches apart, and fail requests with [`Campaign::trouble`]. The seed decides the
    /// chunk.
    pub array: Option<Shape>,
    /// Options for [`System::Ext4`], [`System::Adopt`] and [`System::Mlfs`].
    pub ext4: Option<Ext4Campaign>,
}

/// Follows a campaign, and ends it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Set to end the campaign after the histories under way.
    pub stop: AtomicBool,
    /// Number of histories that were added up.
    pub histories: AtomicU64,
    /// Number of distinct crash states that were found.
    pub states: AtomicU64,
}

/// A history in which something did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Seed of the history.
    pub seed: u64,
    /// The broken promise.
    pub problem: String,
}

/// Result of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Counters of all histories up to the failure, if there is one.
    pub tally: Tally,
    /// The failure with the lowest seed.
    pub failure: Option<Failure>,
    /// Whether it was stopped from outside.
    pub interrupted: bool,
    /// The digest of each history, in the order of the seeds.
    pub digests: Vec<Digest>,
}

/// A short form of what a history did. If two programs have the same digest for a seed, they
/// crashed at the same moments, found the same content on the disks, and had the same counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Seed of the history.
    pub seed: u64,
    /// Number of its distinct crash states.
    pub states: u64,
    /// A hash of these states, in order, and of all its counts.
    pub hash: u64,
}

impl Digest {
    fn of(seed: u64, report: &Report) -> Self {
        let mix = |hash: u64, value: u64| Rng::new(hash ^ value).next_u64();
        let states = report.states.iter().fold(0, |hash, (state, _)| mix(hash, *state));
        let counts = report.tally.counts().filter(|(_, count)| *count > 0);
        // Names are hashed, too, and zero counts change no digest: so a new count that stays zero
        // changes none.
        let hash = counts.fold(states, |hash, (name, count)| {
            mix(name.bytes().fold(hash, |hash, byte| mix(hash, byte.into())), count)
        });
        Self { seed, states: report.states.len() as u64, hash }
    }
}

struct Ledger {
    /// The next seed to be added up.
    next: u64,
    /// Reports of seeds after that one.
    waiting: BTreeMap<u64, Result<Report, Violation>>,
    states: HashSet<u64>,
    summary: Summary,
    /// Whether no more reports are added.
    closed: bool,
}

impl Campaign {
    /// Runs the campaign.
    #[must_use]
    pub fn run(&self, progress: &Progress) -> Summary {
        let ledger = Mutex::new(Ledger {
            next: *self.seeds.start(),
            waiting: BTreeMap::new(),
            states: HashSet::new(),
            summary: Summary::default(),
            closed: false,
        });
        let next = AtomicU64::new(*self.seeds.start());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| self.work(&next, &ledger, progress));
            }
        });
        let mut ledger = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
        ledger.summary.interrupted = !ledger.closed && progress.stop.load(Ordering::Relaxed);
        ledger.summary
    }

    fn plan_of(&self, seed: u64) -> Plan {
        let troubled = self.trouble.then(|| Plan::troubled(seed).sparse());
        let plan = troubled.unwrap_or_else(|| Plan::of_seed(seed));
        match &self.array {
            Some(array) => plan.on(array, self.trouble),
            None => plan,
        }
    }

    fn everest_plan_of(&self, seed: u64) -> EverestPlan {
        let plan = EverestPlan::of_seed(seed);
        if self.trouble { plan.in_trouble() } else { plan }
    }

    /// Runs a history of ext4. Disks cannot be sent to other threads, so each thread has images of
    /// its own.
    fn run_ext4(&self, seed: u64, images: &mut Option<Images>) -> Result<Report, Violation> {
        let Some(campaign) = &self.ext4 else {
            return Err(Violation("a campaign of ext4 needs images".to_owned()));
        };
        let images = match images {
            Some(images) => images,
            None => {
                let made = campaign.images.images();
                images.insert(made.map_err(|error| Violation(format!("images: {error}")))?)
            }
        };
        if self.system == System::Adopt {
            let plan = AdoptPlan::of_seed(seed).with_e2fsck(campaign.e2fsck_every);
            return run_adopt(&plan, images);
        }
        if campaign.mutate {
            return run_mutant(seed, images, campaign.e2fsck_every);
        }
        let journal = match self.system {
            System::Mlfs => Journal::Near,
            System::MlfsLazy => Journal::NearLazy,
            System::Lazy => Journal::Lazy,
            _ => Journal::Own,
        };
        let plan = Ext4Plan::of_seed(seed).with_journal(journal);
        let has_durable = journal.is_near() && seed.is_multiple_of(3);
        let plan = if has_durable { plan.with_durable_files() } else { plan };
        let arranges = journal == Journal::Lazy && seed.is_multiple_of(3);
        let plan = if arranges { plan.arranging() } else { plan };
        let ages = journal == Journal::Lazy && seed % 3 == 1;
        let plan = if ages { plan.aging() } else { plan };
        let expires = journal == Journal::Own && !seed.is_multiple_of(2);
        let plan = if expires { plan.expiring() } else { plan };
        let saves = journal == Journal::Lazy && seed % 3 == 2;
        let plan = if saves { plan.saving() } else { plan };
        let plan = if self.trouble { plan.in_trouble() } else { plan };
        let array = self.array.filter(|_| journal.is_near());
        let plan = match array {
            Some(array) => plan.on(&array),
            None => plan,
        };
        let plan = plan.with_e2fsck(campaign.e2fsck_every);
        // The judge of homes alone needs e2fsck as well.
        let plan = if campaign.e2fsck_every == 0 { plan.with_homes(0) } else { plan };
        run_ext4(&plan, images)
    }

    fn work(&self, next: &AtomicU64, ledger: &Mutex<Ledger>, progress: &Progress) {
        let mut images = None;
        while !progress.stop.load(Ordering::Relaxed) && !lock(ledger).closed {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !self.seeds.contains(&seed) {
                return;
            }
            let result = match self.system {
                System::Volume => run_plan(&self.plan_of(seed), self.faults),
                System::Everest => run_everest(&self.everest_plan_of(seed)),
                System::Ext4 | System::Lazy | System::Adopt | System::Mlfs | System::MlfsLazy => {
                    self.run_ext4(seed, &mut images)
                }
                System::Gecko => run_gecko(&GeckoPlan::of_seed(seed)),
            };
            lock(ledger).take_up(seed, result, self.states, progress);
        }
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the history of one seed.
///
/// # Errors
/// The broken promise.
pub fn run_seed(seed: u64, faults: bool) -> Result<Report, Violation> {
    run_plan(&Plan::of_seed(seed), faults)
}

/// Runs the history of a plan, with faults of the medium or without; a panic is a failure like any
/// other.
///
/// # Errors
/// The broken promise.
pub fn run_plan(plan: &Plan, faults: bool) -> Result<Report, Violation> {
    caught(plan, || run_history(plan, faults))
}

/// Runs a history of Everest; a panic is a failure like any other.
///
/// # Errors
/// The broken promise.
pub fn run_everest(plan: &EverestPlan) -> Result<Report, Violation> {
    caught(plan, || everest::run_history(plan))
}

/// Runs a history of a chain of drives; a panic is a failure like any other.
///
/// # Errors
/// The broken promise.
pub fn run_gecko(plan: &GeckoPlan) -> Result<Report, Violation> {
    caught(plan, || gecko::run_history(plan))
}

/// Runs a history of ext4; a panic is a failure like any other.
///
/// # Errors
/// The promise that was broken.
pub fn run_ext4(plan: &Ext4Plan, images: &Images) -> Result<Report, Violation> {
    caught(plan, || ext4::run_history(plan, images))
}

/// Runs a history of a file system that is taken over and given back; a panic is a failure like any
/// other.
///
/// # Errors
/// The promise that was broken.
pub fn run_adopt(plan: &AdoptPlan, images: &Images) -> Result<Report, Violation> {
    caught(plan, || adopt::run_history(plan, images))
}

/// Damages an image by chance and uses it; a panic is a failure like any other. One in
/// `e2fsck_every` also compares the verdict of our own check with that of e2fsck; none if zero.
///
/// # Errors
/// The promise that was broken.
pub fn run_mutant(seed: u64, images: &Images, e2fsck_every: u64) -> Result<Report, Violation> {
    caught(&seed, || ext4::run_mutant(seed, images, e2fsck_every))
}

fn caught<P: fmt::Debug>(
    plan: &P,
    history: impl FnOnce() -> Result<Report, String>,
) -> Result<Report, Violation> {
    let result = catch_unwind(AssertUnwindSafe(history)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        Err(format!("panic: {text}"))
    });
    result.map_err(|problem| Violation(format!("{problem}\n{plan:?}")))
}

impl Ledger {
    /// Adds up the reports that follow the last one added without a gap.
    fn take_up(
        &mut self,
        seed: u64,
        result: Result<Report, Violation>,
        enough: Option<u64>,
        progress: &Progress,
    ) {
        self.waiting.insert(seed, result);
        while !self.closed
            && let Some(result) = self.waiting.remove(&self.next)
        {
            match result {
                Ok(report) => {
                    self.summary.digests.push(Digest::of(self.next, &report));
                    self.add(&report);
                }
                Err(problem) => {
                    self.summary.failure = Some(Failure { seed: self.next, problem: problem.0 });
                    self.closed = true;
                }
            }
            self.next += 1;
            self.closed |= enough.is_some_and(|enough| self.states.len() as u64 >= enough);
        }
        progress.histories.store(self.summary.tally.histories, Ordering::Relaxed);
        progress.states.store(self.states.len() as u64, Ordering::Relaxed);
    }

    fn add(&mut self, report: &Report) {
        self.summary.tally.add(&report.tally);
        for (state, phase) in &report.states {
            if self.states.insert(*state) {
                self.summary.tally.phases.add(*phase);
            }
        }
    }
}
