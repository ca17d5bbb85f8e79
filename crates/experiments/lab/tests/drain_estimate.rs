//! Compares the estimated time of a drain with the time that it takes: in virtual time, on modelled
//! drives that keep their content.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::rc::Rc;

use manylogs::{DrainOptions, HomePace, OpenOptions, Volume, VolumeConfig, inspect, measure_homes};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, MemoryDevice, Nanos, Payload, Request, Rng, Sectors,
};
use manylogs_disk::{EmulatedDrive, Options, Pace, profile};
use manylogs_sim::{NodeId, Sim, TaskOrder};

/// Factor by which an estimate may be too long or too short.
const TIMES: f64 = 2.0;
/// The same before the first checkpoint: the drive is known, but not how close together the homes
/// are.
const TIMES_AT_FIRST: f64 = 2.5;
/// Writes of a load, all logged before the drain.
const WRITES: u64 = 1_500;
const AT_ONCE: usize = 64;

/// A load: its name, and a function that makes its writes from random numbers and the number of
/// sectors.
type Load = (&'static str, fn(&mut Rng, u64) -> Vec<Extent>);

/// `WRITES` writes of `len` sectors at random places in the first `room` sectors.
fn scattered(rng: &mut Rng, room: u64, len: u64) -> Vec<Extent> {
    (0..WRITES).map(|_| Extent::new(rng.below(room / len) * len, len)).collect()
}

/// `count` consecutive writes of `len` sectors from a random place on.
fn run(rng: &mut Rng, count: u64, len: u64) -> Vec<Extent> {
    let start = rng.below(50_000) * 1024;
    (0..count).map(|i| Extent::new(start + i * len, len)).collect()
}

const LOADS: [Load; 5] = [
    ("4 KiB all over the disk", |rng, all| scattered(rng, all, 8)),
    ("4 KiB within 2 GiB", |rng, _| scattered(rng, 4 << 20, 8)),
    ("a run of 64 KiB", |rng, _| run(rng, WRITES, 128)),
    ("the same 1 MiB again and again", |rng, _| scattered(rng, 2048, 8)),
    ("a database: 8 KiB within 50 GiB, and its log", |rng, _| {
        let pages = scattered(rng, 100 << 20, 16);
        let log = run(rng, WRITES, 16);
        pages.into_iter().zip(log).flat_map(|(page, log)| [page, log]).collect()
    }),
];

/// A drive with its content, and the machine that uses it.
struct World {
    sim: Sim,
    host: NodeId,
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
}

impl World {
    fn new(drive: &str, write_cache: bool) -> Self {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (node, host) = (sim.node(), sim.node());
        let profile = profile::find(drive).unwrap().unwrap();
        let content = Rc::new(MemoryDevice::new(profile.capacity()));
        let options = Options { write_cache, ..Options::of(&profile) };
        let drive = EmulatedDrive::new(sim.handle(node), &profile, &options, content).unwrap();
        Self { runtime: sim.handle(host), sim, host, device: Rc::new(drive) }
    }

    fn wait<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.sim.block_on(self.host, work)
    }

    fn created(&self) -> Volume {
        let (runtime, device) = (self.runtime.clone(), Rc::clone(&self.device));
        let config = VolumeConfig::for_device(device.capabilities().capacity);
        self.wait(async move { Volume::create(runtime, device, &config).await.unwrap() })
    }

    fn opened(&self) -> Volume {
        self.opened_with(OpenOptions::default())
    }

    fn opened_with(&self, options: OpenOptions) -> Volume {
        let (runtime, device) = (self.runtime.clone(), Rc::clone(&self.device));
        self.wait(async move { Volume::open(runtime, device, &options).await.unwrap().0 })
    }

    fn load(&self, volume: &Volume, load: Load, seed: u64) {
        let volume = volume.clone();
        let writes = load.1(&mut Rng::new(seed), volume.layout().capacity().0);
        self.wait(async move {
            let mut under_way = Vec::new();
            for extent in writes {
                let payload = Payload::zeroes(extent.len);
                let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
                under_way.push(volume.submit(write));
                if under_way.len() == AT_ONCE {
                    for done in under_way.drain(..) {
                        done.await.unwrap();
                    }
                }
            }
            volume.submit(Request::Flush).await.unwrap();
        });
    }

    fn checkpointed(&self, volume: &Volume) {
        let volume = volume.clone();
        self.wait(async move { volume.checkpoint().await.unwrap() });
    }

    /// Drains the volume; returns the time taken.
    fn drained(&self, volume: Volume) -> Nanos {
        let began = self.sim.now();
        self.wait(async move { volume.drain(&DrainOptions::default()).await.unwrap() });
        self.sim.now().since(began)
    }
}

