//! One history: clients, a volume, a disk, non-volatile RAM, and forks at the events of both.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::{
    CheckpointPolicy, CreateOptions, EngineConfig, LogPlacement, OpenOptions, Volume, VolumeStats,
};
use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, Nanos, Payload, Request, Rng, Sectors, to_usize,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, CrashNvram, DiskImage, NvramImage, Oracle, Order};
use manylogs_sim::{Sim, Survival};

/// What a crash leaves.
pub(crate) type Images = (DiskImage, NvramImage);

/// Everything that a seed decides ahead.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    seed: u64,
    disk: CrashDiskConfig,
    engine: EngineConfig,
    nvram: usize,
    incarnations: u64,
    clients: u64,
    operations: u64,
    /// One event in so many is forked.
    fork_every: u64,
}

impl Plan {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let threshold = Sectors(4 + rng.below(13));
        let log = Sectors(8 * (12 + rng.below(8)));
        let checkpoint = match rng.below(3) {
            0 => CheckpointPolicy::OnFull,
            1 => CheckpointPolicy::Idle,
            _ => CheckpointPolicy::Every(Nanos::from_millis(5 + rng.below(100))),
        };
        let engine = EngineConfig {
            threshold,
            record: Sectors(threshold.0 + rng.below(log.0 / 2 - threshold.0)),
            log,
            placement: LogPlacement::EveryGroup(Sectors(8 * (30 + rng.below(20)))),
            swap: 0.3 + 0.1 * rng.below(6) as f64,
            checkpoint,
            idle: Nanos::from_millis(1 + rng.below(10)),
            watermark: 0.5 + 0.1 * rng.below(6) as f64,
            checkpoint_rate: 0,
            appends: to_usize(1 + rng.below(4)),
            buffer: Sectors(rng.below(64)),
            buffer_age: Nanos::from_millis(1 + rng.below(50)),
            snapshot: Nanos(0),
            table: manylogs::TablePlace::Nvram(0),
        };
        let disk = CrashDiskConfig {
            capacity: Sectors(1600 + 8 * rng.below(60)),
            physical_sector: if rng.one_in(2) { Sectors(8) } else { Sectors(1) },
            volatile_cache: !rng.one_in(4),
            latency_max: Nanos::from_millis(1),
        };
        // So little that it is full again and again.
        let nvram = 16_384 + to_usize(1024 * rng.below(12));
        let incarnations = 1 + rng.below(3);
        let (clients, operations) = (1 + rng.below(4), 60 + rng.below(150));
        let fork_every = 6 + rng.below(12);
        Self { seed, disk, engine, nvram, incarnations, clients, operations, fork_every }
    }
}

/// What all histories together came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) states: u64,
    pub(crate) between: u64,
    pub(crate) nested: u64,
    pub(crate) rewrites: u64,
    pub(crate) supersedes: u64,
    pub(crate) swaps: u64,
    pub(crate) resets: u64,
    pub(crate) checkpoints: u64,
    pub(crate) starved: u64,
}

impl Tally {
    fn add(&mut self, stats: &VolumeStats) {
        self.rewrites += stats.nvram_rewrites;
        self.supersedes += stats.supersedes;
        self.swaps += stats.log_swaps;
        self.resets += stats.log_resets;
        self.checkpoints += stats.checkpoints;
        self.starved += stats.starved_writes;
    }

    /// The tests prove nothing of what they never did.
    pub(crate) fn assert_covers_everything(&self) {
        for (what, count) in [
            ("crashes between two operations on non-volatile RAM", self.between),
            ("crashes during recovery", self.nested),
            ("new snapshots", self.rewrites),
            ("supersedes", self.supersedes),
            ("log swaps", self.swaps),
            ("log resets", self.resets),
            ("checkpoints", self.checkpoints),
            ("writes that found no room", self.starved),
        ] {
            assert!(count >= 20, "only {count} {what} in all histories: {self:?}");
        }
    }
}

/// The two devices, and what decides about their crashes.
#[derive(Clone)]
struct Machine {
    disk: CrashDisk,
    nvram: CrashNvram,
    rng: Rc<RefCell<Rng>>,
}

impl Machine {
    fn crashed(&self) -> Images {
        let mut rng = self.rng.borrow_mut();
        if rng.one_in(2) {
            return (self.disk.after_kill(&mut rng), self.nvram.after_kill());
        }
        let (one, other) = (survival(&mut rng), survival(&mut rng));
        (self.disk.after_power_cut(one, &mut rng), self.nvram.after_power_cut(other, &mut rng))
    }

