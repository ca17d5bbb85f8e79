//! A store that is closed in order leaves its table for the next opening, and a crash at any moment
//! of that loses nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Nanos, Payload, Rng, Sectors};
use manylogs_everest::{CircularStore, Range, StoreOptions, Version};
use manylogs_logstore::Space;
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

const LOG: Sectors = Sectors(128);
const TABLE: Sectors = Sectors(32);
const BASE: Space = Space(1);
/// Blocks of clients.
const BLOCKS: u64 = 24;
/// Crashes in closes that are to be seen at least.
const LIVES: u64 = 480;
const CONFIG: CrashDiskConfig = CrashDiskConfig {
    capacity: Sectors(64 + 9 * LOG.0 + TABLE.0 + 16),
    physical_sector: Sectors(8),
    volatile_cache: true,
    native_fua: true,
    latency_max: Nanos(1000),
};

/// The version and tag of each block, as far as it was acknowledged.
type Model = Rc<RefCell<BTreeMap<u64, u64>>>;

fn block(number: u64) -> Extent {
    Extent::new(number * 8, 8)
}

/// Writes and deletes blocks, each durable before the next.
async fn work(store: &CircularStore, model: &Model, versions: std::ops::Range<u64>, rng: &mut Rng) {
    for version in versions {
        let number = rng.below(BLOCKS);
        if rng.one_in(4) {
            store.delete(BASE, block(number), Version(version)).await.unwrap();
            model.borrow_mut().remove(&number);
            continue;
        }
        let content = (!rng.one_in(6)).then(|| Payload::tags(version * 100, Sectors(8)));
        loop {
            let progress = store.progress().wait();
            match store.write(BASE, block(number), Version(version), content.clone()).await {
                // Cleaning makes room.
                Err(IoError::NoSpace { .. }) => progress.await,
                written => break drop(written.unwrap()),
            }
        }
        model.borrow_mut().insert(number, if content.is_some() { version } else { 0 });
    }
}

/// Whether the store holds what the model says.
async fn holds(store: &CircularStore, model: &Model) -> Result<(), String> {
    let model = model.borrow().clone();
    for number in 0..BLOCKS {
        let read = store.read(BASE, block(number)).await.map_err(|error| error.to_string())?;
        let mut found = read.into_iter();
        let content = found.next().and_then(|found| found.content);
        let expected = model.get(&number).map(|version| match version {
            0 => Payload::zeroes(Sectors(8)),
            version => Payload::tags(version * 100, Sectors(8)),
        });
        if content != expected {
            return Err(format!("block {number}: {content:?}, not {expected:?}"));
        }
    }
    let held = store.ranges(BASE).len();
    if held == model.len() { Ok(()) } else { Err(format!("{held} ranges, not {}", model.len())) }
}

/// A machine with one disk.
struct World {
    sim: Sim,
    drive: Handle,
    disk: CrashDisk,
}

impl World {
    fn new(seed: u64, image: DiskImage) -> Self {
        let sim = Sim::new(seed, TaskOrder::Shuffled);
        let drive = sim.handle(sim.node());
        let disk = CrashDisk::new(drive.clone(), CONFIG, image);
        Self { sim, drive, disk }
    }

    fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        vec![Rc::new(self.disk.clone())]
    }

    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        main: impl FnOnce(Handle, Vec<Rc<dyn BlockDevice>>) -> F,
    ) -> T {
        let node = self.sim.node();
        self.sim.block_on(node, main(self.sim.handle(node), self.devices()))
    }
}

async fn made(runtime: Handle, devices: Vec<Rc<dyn BlockDevice>>) -> CircularStore {
    let options = StoreOptions { log: LOG, table: TABLE };
    CircularStore::create(runtime, devices, options).await.unwrap()
}

/// Uses a store, closes it once in order, opens it again and uses it. Its second close is cut off
/// at event `at`, or ends before that. Says what is wrong then, or whether the close was over.
fn life(seed: u64, at: u64) -> Result<bool, String> {
    let mut rng = Rng::new(seed);
    let (world, model) = (World::new(seed, DiskImage::default()), Model::default());
    let (work_model, mut work_rng) = (Rc::clone(&model), rng.split());
    let store = world.run(|runtime, devices| async move {
        let store = made(runtime.clone(), devices.clone()).await;
        work(&store, &work_model, 1..60, &mut work_rng).await;
        store.close().await.unwrap();
        let store = CircularStore::open(runtime, devices).await.unwrap();
        holds(&store, &work_model).await.unwrap();
        work(&store, &work_model, 60..100 + work_rng.below(80), &mut work_rng).await;
        store
    });
    let (from, node) = (world.disk.events(), world.sim.node());
    let over = Rc::new(RefCell::new(false));
    let done = Rc::clone(&over);
    world.sim.handle(node).spawn(async move {
        store.close().await.unwrap();
        *done.borrow_mut() = true;
    });
    world.sim.run_until(|| *over.borrow() || world.disk.events() >= from + at);
    let was_over = *over.borrow();
    let survival = [Survival::Nothing, Survival::Everything, Survival::Random];
    let survival = survival[usize::try_from(rng.below(3)).unwrap()];
    let image = match rng.one_in(4) {
        true => world.disk.after_kill(&mut rng),
        false => world.disk.after_power_cut(survival, &mut rng),
    };
    // The next life: it ends without a close, after writes or at once, and the last one sees it.
    let (world, next) = (World::new(seed + 1, image), Rc::clone(&model));
    let mut work_rng = rng.split();
    world.run(|runtime, devices| async move {
        let store = CircularStore::open(runtime, devices).await.map_err(|e| e.to_string())?;
        holds(&store, &next).await?;
        let count = work_rng.below(3) * 30;
        work(&store, &next, 1000..1000 + count, &mut work_rng).await;
        Ok::<_, String>(())
    })?;
    let image = world.disk.after_power_cut(survival, &mut rng);
    let (world, last) = (World::new(seed + 2, image), Rc::clone(&model));
    world.run(|runtime, devices| async move {
        let store = CircularStore::open(runtime, devices).await.map_err(|e| e.to_string())?;
        holds(&store, &last).await
    })?;
    drop(world.drive);
    Ok(was_over)
}