/// A message if the estimate is too far off.
fn compare(what: &str, estimate: Nanos, took: Nanos, most: f64) -> Option<String> {
    let times = estimate.as_secs_f64() / took.as_secs_f64();
    let (said, took) = (estimate.as_secs_f64(), took.as_secs_f64());
    eprintln!("{what}: estimate {said:.2} s, it took {took:.2} s: {times:.2} times");
    (!(1.0 / most..=most).contains(&times)).then(|| format!("{what}: {said:.2} s, {took:.2} s"))
}

fn each(check: impl Fn(&World, &str, Load) -> Option<String>) {
    let mut wrong = Vec::new();
    for (drive, cache) in [("exos-x20", true), ("exos-x20", false), ("cheetah-15k5", false)] {
        for load in LOADS {
            let what = format!("{drive}, write cache {cache}, {}", load.0);
            wrong.extend(check(&World::new(drive, cache), &what, load));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_served_volume_knows_from_its_checkpoints() {
    each(|world, what, load| {
        let volume = world.created();
        assert!(!volume.drain_estimate().is_seen);
        world.load(&volume, load, 1);
        world.checkpointed(&volume);
        world.load(&volume, load, 2);
        let estimate = volume.drain_estimate();
        assert!(estimate.is_seen);
        compare(what, estimate.time, world.drained(volume), TIMES)
    });
}

#[test]
fn a_volume_that_was_just_opened_knows_from_its_drive() {
    let mut wrong = Vec::new();
    for (drive, cache) in [
        ("exos-x20", true),
        ("exos-x20", false),
        ("cheetah-15k5", false),
        ("wd5000ys", true),
        ("constellation-es3", true),
    ] {
        let profile = profile::find(drive).unwrap().unwrap();
        let pace = Pace::of(&profile);
        let pace = Some(HomePace::of_disk(pace.step, pace.bytes_per_s));
        for load in LOADS {
            let world = World::new(drive, cache);
            let created = world.created();
            world.wait(async move { created.close().await.unwrap() });
            let volume = world.opened_with(OpenOptions { pace, ..OpenOptions::default() });
            world.load(&volume, load, 1);
            let estimate = volume.drain_estimate();
            assert!(!estimate.is_seen);
            let what = format!("{drive}, write cache {cache}, {}", load.0);
            wrong.extend(compare(&what, estimate.time, world.drained(volume), TIMES_AT_FIRST));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_closed_volume_is_read_where_its_data_goes() {
    each(|world, what, load| {
        let volume = world.created();
        world.load(&volume, load, 1);
        let closing = volume.clone();
        world.wait(async move { closing.close().await.unwrap() });
        let (runtime, device) = (world.runtime.clone(), Rc::clone(&world.device));
        let estimate = world.wait(async move {
            let found = inspect(&device, false).await.unwrap();
            let homes = found.homes_of_logged();
            let pace = measure_homes(&runtime, &device, &homes).await.unwrap();
            assert!(pace.is_some());
            found.drain_estimate(pace)
        });
        compare(what, estimate, world.drained(world.opened()), TIMES)
    });
}

#[test]
fn nothing_takes_no_time() {
    let world = World::new("exos-x20", true);
    let volume = world.created();
    assert_eq!(volume.drain_estimate().time, Nanos(0));
    world.checkpointed(&volume);
    assert_eq!(volume.drain_estimate().time, Nanos(0));
    assert_eq!(Sectors(0), Sectors(volume.stats().logged_bytes));
}