    fn one_in(&self, n: u64) -> bool {
        self.rng.borrow_mut().one_in(n)
    }
}

fn survival(rng: &mut Rng) -> Survival {
    match rng.below(4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Random,
    }
}

fn options(nvram: &CrashNvram, config: Option<EngineConfig>) -> OpenOptions {
    OpenOptions { config, nvram: Some(Rc::new(nvram.clone())), ..OpenOptions::default() }
}

/// Recovers a crashed machine in a world of its own and checks every sector.
fn judge(plan: &Plan, (disk, nvram): Images, oracle: &Oracle) -> Result<(), String> {
    let sim = Sim::new(plan.seed, Order::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), plan.disk, disk);
    let (runtime, options) = (sim.handle(user), options(&CrashNvram::new(nvram), None));
    let contents = sim.block_on(user, async move {
        let opened = Volume::open(runtime, Rc::new(disk), &options).await;
        let (volume, _) = opened.map_err(|error| format!("recovery failed: {error}"))?;
        let recovered = read_all(&volume).await?;
        volume.checkpoint().await.map_err(|error| format!("checkpoint: {error}"))?;
        Ok::<_, String>([recovered, read_all(&volume).await?])
    })?;
    for (content, when) in contents.iter().zip(["recovered", "after a checkpoint"]) {
        let checked = oracle.clone().check_recovered(content);
        checked.map_err(|wrong| format!("{when}: {wrong}"))?;
    }
    Ok(())
}

async fn read_all(volume: &Volume) -> Result<Payload, String> {
    let extent = Extent::new(0, volume.layout().capacity().0);
    let content = volume.submit(Request::Read { extent }).await;
    content.map_err(|error| format!("read: {error}"))
}

