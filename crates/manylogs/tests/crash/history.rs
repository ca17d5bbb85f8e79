//! One history: clients, a volume, a disk, and forks at their events.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use manylogs::{CheckpointPolicy, EngineConfig, LogPlacement, OpenOptions, Volume, VolumeStats};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, Sectors,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Oracle, Order, Sim};

use crate::recovery::{crash_in_recovery, judge, survival};

/// Everything that a seed decides ahead.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    seed: u64,
    disk: CrashDiskConfig,
    engine: EngineConfig,
    incarnations: u64,
    clients: u64,
    operations: u64,
    /// One event in so many is forked.
    fork_every: u64,
}

impl Plan {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let physical = if rng.one_in(3) { Sectors(8) } else { Sectors(1) };
        let threshold = Sectors(4 + rng.below(13));
        let log = Sectors(8 * (12 + rng.below(8)));
        let placement = if rng.one_in(5) {
            LogPlacement::Single(0.1 * rng.below(11) as f64)
        } else {
            LogPlacement::EveryGroup(Sectors(8 * (30 + rng.below(20))))
        };
        let checkpoint = match rng.below(4) {
            0 => CheckpointPolicy::OnFull,
            1 => CheckpointPolicy::Idle,
            2 => CheckpointPolicy::OffHours { from_s: 0, until_s: 0 },
            _ => CheckpointPolicy::Every(Nanos::from_millis(5 + rng.below(100))),
        };
        let engine = EngineConfig {
            threshold,
            record: Sectors(threshold.0 + rng.below(log.0 / 2 - threshold.0)),
            log,
            placement,
            swap: 0.3 + 0.1 * rng.below(6) as f64,
            checkpoint,
            idle: Nanos::from_millis(1 + rng.below(10)),
            watermark: 0.5 + 0.1 * rng.below(6) as f64,
            checkpoint_rate: 0,
            appends: manylogs_block::to_usize(1 + rng.below(4)),
            buffer: Sectors(rng.below(64)),
            buffer_age: Nanos::from_millis(1 + rng.below(50)),
            snapshot: if rng.one_in(3) { Nanos(0) } else { Nanos::from_millis(5 + rng.below(60)) },
        };
        let disk = CrashDiskConfig {
            capacity: Sectors(1600 + 8 * rng.below(60)),
            physical_sector: physical,
            volatile_cache: !rng.one_in(4),
            latency_max: Nanos::from_millis(1),
        };
        Self {
            seed,
            disk,
            engine,
            incarnations: 1 + rng.below(3),
            clients: 1 + rng.below(4),
            operations: 30 + rng.below(90),
            fork_every: 1 + rng.below(6),
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{self:?}")
    }
}

/// Tells how to repeat a history that panics, wherever that happens.
struct Repeat(u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() && !cfg!(feature = "plant") {
            eprintln!(
                "repeat with: MANYLOGS_SEED={} cargo test -p manylogs --test crash \
                 nothing_acknowledged_is_lost_in_any_crash -- --nocapture",
                self.0
            );
        }
    }
}

/// What the clients of one incarnation share.
struct World {
    volume: Volume,
    runtime: Handle,
    oracle: Rc<RefCell<Oracle>>,
    rng: RefCell<Rng>,
    next_tag: Rc<Cell<u64>>,
    left: Cell<u64>,
    threshold: u64,
}

/// What all histories together came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Hashes of the images that were judged.
    pub(crate) states: HashSet<u64>,
    /// Crashes during recovery.
    pub(crate) nested: u64,
    /// Recoveries that a snapshot made faster.
    pub(crate) from_snapshot: u64,
    /// What the engine did in the meantime.
    pub(crate) supersedes: u64,
    pub(crate) swaps: u64,
    pub(crate) resets: u64,
    pub(crate) checkpoints: u64,
    pub(crate) snapshots: u64,
    pub(crate) starved: u64,
    pub(crate) redirected: u64,
}

impl Tally {
    fn add(&mut self, stats: &VolumeStats) {
        self.supersedes += stats.supersedes;
        self.swaps += stats.log_swaps;
        self.resets += stats.log_resets;
        self.checkpoints += stats.checkpoints;
        self.snapshots += stats.snapshots;
        self.starved += stats.starved_writes;
        self.redirected += stats.redirected_reads;
    }

    /// The tests prove nothing of what they never did.
    pub(crate) fn assert_covers_everything(&self) {
        for (what, count) in [
            ("crashes during recovery", self.nested),
            ("recoveries from a snapshot", self.from_snapshot),
            ("supersedes", self.supersedes),
            ("log swaps", self.swaps),
            ("log resets", self.resets),
            ("checkpoints", self.checkpoints),
            ("snapshots", self.snapshots),
            ("writes that found the logs full", self.starved),
            ("redirected reads", self.redirected),
        ] {
            assert!(count >= 20, "only {count} {what} in all histories");
        }
    }
}

