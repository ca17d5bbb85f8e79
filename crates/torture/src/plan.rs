//! Everything that a seed decides ahead of a history.

use manylogs::{CheckpointPolicy, EngineConfig, LogPlacement, TablePlace};
use manylogs_block::{Nanos, Rng, Sectors, to_usize};
use manylogs_sim::CrashDiskConfig;

/// A history to be: small enough that its logs fill and wrap all the time.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was made of.
    pub seed: u64,
    pub(crate) disk: CrashDiskConfig,
    pub(crate) engine: EngineConfig,
    /// Openings of the volume, one after the crash of the other.
    pub(crate) incarnations: u64,
    pub(crate) clients: u64,
    /// Of all clients in one incarnation.
    pub(crate) operations: u64,
    /// One event in so many is forked.
    pub(crate) fork_every: u64,
    /// Crashes tried at a forked event.
    pub(crate) forks: u64,
    /// Whether the device fails requests in one of the incarnations.
    pub(crate) trouble: bool,
}

impl Plan {
    /// The plan of a seed; the same one each time. Some volumes have their table in non-volatile
    /// RAM.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let physical = if rng.one_in(3) { Sectors(8) } else { Sectors(1) };
        let disk = CrashDiskConfig {
            capacity: Sectors(1600 + 8 * rng.below(60)),
            physical_sector: physical,
            volatile_cache: !rng.one_in(4),
            latency_max: Nanos::from_millis(1),
        };
        let plan = Self {
            seed,
            disk,
            engine: engine(&mut rng),
            incarnations: 1 + rng.below(3),
            clients: 1 + rng.below(4),
            operations: 30 + rng.below(90),
            fork_every: 1 + rng.below(6),
            forks: 1 + rng.below(2),
            trouble: rng.one_in(6),
        };
        if rng.one_in(8) { plan.with_nvram() } else { plan }
    }

    /// The same with its table in non-volatile RAM: so little that it is full again and again.
    #[must_use]
    pub fn with_nvram(mut self) -> Self {
        let kib = 16 + Rng::new(!self.seed).below(12);
        self.engine.table = TablePlace::Nvram(to_usize(1024 * kib));
        self
    }

    /// The same with a device that fails requests in one of the incarnations.
    #[must_use]
    pub fn with_trouble(mut self) -> Self {
        self.trouble = true;
        self
    }
}

fn engine(rng: &mut Rng) -> EngineConfig {
    let log = Sectors(8 * (12 + rng.below(8)));
    let placement = if rng.one_in(5) {
        LogPlacement::Single(0.1 * rng.below(11) as f64)
    } else {
        LogPlacement::EveryGroup(Sectors(8 * (30 + rng.below(20))))
    };
    changed(&EngineConfig { log, placement, ..EngineConfig::default() }, rng)
}

/// Other parameters for the same layout, as a volume in use may be given.
pub(crate) fn changed(fixed: &EngineConfig, rng: &mut Rng) -> EngineConfig {
    let threshold = Sectors(4 + rng.below(13));
    let checkpoint = match rng.below(4) {
        0 => CheckpointPolicy::OnFull,
        1 => CheckpointPolicy::Idle,
        2 => CheckpointPolicy::OffHours { from_s: 0, until_s: 0 },
        _ => CheckpointPolicy::Every(Nanos::from_millis(5 + rng.below(100))),
    };
    EngineConfig {
        threshold,
        record: Sectors(threshold.0 + rng.below(fixed.log.0 / 2 - threshold.0)),
        swap: 0.3 + 0.1 * rng.below(6) as f64,
        checkpoint,
        idle: Nanos::from_millis(1 + rng.below(10)),
        watermark: 0.5 + 0.1 * rng.below(6) as f64,
        checkpoint_rate: 0,
        appends: to_usize(1 + rng.below(4)),
        buffer: Sectors(rng.below(64)),
        buffer_age: Nanos::from_millis(1 + rng.below(50)),
        snapshot: if rng.one_in(3) { Nanos(0) } else { Nanos::from_millis(5 + rng.below(60)) },
        logging: !rng.one_in(8),
        ..*fixed
    }
}