/// Crashes closes at each of their events. Returns how many, or what is wrong.
fn lives(most: u64) -> Result<u64, String> {
    let mut seen = 0;
    for seed in (10..).step_by(10) {
        for at in 0.. {
            let over = life(seed, at).map_err(|wrong| format!("seed {seed}, at {at}: {wrong}"))?;
            seen += 1;
            if over {
                break;
            }
        }
        if seen >= most {
            return Ok(seen);
        }
    }
    Ok(seen)
}

#[test]
fn a_close_that_is_cut_off_at_any_event_loses_nothing() {
    let seen = lives(LIVES).unwrap();
    println!("{seen} lives");
}

/// After an orderly close an opening reads the table alone; after a crash it reads the logs.
#[test]
fn an_opening_after_an_orderly_close_reads_no_log() {
    let (world, model) = (World::new(1, DiskImage::default()), Model::default());
    let first = Rc::clone(&model);
    let before: Vec<Range> = world.run(|runtime, devices| async move {
        let store = made(runtime, devices).await;
        work(&store, &first, 1..150, &mut Rng::new(7)).await;
        let ranges = store.ranges(BASE);
        store.close().await.unwrap();
        ranges
    });
    let logs = Extent::new(64, 9 * LOG.0);
    let disk = world.disk.clone();
    let reads = Rc::new(RefCell::new(0));
    let count = Rc::clone(&reads);
    disk.fail_requests(Box::new(move |request| {
        let reads_a_log = matches!(request, manylogs_block::Request::Read { extent }
            if logs.contains(*extent));
        *count.borrow_mut() += u64::from(reads_a_log);
        None
    }));
    world.run(|runtime, devices| async move {
        let store = CircularStore::open(runtime, devices).await.unwrap();
        assert_eq!(store.ranges(BASE), before, "in the same order");
    });
    assert_eq!(*reads.borrow(), 0, "nothing of the logs is read");
    // That opening was not closed.
    world.run(|runtime, devices| async move {
        let store = CircularStore::open(runtime, devices).await.unwrap();
        holds(&store, &model).await.unwrap();
    });
    assert!(*reads.borrow() >= 9, "each log is looked at");
}

/// Damages the table that a close left, at its last byte, and opens the store.
fn opened_with_a_damaged_table() -> Result<(), String> {
    let (world, model) = (World::new(1, DiskImage::default()), Model::default());
    let first = Rc::clone(&model);
    world.run(|runtime, devices| async move {
        let store = made(runtime, devices).await;
        work(&store, &first, 1..150, &mut Rng::new(7)).await;
        store.close().await.unwrap();
    });
    let table = Extent::new(CONFIG.capacity.0 - 8 - TABLE.0, TABLE.0);
    world.run(|_, devices| async move {
        let read = manylogs_block::Request::Read { extent: table };
        let mut bytes = devices[0].submit(read).await.unwrap().to_bytes().unwrap().to_vec();
        // The last number of the table: a difference of versions.
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[last] ^= 2;
        let write = manylogs_block::Request::write_fua(table, Payload::bytes(bytes));
        devices[0].submit(write).await.unwrap();
    });
    world.run(|runtime, devices| async move {
        let store = CircularStore::open(runtime, devices).await.map_err(|e| e.to_string())?;
        holds(&store, &model).await?;
        // The owners' versions are those that were given.
        let newest = store.ranges(BASE).iter().map(|range| range.version).max();
        let odd = store.ranges(BASE).into_iter().find(|range| {
            let tags = model.borrow().get(&(range.extent.start.0 / 8)).copied().unwrap();
            tags != 0 && tags != range.version.0
        });
        odd.map_or(Ok(()), |odd| Err(format!("{odd:?} beside {newest:?}")))
    })
}

#[test]
fn a_damaged_table_is_not_believed() {
    opened_with_a_damaged_table().unwrap();
}

/// A table for which there is no room is not left, and nothing is lost.
#[test]
fn a_table_that_does_not_fit_is_not_left() {
    let (world, model) = (World::new(1, DiskImage::default()), Model::default());
    world.run(|runtime, devices| async move {
        let options = StoreOptions { log: LOG, table: Sectors(8) };
        let store = CircularStore::create(runtime.clone(), devices.clone(), options).await;
        let store = store.unwrap();
        work(&store, &model, 1..300, &mut Rng::new(7)).await;
        store.close().await.unwrap();
        let store = CircularStore::open(runtime, devices).await.unwrap();
        holds(&store, &model).await.unwrap();
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;

    use crate::noticed::assert_noticed;
    assert_noticed(Bug::OldTableBelieved, || lives(60).is_ok());
    assert_noticed(Bug::TornTableBelieved, || opened_with_a_damaged_table().is_ok());
}
