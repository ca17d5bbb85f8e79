//! A day of virtual time under a changing load: no queue or table inside the volume may grow.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, write};
use manylogs::{Backlog, CheckpointPolicy, LogPlacement, Volume, VolumeConfig, VolumeStats};
use manylogs_block::{
    BlockDevice, Completion, Extent, Handle, Nanos, Payload, Request, Rng, Sectors,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, TaskOrder};

const HOURS: u64 = 24;
/// The load changes this often.
const SPELL: Nanos = Nanos::from_secs(300);
/// Long enough for all waiting work to end.
const REST: Nanos = Nanos::from_secs(200);
const DISK: Sectors = Sectors(60_000);

/// Requests of clients for a while.
#[derive(Clone, Copy, Debug)]
enum Load {
    Nothing,
    /// Small durable writes in a few places.
    Commits,
    /// Small writes everywhere, without FUA, and flushes.
    Scattered,
    /// Large writes one after the other.
    Stream,
    /// Zeroed and discarded ranges, including long ones.
    Zeroes,
    Reads,
    /// All of these at once.
    Mixed,
}

const LOADS: [Load; 7] = [
    Load::Nothing,
    Load::Commits,
    Load::Scattered,
    Load::Stream,
    Load::Zeroes,
    Load::Reads,
    Load::Mixed,
];

struct Client {
    volume: Volume,
    runtime: Handle,
    rng: RefCell<Rng>,
}

impl Client {
    fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    fn place(&self, len: u64) -> Extent {
        Extent::new(self.below(self.volume.layout().capacity().0 - len), len)
    }

    fn request(&self, load: Load) -> Request {
        let tags = |extent: Extent, fua| write(extent.start.0, &Payload::tags(1, extent.len), fua);
        match load {
            Load::Commits => tags(Extent::new(8 * self.below(40), 8), true),
            Load::Scattered if self.below(20) == 0 => Request::Flush,
            Load::Scattered => tags(self.place(1 + self.below(16)), false),
            Load::Stream => tags(self.place(200), false),
            Load::Zeroes if self.below(2) == 0 => {
                Request::Discard { extent: self.place(4000), fua: false }
            }
            Load::Zeroes => Request::write_zeroes(self.place(3), true),
            Load::Nothing | Load::Reads => Request::Read { extent: self.place(64) },
            Load::Mixed => {
                let among = LOADS.len() as u64 - 1;
                self.request(LOADS[manylogs_block::to_usize(self.below(among))])
            }
        }
    }

    /// Keeps some requests in flight until the spell is over.
    async fn work(&self, load: Load) {
        let until = self.runtime.now() + SPELL;
        // From a burst to one request every few seconds.
        let pause = Nanos::from_millis(1 << self.below(13));
        while self.runtime.now() < until {
            let depth = 1 + self.below(8);
            let sent: Vec<Completion> =
                (0..depth).map(|_| self.volume.submit(self.request(load))).collect();
            for answer in sent {
                answer.await.unwrap();
            }
            self.runtime.sleep(Nanos(pause.0 * depth)).await;
        }
    }

    fn change_settings(&self) {
        let policies = [
            CheckpointPolicy::OnFull,
            CheckpointPolicy::Idle,
            CheckpointPolicy::Every(Nanos::from_secs(60)),
        ];
        let checkpoint = policies[manylogs_block::to_usize(self.below(3))];
        let checkpoint_rate = self.below(3) * 200_000;
        let snapshot = Nanos::from_secs(60 * self.below(3));
        let changed = VolumeConfig { checkpoint, checkpoint_rate, snapshot, ..parameters() };
        self.volume.reconfigure(&changed).unwrap();
    }
}

fn parameters() -> VolumeConfig {
    let placement = LogPlacement::EveryGroup(Sectors(10_000));
    VolumeConfig { log: Sectors(1000), placement, ..config() }
}

/// State of the volume after a rest.
#[derive(Clone, Copy, Debug)]
struct AtRest {
    backlog: Backlog,
    stats: VolumeStats,
    tasks: usize,
    timers: usize,
}

/// The fewest tasks within ten seconds, with their timers. A checkpoint or snapshot under way at
/// the end of the hour must not count as left behind.
async fn fewest_tasks(sim: &Sim, runtime: &Handle) -> (usize, usize) {
    let mut fewest = sim.tasks_and_timers();
    for _ in 0..100 {
        runtime.sleep(Nanos::from_millis(100)).await;
        fewest = fewest.min(sim.tasks_and_timers());
    }
    fewest
}

async fn day(sim: Rc<Sim>, runtime: Handle, disk: CrashDisk) -> Vec<AtRest> {
    let volume = Volume::create(runtime.clone(), Rc::new(disk), &parameters()).await.unwrap();
    let rng = RefCell::new(Rng::new(24));
    let client = Client { volume: volume.clone(), runtime: runtime.clone(), rng };
    let mut seen = Vec::new();
    for _ in 0..HOURS {
        let hour = runtime.now() + Nanos::from_secs(3600);
        while runtime.now() + REST + SPELL < hour {
            client.change_settings();
            let load = LOADS[manylogs_block::to_usize(client.below(LOADS.len() as u64))];
            client.work(load).await;
        }
        volume.submit(Request::Flush).await.unwrap();
        runtime.sleep_until(hour).await;
        let (tasks, timers) = fewest_tasks(&sim, &runtime).await;
        seen.push(AtRest { backlog: volume.backlog(), stats: volume.stats(), tasks, timers });
    }
    seen
}

#[test]
fn a_day_of_changing_load_leaves_nothing_behind() {
    let sim = Rc::new(Sim::new(7, TaskOrder::Shuffled));
    let (drive, user) = (sim.node(), sim.node());
    let config = CrashDiskConfig {
        native_fua: true,
        capacity: DISK,
        physical_sector: Sectors(8),
        volatile_cache: true,
        latency_max: Nanos::from_millis(10),
    };
    let disk = CrashDisk::new(sim.handle(drive), config, DiskImage::default());
    let runtime = sim.handle(user);
    let seen = sim.block_on(user, day(Rc::clone(&sim), runtime, disk));
    let last = seen[seen.len() - 1];
    assert!(last.stats.logged_writes > 20_000 && last.stats.checkpoints > 100, "{last:?}");
    for (hour, rest) in seen.iter().enumerate() {
        assert_eq!(rest.backlog, Backlog::default(), "after hour {hour}");
        // The volume's own tasks, two kept for records and two for the scheduler, and the test; and
        // timers of waits that ended early.
        assert!(rest.tasks <= 10 && rest.timers <= 64, "after hour {hour}: {rest:?}");
    }
    // The table holds what one hour leaves, not what the day left.
    let table = |rest: &AtRest| rest.stats.mapping_table_bytes;
    let first_hours = seen[..4].iter().map(table).max().unwrap();
    // A size that grows from hour to hour would never be small again.
    let last_hours = seen[18..].iter().map(table).min().unwrap();
    assert!(last_hours <= first_hours, "{first_hours} bytes at first, then {last_hours}");
}
