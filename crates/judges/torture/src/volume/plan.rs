//! Everything that a seed decides ahead of a history.

use manylogs::{CheckpointPolicy, DurableOnly, LogPlacement, TablePlace, VolumeConfig};
use manylogs_block::{Extent, Geometry, Nanos, Rng, Sectors, to_usize};
use manylogs_sim::CrashDiskConfig;

use crate::volume::arrays::ArrayLife;
use crate::volume::parameters::{any_trouble, changed, small_config};
use crate::volume::runs::length_of;

/// Factor by which clients pause longer in histories that take hours.
const LONG_PAUSE: u64 = 100_000;
/// Factor by which a [`Plan::sparse`] history forks less often.
const SPARSE: u64 = 40;
/// Salt that decides which histories discard durably. It is chosen so that the histories kept as
/// stories do not.
const DISCARDS: u64 = 0x64;

/// Salt that decides which histories hold requests back, chosen in the same way.
const HELD_BACK: u64 = 0x24;

/// Salt that decides which histories write home by bands, chosen in the same way.
const BANDS: u64 = 0xba4d;

/// Salt that decides in which histories clients write runs, chosen in the same way.
const RUNS: u64 = 0x8b;

/// Salt of plans with versions that are kept in the logs.
const KEPT: u64 = 0x0d_0e;

/// The plan of a history. The volume is so small that its logs fill and wrap all the time.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of the plan.
    pub seed: u64,
    pub(crate) disk: CrashDiskConfig,
    /// The array that the disks form, if any; `disk` is all of it.
    pub(crate) array: Option<Geometry>,
    pub(crate) array_life: ArrayLife,
    pub(crate) config: VolumeConfig,
    /// Number of openings of the volume, each after a crash.
    pub(crate) incarnations: u64,
    pub(crate) clients: u64,
    /// Number of operations of all clients in one incarnation.
    pub(crate) operations: u64,
    /// One event in this number is forked.
    pub(crate) fork_every: u64,
    /// Number of crashes that are tried at a forked event.
    pub(crate) forks: u64,
    pub(crate) trouble: Trouble,
    pub(crate) shape: Shape,
    /// The length from which on consecutive writes are a run, if clients write runs.
    pub(crate) runs: Option<Sectors>,
    /// Whether clients change the settings that the volume keeps.
    pub(crate) sets: bool,
    /// Change of the closed volume between two incarnations.
    pub(crate) between: Option<Between>,
    /// Whether half of the discards are durable when they are acknowledged.
    pub(crate) durable_discards: bool,
    /// One write in this number needs durability and no place.
    pub(crate) durable_only: u64,
    /// Whether the volume is opened often, used for a few requests, and often drained.
    pub(crate) short_lives: bool,
}

/// Whether the device fails requests in one of the incarnations, and when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Never,
    /// Medium errors, while clients use the volume.
    Medium,
    /// Errors of any kind that may pass, while clients use the volume.
    Any,
    /// Read errors of any kind that may pass, from the opening on.
    Opening,
}

/// Kinds of large histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Small in every respect.
    Small,
    /// Homes of some mebibytes: zeroed ranges are too long to be written out by a checkpoint.
    LongZeroes,
    /// Hundreds of logs.
    ManyLogs,
    /// Long in time: the volume is in use for days, and checkpoints by the time of day.
    Days,
}

/// Change of the closed volume between two incarnations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// The device becomes larger by this, and the volume grows with it.
    Grow(Sectors),
    Repair,
    /// The settings of the closed volume are changed.
    Set,
    /// The volume is drained and follows its array, which has another shape.
    Geometry,
}