/// Runs the history of `plan` and adds to `tally`.
pub(crate) fn run_history(plan: &Plan, tally: &mut Tally) {
    let _repeat = Repeat(plan.seed);
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let mut image = DiskImage::default();
    let oracle = Rc::new(RefCell::new(Oracle::new(0)));
    let next_tag = Rc::new(Cell::new(1));
    for incarnation in 0..plan.incarnations {
        let sim = Sim::new(rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let disk = CrashDisk::new(sim.handle(drive), plan.disk, image);
        let failure = Rc::new(RefCell::new(None));
        let done = Rc::new(Cell::new(false));
        let volume = Rc::new(RefCell::new(None));
        sim.handle(user).spawn(live(
            plan.clone(),
            incarnation,
            sim.handle(user),
            disk.clone(),
            (Rc::clone(&oracle), Rc::clone(&next_tag), rng.split()),
            (Rc::clone(&failure), Rc::clone(&volume), Rc::clone(&done)),
        ));
        let mut seen = 0;
        let linger = rng.below(40);
        let mut ended_at = None;
        sim.run_until(|| {
            if let Some(problem) = failure.borrow().as_ref() {
                plan.fail(problem);
            }
            let events = disk.events();
            if volume.borrow().is_some() && events != seen && rng.one_in(plan.fork_every) {
                fork(plan, &disk, &oracle.borrow(), &mut rng, tally);
            }
            seen = events;
            // After its last request the engine is left to its background work for a while.
            if done.get() && ended_at.is_none() {
                ended_at = Some(events);
            }
            ended_at.is_some_and(|at| events >= at + linger) || sim.now().0 > 20_000_000_000
        });
        if !done.get() {
            plan.fail("clients hang: no progress in 20 s of virtual time");
        }
        if let Some(volume) = volume.take() {
            tally.add(&volume.stats());
        }
        sim.kill(user);
        image = crashed(&disk, &mut rng);
        settle_oracle(plan, &image, &oracle);
    }
}

fn crashed(disk: &CrashDisk, rng: &mut Rng) -> DiskImage {
    if rng.one_in(2) { disk.after_kill(rng) } else { disk.after_power_cut(survival(rng), rng) }
}

/// Judges the crash that the history itself suffers. The next incarnation recovers by itself;
/// versions that it may or may not find stay possible.
fn settle_oracle(plan: &Plan, image: &DiskImage, oracle: &Rc<RefCell<Oracle>>) {
    if let Err(problem) = judge(image, plan.disk, &oracle.borrow(), plan.seed) {
        plan.fail(&problem);
    }
}

fn fork(plan: &Plan, disk: &CrashDisk, oracle: &Oracle, rng: &mut Rng, tally: &mut Tally) {
    let mut image = crashed(disk, rng);
    if rng.one_in(4) {
        image = crash_in_recovery(image, plan.disk, rng);
        tally.nested += 1;
    }
    let mut hasher = DefaultHasher::new();
    image.hash(&mut hasher);
    if tally.states.insert(hasher.finish()) {
        match judge(&image, plan.disk, oracle, plan.seed) {
            Ok(from_snapshot) => tally.from_snapshot += u64::from(from_snapshot),
            Err(problem) => plan.fail(&problem),
        }
    }
}

type Shared = (Rc<RefCell<Oracle>>, Rc<Cell<u64>>, Rng);
type Outcome = (Rc<RefCell<Option<String>>>, Rc<RefCell<Option<Volume>>>, Rc<Cell<bool>>);

/// Opens the volume and lets the clients work.
async fn live(
    plan: Plan,
    incarnation: u64,
    runtime: Handle,
    disk: CrashDisk,
    (oracle, next_tag, rng): Shared,
    (failure, opened, done): Outcome,
) {
    let device = Rc::new(disk);
    let volume = if incarnation == 0 {
        Volume::create(runtime.clone(), device, &plan.engine).await
    } else {
        let options = OpenOptions { config: Some(plan.engine.clone()), ..OpenOptions::default() };
        Volume::open(runtime.clone(), device, &options).await.map(|(volume, _)| volume)
    };
    let volume = match volume {
        Ok(volume) => volume,
        Err(error) => {
            *failure.borrow_mut() = Some(format!("open: {error}"));
            return;
        }
    };
    if let Err(problem) = adopt(&volume, &oracle, incarnation == 0).await {
        *failure.borrow_mut() = Some(problem);
        return;
    }
    opened.replace(Some(volume.clone()));
    let world = Rc::new(World {
        volume,
        runtime: runtime.clone(),
        oracle,
        rng: RefCell::new(rng),
        next_tag,
        left: Cell::new(plan.operations),
        threshold: plan.engine.threshold.0,
    });
    let running = Rc::new(Cell::new(plan.clients));
    for _ in 0..plan.clients {
        let (world, failure) = (Rc::clone(&world), Rc::clone(&failure));
        let (running, done) = (Rc::clone(&running), Rc::clone(&done));
        runtime.spawn(async move {
            if let Err(problem) = world.client().await {
                failure.borrow_mut().get_or_insert(problem);
            }
            running.set(running.get() - 1);
            done.set(running.get() == 0);
        });
    }
}

/// Takes what the volume holds now as the truth, if the rules allow it.
async fn adopt(volume: &Volume, oracle: &Rc<RefCell<Oracle>>, fresh: bool) -> Result<(), String> {
    let capacity = volume.layout().capacity();
    if fresh {
        *oracle.borrow_mut() = Oracle::new(manylogs_block::to_usize(capacity.0));
        return Ok(());
    }
    let extent = Extent::new(0, capacity.0);
    let content = volume.submit(Request::Read { extent }).await;
    let content = content.map_err(|error| format!("read after reopening: {error}"))?;
    oracle.borrow_mut().check_recovered(&content).map_err(|wrong| format!("reopened: {wrong}"))
}

impl World {
    async fn client(&self) -> Result<(), String> {
        while self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            if self.rng.borrow_mut().one_in(8) {
                let pause = Nanos(self.rng.borrow_mut().below(30_000_000));
                self.runtime.sleep(pause).await;
            }
            let operation = self.rng.borrow_mut().below(100);
            let result = match operation {
                0..45 => self.write(1 + self.below(self.threshold)).await,
                45..60 => self.write(self.threshold + 1 + self.below(40)).await,
                60..80 => self.read().await,
                80..90 => self.flush().await,
                90..95 => self.zero(false).await,
                95..99 => self.zero(true).await,
                _ => self.maintain().await,
            };
            match result {
                Ok(()) => {}
                Err(Problem::Io(error)) => return Err(format!("unexpected error: {error}")),
                Err(Problem::Wrong(what)) => return Err(what),
            }
        }
        Ok(())
    }

    fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    /// Half of all requests meet in a few places, so that they overlap.
    fn place(&self, len: u64) -> Extent {
        let room = self.volume.layout().capacity().0 - len;
        let start = if self.below(2) == 0 { self.below(room) } else { self.below(40.min(room)) };
        Extent::new(start, len)
    }

    async fn write(&self, len: u64) -> Result<(), Problem> {
        let extent = self.place(len);
        let fua = self.below(2) == 0;
        let tag = self.next_tag.get();
        self.next_tag.set(tag + len);
        let payload = Payload::tags(tag, Sectors(len));
        let hint = if self.below(10) == 0 { Hint::DurabilityOnly } else { Hint::None };
        let write = self.oracle.borrow_mut().submit(extent, &payload);
        self.volume.submit(Request::Write { extent, payload, fua, hint }).await?;
        self.oracle.borrow_mut().acknowledge(extent, write, fua);
        Ok(())
    }

    async fn zero(&self, discard: bool) -> Result<(), Problem> {
        let extent = self.place(1 + self.below(200));
        let fua = !discard && self.below(2) == 0;
        let request = if discard {
            Request::Discard { extent }
        } else {
            Request::WriteZeroes { extent, fua }
        };
        let write = self.oracle.borrow_mut().submit(extent, &Payload::zeroes(extent.len));
        self.volume.submit(request).await?;
        self.oracle.borrow_mut().acknowledge(extent, write, fua);
        Ok(())
    }

    async fn read(&self) -> Result<(), Problem> {
        let extent = self.place(1 + self.below(60));
        let before = self.oracle.borrow_mut().submit_read();
        let content = self.volume.submit(Request::Read { extent }).await?;
        let checked = self.oracle.borrow_mut().check_read(&before, extent, &content);
        checked.map_err(|wrong| Problem::Wrong(format!("read of {extent}: {wrong}")))
    }

    async fn flush(&self) -> Result<(), Problem> {
        let flush = self.oracle.borrow_mut().submit_flush();
        self.volume.submit(Request::Flush).await?;
        self.oracle.borrow_mut().acknowledge_flush(flush);
        Ok(())
    }

    async fn maintain(&self) -> Result<(), Problem> {
        match self.below(3) {
            0 => self.volume.checkpoint().await.map(drop),
            1 => self.volume.snapshot().await.map(drop),
            _ => {
                self.volume.swap().await;
                Ok(())
            }
        }
        .map_err(|error| Problem::Wrong(format!("maintenance: {error}")))
    }
}

enum Problem {
    Io(IoError),
    Wrong(String),
}

impl From<IoError> for Problem {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}