/// Starts a recovery and crashes somewhere within it.
fn crash_in_recovery(plan: &Plan, (disk, nvram): Images, rng: &mut Rng) -> Images {
    let sim = Sim::new(rng.next_u64(), Order::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let machine = Machine {
        disk: CrashDisk::new(sim.handle(drive), plan.disk, disk),
        nvram: CrashNvram::new(nvram),
        rng: Rc::new(RefCell::new(rng.split())),
    };
    let (runtime, device) = (sim.handle(user), Rc::new(machine.disk.clone()));
    let options = options(&machine.nvram, None);
    runtime.clone().spawn(async move {
        let Ok((volume, _)) = Volume::open(runtime, device, &options).await else { return };
        let _ = volume.checkpoint().await;
    });
    // Often while the table is taken up, which is soon done.
    let crash_at = 1 + if rng.one_in(2) { rng.below(16) } else { rng.below(60) };
    let (operations, found) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
    let (watched, seen, images) = (machine.clone(), Rc::clone(&operations), Rc::clone(&found));
    machine.nvram.watch(move || {
        seen.set(seen.get() + 1);
        if watched.disk.events() + seen.get() >= crash_at && images.borrow().is_none() {
            *images.borrow_mut() = Some(watched.crashed());
        }
    });
    sim.run_until(|| {
        let idle = sim.now().0 > 1_000_000_000;
        idle || found.borrow().is_some() || machine.disk.events() + operations.get() >= crash_at
    });
    let crashed = found.borrow_mut().take();
    machine.nvram.unwatch();
    crashed.unwrap_or_else(|| machine.crashed())
}

/// What a history and its forks share.
struct Forks {
    plan: Plan,
    machine: Machine,
    oracle: Rc<RefCell<Oracle>>,
    opened: Rc<RefCell<Option<Volume>>>,
    tally: Rc<RefCell<Tally>>,
}

impl Forks {
    fn maybe_fork(&self, between: bool) {
        // The forks of a history are its own: what the volume does must not depend on them.
        if self.opened.try_borrow().is_ok_and(|volume| volume.is_none())
            || !self.machine.one_in(self.plan.fork_every)
        {
            return;
        }
        let mut images = self.machine.crashed();
        self.tally.borrow_mut().states += 1;
        self.tally.borrow_mut().between += u64::from(between);
        if self.machine.one_in(3) {
            let mut rng = self.machine.rng.borrow_mut().split();
            images = crash_in_recovery(&self.plan, images, &mut rng);
            self.tally.borrow_mut().nested += 1;
        }
        if let Err(problem) = judge(&self.plan, images, &self.oracle.borrow()) {
            panic!("{problem}\n{:?}", self.plan);
        }
    }
}

/// Runs the history of `plan` and adds to `tally`.
pub(crate) fn run_history(plan: &Plan, tally: &Rc<RefCell<Tally>>) {
    let mut rng = Rng::new(plan.seed ^ 0x5eed);
    let mut images = (DiskImage::default(), NvramImage::blank(plan.nvram));
    let oracle = Rc::new(RefCell::new(Oracle::new(0)));
    let next_tag = Rc::new(Cell::new(1));
    for incarnation in 0..plan.incarnations {
        let sim = Sim::new(rng.next_u64(), Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let machine = Machine {
            disk: CrashDisk::new(sim.handle(drive), plan.disk, images.0),
            nvram: CrashNvram::new(images.1),
            rng: Rc::new(RefCell::new(rng.split())),
        };
        let world = Rc::new(World {
            plan: plan.clone(),
            machine: machine.clone(),
            runtime: sim.handle(user),
            oracle: Rc::clone(&oracle),
            rng: RefCell::new(rng.split()),
            next_tag: Rc::clone(&next_tag),
            left: Cell::new(plan.operations),
            running: Cell::new(plan.clients),
            opened: Rc::default(),
            failure: RefCell::default(),
        });
        let forks = Rc::new(Forks {
            plan: plan.clone(),
            machine: machine.clone(),
            oracle: Rc::clone(&oracle),
            opened: Rc::clone(&world.opened),
            tally: Rc::clone(tally),
        });
        let watching = Rc::clone(&forks);
        machine.nvram.watch(move || watching.maybe_fork(true));
        sim.handle(user).spawn(Rc::clone(&world).live(incarnation == 0));
        let (mut seen, linger, mut ended_at) = (0, rng.below(40), None);
        sim.run_until(|| {
            if let Some(problem) = world.failure.borrow().as_ref() {
                panic!("{problem}\n{plan:?}");
            }
            let events = machine.disk.events();
            if events != seen {
                forks.maybe_fork(false);
            }
            seen = events;
            // After its last request the engine is left to its background work for a while.
            if world.running.get() == 0 && ended_at.is_none() {
                ended_at = Some(events);
            }
            ended_at.is_some_and(|at| events >= at + linger) || sim.now().0 > 20_000_000_000
        });
        assert!(world.running.get() == 0, "no progress in 20 s of virtual time\n{plan:?}");
        if let Some(volume) = world.opened.take() {
            tally.borrow_mut().add(&volume.stats());
        }
        machine.nvram.unwatch();
        sim.kill(user);
        images = machine.crashed();
        if let Err(problem) = judge(plan, images.clone(), &oracle.borrow()) {
            panic!("{problem}\n{plan:?}");
        }
    }
}

/// What the clients of one incarnation share.
struct World {
    plan: Plan,
    machine: Machine,
    runtime: Handle,
    oracle: Rc<RefCell<Oracle>>,
    rng: RefCell<Rng>,
    next_tag: Rc<Cell<u64>>,
    left: Cell<u64>,
    running: Cell<u64>,
    opened: Rc<RefCell<Option<Volume>>>,
    failure: RefCell<Option<String>>,
}

impl World {
    /// Opens the volume and lets the clients work.
    async fn live(self: Rc<Self>, fresh: bool) {
        match self.open(fresh).await {
            Ok(volume) => self.opened.replace(Some(volume)),
            Err(problem) => return drop(self.failure.replace(Some(problem))),
        };
        for _ in 0..self.plan.clients {
            let world = Rc::clone(&self);
            self.runtime.spawn(async move {
                let volume = world.opened.borrow().clone();
                let Some(volume) = volume else { return };
                while world.left.get() > 0 {
                    world.left.set(world.left.get() - 1);
                    if let Err(problem) = world.operation(&volume).await {
                        world.failure.borrow_mut().get_or_insert(problem);
                        return;
                    }
                }
                world.running.set(world.running.get() - 1);
            });
        }
    }

    async fn open(&self, fresh: bool) -> Result<Volume, String> {
        let (runtime, device) = (self.runtime.clone(), Rc::new(self.machine.disk.clone()));
        let nvram: Rc<CrashNvram> = Rc::new(self.machine.nvram.clone());
        if fresh {
            let options = CreateOptions { nvram: Some(nvram), ..CreateOptions::default() };
            let created = Volume::create_with(runtime, device, &self.plan.engine, &options).await;
            let volume = created.map_err(|error| format!("create: {error}"))?;
            let sectors = to_usize(volume.layout().capacity().0);
            *self.oracle.borrow_mut() = Oracle::new(sectors);
            return Ok(volume);
        }
        let options = options(&nvram, Some(self.plan.engine));
        let opened = Volume::open(runtime, device, &options).await;
        let (volume, _) = opened.map_err(|error| format!("open: {error}"))?;
        let content = read_all(&volume).await?;
        let checked = self.oracle.borrow_mut().check_recovered(&content);
        checked.map_err(|wrong| format!("reopened: {wrong}"))?;
        Ok(volume)
    }

    async fn operation(&self, volume: &Volume) -> Result<(), String> {
        if self.below(8) == 0 {
            let pause = Nanos(self.below(30_000_000));
            self.runtime.sleep(pause).await;
        }
        let threshold = self.plan.engine.threshold.0;
        let done = match self.below(100) {
            0..42 => self.write(volume, 1 + self.below(threshold)).await,
            42..45 => self.burst(volume).await,
            45..60 => self.write(volume, threshold + 1 + self.below(40)).await,
            60..80 => return self.read(volume).await,
            80..90 => self.flush(volume).await,
            90..98 => self.zero(volume).await,
            _ => return self.maintain(volume).await,
        };
        done.map_err(|error| format!("unexpected error: {error}"))
    }

    fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    /// Half of all requests meet in a few places, so that they overlap.
    fn place(&self, volume: &Volume, len: u64) -> Extent {
        let room = volume.layout().capacity().0 - len;
        let start = if self.below(2) == 0 { self.below(room) } else { self.below(40.min(room)) };
        Extent::new(start, len)
    }

    async fn write(&self, volume: &Volume, len: u64) -> Result<(), IoError> {
        let (extent, fua) = (self.place(volume, len), self.below(2) == 0);
        let tag = self.next_tag.get();
        self.next_tag.set(tag + len);
        let payload = Payload::tags(tag, Sectors(len));
        let write = self.oracle.borrow_mut().submit(extent, &payload);
        let hint = manylogs_block::Hint::None;
        volume.submit(Request::Write { extent, payload, fua, hint }).await?;
        self.oracle.borrow_mut().acknowledge(extent, write, fua);
        Ok(())
    }

    /// Many small writes at once.
    async fn burst(&self, volume: &Volume) -> Result<(), IoError> {
        let mut writes = Vec::new();
        for _ in 0..self.below(40) {
            let (extent, tag) = (self.place(volume, 1), self.next_tag.get());
            self.next_tag.set(tag + 1);
            let payload = Payload::tags(tag, Sectors(1));
            let write = self.oracle.borrow_mut().submit(extent, &payload);
            writes.push((extent, write, volume.submit(Request::write_fua(extent, payload))));
        }
        for (extent, write, done) in writes {
            done.await?;
            self.oracle.borrow_mut().acknowledge(extent, write, true);
        }
        Ok(())
    }

    async fn zero(&self, volume: &Volume) -> Result<(), IoError> {
        let extent = self.place(volume, 1 + self.below(200));
        let fua = self.below(2) == 0;
        let request =
            if fua { Request::WriteZeroes { extent, fua } } else { Request::Discard { extent } };
        let write = self.oracle.borrow_mut().submit(extent, &Payload::zeroes(extent.len));
        volume.submit(request).await?;
        self.oracle.borrow_mut().acknowledge(extent, write, fua);
        Ok(())
    }

    async fn read(&self, volume: &Volume) -> Result<(), String> {
        let extent = self.place(volume, 1 + self.below(60));
        let before = self.oracle.borrow_mut().submit_read(extent);
        let content = volume.submit(Request::Read { extent }).await;
        let content = content.map_err(|error| format!("read: {error}"))?;
        let checked = self.oracle.borrow_mut().check_read(before, &content);
        checked.map_err(|wrong| format!("read of {extent}: {wrong}"))
    }

    async fn flush(&self, volume: &Volume) -> Result<(), IoError> {
        let flush = self.oracle.borrow_mut().submit_flush();
        volume.submit(Request::Flush).await?;
        self.oracle.borrow_mut().acknowledge_flush(flush);
        Ok(())
    }

    async fn maintain(&self, volume: &Volume) -> Result<(), String> {
        let done = match self.below(3) {
            0 => volume.checkpoint().await.map(drop),
            1 => volume.snapshot().await.map(drop),
            _ => {
                volume.swap().await;
                Ok(())
            }
        };
        done.map_err(|error| format!("maintenance: {error}"))
    }
}