impl Plan {
    /// The plan of a seed; the same one each time. Some tables are in non-volatile RAM.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        // A generator of its own: draws made here must not change the plain plan.
        let mut rng = Rng::new(seed ^ 0x7a17);
        let mut plan = Self::plain(seed);
        plan.disk.native_fua = !rng.one_in(4);
        if rng.one_in(6) {
            // The logs hold some hundreds of kilobytes.
            plan.config.checkpoint_rate = 2_000 << rng.below(8);
        }
        plan.sets = rng.one_in(3);
        let larger = Sectors(8 * rng.below(120));
        plan.between = match rng.below(10) {
            0 => Some(Between::Grow(larger)),
            1 => Some(Between::Repair),
            2 => Some(Between::Set),
            _ => None,
        };
        if plan.trouble != Trouble::Never || rng.one_in(16) {
            plan.trouble = any_trouble(&mut rng);
        }
        plan.durable_discards = Rng::new(seed ^ DISCARDS).one_in(4);
        let mut held_back = Rng::new(seed ^ HELD_BACK);
        if held_back.one_in(3) {
            plan = plan.holding_back(&mut held_back);
        }
        let mut bands = Rng::new(seed ^ BANDS);
        if bands.one_in(4) {
            plan = plan.on_bands(&mut bands);
        }
        let mut runs = Rng::new(seed ^ RUNS);
        if runs.one_in(4) {
            plan.runs = Some(length_of(&mut runs));
        }
        let mut shaped = rng.split();
        match rng.below(48) {
            0..2 => plan.with_long_zeroes(&mut shaped),
            2 => plan.with_many_logs(&mut shaped),
            3..5 => plan.over_days(&mut shaped),
            _ => plan,
        }
    }

    /// A plan with the kinds of trouble and devices of the first campaigns. Histories that once
    /// showed a fault are kept under such plans.
    #[must_use]
    pub fn plain(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let physical = if rng.one_in(3) { Sectors(8) } else { Sectors(1) };
        let disk = CrashDiskConfig {
            capacity: Sectors(1600 + 8 * rng.below(60)),
            physical_sector: physical,
            volatile_cache: !rng.one_in(4),
            native_fua: true,
            latency_max: Nanos::from_millis(1),
        };
        let plan = Self {
            seed,
            disk,
            array: None,
            array_life: ArrayLife::default(),
            config: small_config(&mut rng),
            incarnations: 1 + rng.below(3),
            clients: 1 + rng.below(4),
            operations: 30 + rng.below(90),
            fork_every: 1 + rng.below(6),
            forks: 1 + rng.below(2),
            trouble: if rng.one_in(6) { Trouble::Medium } else { Trouble::Never },
            shape: Shape::Small,
            runs: None,
            sets: false,
            between: None,
            durable_discards: false,
            durable_only: 10,
            short_lives: false,
        };
        if rng.one_in(8) { plan.with_nvram() } else { plan }
    }

    /// The plan of a seed with a device that fails requests in one of the incarnations.
    #[must_use]
    pub fn troubled(seed: u64) -> Self {
        let mut plan = Self::of_seed(seed);
        if plan.trouble == Trouble::Never {
            plan.trouble = any_trouble(&mut Rng::new(seed ^ 0x7_20b1e));
        }
        plan
    }

    /// This plan with its table in non-volatile RAM, of which there is so little that it often
    /// fills.
    #[must_use]
    pub fn with_nvram(mut self) -> Self {
        let kib = 16 + Rng::new(!self.seed).below(12);
        self.config.table = TablePlace::Nvram(to_usize(1024 * kib));
        self
    }

    /// This plan with a device that has medium errors in one of the incarnations.
    #[must_use]
    pub fn with_trouble(mut self) -> Self {
        self.trouble = Trouble::Medium;
        self
    }

    /// This plan with errors of any kind, from the opening on or later.
    #[must_use]
    pub fn with_trouble_at_opening(mut self) -> Self {
        self.trouble = Trouble::Opening;
        self
    }

    /// This plan with passing errors of any kind, while the volume is used.
    #[must_use]
    pub fn with_passing_trouble(mut self) -> Self {
        self.trouble = Trouble::Any;
        self
    }

    /// This plan with few forks: for campaigns that test what the history itself does.
    #[must_use]
    pub fn sparse(mut self) -> Self {
        self.fork_every *= SPARSE;
        self.forks = 1;
        self
    }

    /// This plan with discards, half of which are durable when they are acknowledged.
    #[must_use]
    pub fn discarding_durably(mut self) -> Self {
        self.durable_discards = true;
        self
    }

    /// This plan with requests held back for records, and records that wait for others.
    #[must_use]
    pub(crate) fn holding_back(mut self, rng: &mut Rng) -> Self {
        self.config.latency = Nanos::from_micros(500 << rng.below(8));
        self.config.contended_after = Nanos(0);
        if rng.one_in(3) {
            self.config.hold = Nanos::from_millis(1 << rng.below(6));
        }
        self
    }

    /// This plan with versions that are kept in the logs: some writes ask for it, and in some
    /// histories a range of the volume. Blocks are written in both ways, again and again.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ KEPT);
        self.config.table = TablePlace::Logs;
        // Never the default: so the superblock must contain the value.
        self.config.durable_budget = 0.1 + 0.25 * rng.below(4) as f64;
        if rng.one_in(3) {
            let range = Extent::new(8 * rng.below(40), 1 + rng.below(120));
            self.config.durable_only = DurableOnly::of(&[range]).unwrap_or(DurableOnly::NONE);
        }
        self.durable_only = 1 + rng.below(4);
        self
    }

    /// This plan on a shingled drive, which the volume writes home by bands.
    #[must_use]
    pub fn banded(self) -> Self {
        let mut rng = Rng::new(self.seed ^ BANDS);
        self.on_bands(&mut rng)
    }

    fn on_bands(mut self, rng: &mut Rng) -> Self {
        self.config.band = Sectors(128 + 8 * rng.below(120));
        self
    }

    /// This plan on a disk with physical sectors of 4096 bytes.
    #[must_use]
    pub fn on_large_sectors(mut self) -> Self {
        self.disk.physical_sector = Sectors(8);
        self
    }

    /// This plan, forked at every event.
    #[must_use]
    pub fn forked_everywhere(mut self) -> Self {
        self.fork_every = 1;
        self
    }

    /// This plan on a larger device, in which clients zero ranges beyond a mebibyte.
    #[must_use]
    pub fn zeroing_long_ranges(self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x2e70);
        self.with_long_zeroes(&mut rng)
    }

    /// This plan with a device that becomes larger after the first incarnation.
    #[must_use]
    pub fn growing(mut self) -> Self {
        self.between = Some(Between::Grow(Sectors(8 * Rng::new(self.seed ^ 0x9703).below(120))));
        self
    }

    /// This plan with settings that change all the time.
    #[must_use]
    pub fn setting(mut self) -> Self {
        self.sets = true;
        self
    }

    /// This plan with clients that write runs.
    #[must_use]
    pub fn writing_runs(mut self) -> Self {
        self.runs = Some(length_of(&mut Rng::new(self.seed ^ RUNS)));
        self
    }

    /// This plan with a checkpoint rate of some kilobytes a second.
    #[must_use]
    pub fn rate_limited(mut self) -> Self {
        self.config.checkpoint_rate = 4_000;
        self
    }

    fn with_long_zeroes(mut self, rng: &mut Rng) -> Self {
        self.shape = Shape::LongZeroes;
        self.disk.capacity = Sectors(9_000 + 8 * rng.below(900));
        let group = Sectors(8 * (450 + rng.below(200)));
        self.config.placement = LogPlacement::EveryGroup(group);
        self.fewer_forks()
    }

    fn with_many_logs(mut self, rng: &mut Rng) -> Self {
        self.shape = Shape::ManyLogs;
        let group = 64 + 8 * rng.below(4);
        self.disk.capacity = Sectors(group * (200 + rng.below(400)));
        self.config.log = Sectors(48);
        self.config.placement = LogPlacement::EveryGroup(Sectors(group));
        self.config.table = TablePlace::Logs;
        self.config = changed(&self.config, rng);
        self.fewer_forks()
    }

    fn over_days(mut self, rng: &mut Rng) -> Self {
        self.shape = Shape::Days;
        self.config.checkpoint = CheckpointPolicy::OffHours {
            from_s: 3600 * rng.below(24),
            until_s: 3600 * rng.below(24),
        };
        self.config.snapshot = Nanos::from_secs(600 * rng.below(12));
        self
    }

    /// This plan with fewer forks, because larger volumes take longer to recover and compare.
    fn fewer_forks(mut self) -> Self {
        self.fork_every += 16;
        self.forks = 1;
        self
    }

    /// An incarnation hangs if no client gets an answer for this long. It is longer than a write
    /// waits for passes that make no room. A history may go on longer with a few writes a minute if
    /// each pass needs a minute to make room, because a bad medium must report an error twice.
    pub(crate) const fn patience(&self) -> Nanos {
        match self.shape {
            Shape::Days => Nanos::from_secs(100 * 24 * 3600),
            Shape::Small | Shape::LongZeroes | Shape::ManyLogs => Nanos::from_secs(300),
        }
    }

    /// Longest pause of a client.
    pub(crate) const fn longest_pause(&self) -> Nanos {
        let plain = Nanos::from_millis(30);
        match self.shape {
            Shape::Days => Nanos(plain.0 * LONG_PAUSE),
            Shape::Small | Shape::LongZeroes | Shape::ManyLogs => plain,
        }
    }

    /// Other parameters for a volume in use.
    pub(crate) fn changed(&self, rng: &mut Rng) -> VolumeConfig {
        let now = changed(&self.config, rng);
        match self.shape {
            // Work that recurs every few milliseconds takes too long over days.
            Shape::Days => VolumeConfig {
                checkpoint: self.config.checkpoint,
                snapshot: self.config.snapshot,
                ..now
            },
            Shape::Small | Shape::LongZeroes | Shape::ManyLogs => now,
        }
    }
}
