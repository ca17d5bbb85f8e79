//! Everything that a seed decides ahead of a history.

use manylogs_block::{Nanos, Rng, Sectors};
use manylogs_everest::{OffloadOptions, Policy};
use manylogs_sim::CrashDiskConfig;

/// Length of the header of a base volume: see `docs/format.md`.
pub(super) const HEADER: Sectors = Sectors(256);

/// Clients of a volume whose base should be busy: at least so many.
const MOVING_CLIENTS: u64 = 4;
/// The longest latency of its disk.
const MOVING_LATENCY: Nanos = Nanos(1 << 23);

/// Faults of messages between clients and stores: each fault happens to one message in this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetPlan {
    /// Lost.
    pub(crate) lost: u64,
    /// Delivered twice.
    pub(crate) doubled: u64,
    /// Delivered late, after the sender has given up.
    pub(crate) late: u64,
    /// The longest delay of other messages.
    pub(crate) delay_max: Nanos,
    /// Time after which the sender of a call gives up.
    pub(crate) timeout: Nanos,
}

/// The plan of a history. The stores are so small that they wrap all the time.
#[derive(Clone, Debug)]
pub struct EverestPlan {
    /// The seed of the plan.
    pub seed: u64,
    /// The base volumes, each with a client of its own.
    pub(crate) bases: Vec<CrashDiskConfig>,
    /// The devices of each store.
    pub(crate) stores: Vec<Vec<CrashDiskConfig>>,
    pub(crate) log: Sectors,
    /// Room of each store for the table that an orderly close leaves; with zero it leaves none, and
    /// stores are not closed in order.
    pub(crate) table: Sectors,
    pub(crate) options: OffloadOptions,
    pub(crate) net: NetPlan,
    /// Machines crash and links are cut, one after the other, with a pause of up to this between;
    /// never if zero.
    pub(crate) outages: Nanos,
    /// Longest write of a client.
    pub(crate) longest: u64,
    pub(crate) incarnations: u64,
    /// Tasks that send requests to each volume.
    pub(crate) clients: u64,
    /// Number of operations on each volume in one incarnation.
    pub(crate) operations: u64,
    /// One event in this number is forked.
    pub(crate) fork_every: u64,
    /// Whether the devices of the first store fail requests.
    pub(crate) trouble: bool,
    /// Whether a store goes for good.
    pub(crate) loses: bool,
    /// Whether stores are evacuated.
    pub(crate) evacuates: bool,
    /// Most that each store holds of each base volume.
    pub(crate) each: Sectors,
}

impl EverestPlan {
    /// This plan on devices that fail requests. One log may go out of use in each incarnation, so
    /// there are more logs, and the store goes on. Few events are forked, because such a history
    /// tests answers and its own openings.
    #[must_use]
    pub fn in_trouble(self) -> Self {
        let more = |disk: &CrashDiskConfig| CrashDiskConfig {
            capacity: Sectors(disk.capacity.0 + self.incarnations * self.log.0),
            ..*disk
        };
        let stores = self.stores.iter().map(|disks| disks.iter().map(more).collect()).collect();
        let (fork_every, outages) = (4 * self.fork_every, Nanos(0));
        Self { stores, fork_every, outages, trouble: true, loses: false, evacuates: false, ..self }
    }

    /// What stores hold of a base volume at most: its bound, and what was on its way as it was
    /// reached, in this opening and those before it. Without a bound where writes are given up half
    /// done, which stores may keep.
    pub(crate) fn held_most(&self) -> Option<Sectors> {
        let is_calm = self.outages.0 == 0 && !self.trouble && self.net.lost == 0;
        let bound = Some(self.options.held_max).filter(|most| is_calm && most.0 < u64::MAX)?;
        let longest = self.longest.max(100).next_multiple_of(8);
        Some(Sectors(bound.0 + (1 + self.incarnations) * self.clients * longest))
    }

    /// The plan of a seed; the same one each time.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xe7e2_e57e);
        let log = 128 + 8 * rng.below(17);
        let stores = (0..1 + rng.below(3)).map(|_| {
            let devices = if rng.one_in(4) { 2 } else { 1 };
            let disks = (0..devices).map(|_| {
                let logs = 6 + rng.below(4);
                let sectors = 80 + logs * log + rng.below(40);
                disk(&mut rng, sectors)
            });
            disks.collect()
        });
        let mut stores: Vec<Vec<CrashDiskConfig>> = stores.collect();
        let table = table(seed);
        stores.iter_mut().for_each(|disks| disks[0].capacity.0 += table.0);
        let more = Sectors(more_logs(seed) * log);
        stores.iter_mut().flatten().for_each(|disk| disk.capacity.0 += more.0);
        let bases = 1 + rng.below(2);
        let bases = (0..bases).map(|_| {
            let sectors = HEADER.0 + 8 * (20 + rng.below(60));
            disk(&mut rng, sectors)
        });
        let mut bases: Vec<CrashDiskConfig> = bases.collect();
        let calm = rng.one_in(3);
        let one_in = |rng: &mut Rng, most: u64| if calm { 0 } else { 4 + rng.below(most) };
        let net = NetPlan {
            lost: one_in(&mut rng, 200),
            doubled: one_in(&mut rng, 20),
            late: one_in(&mut rng, 100),
            delay_max: Nanos(1 << (10 + rng.below(14))),
            timeout: if calm { Nanos::from_secs(100) } else { Nanos::from_millis(300) },
        };
        let evacuates = Rng::new(seed ^ 0xe7ac).one_in(3);
        // A base that is busy again and again, so that what leaves a store goes to others.
        let moves = evacuates && Rng::new(seed ^ 0x30_7e5).one_in(2);
        let outages = if calm { Nanos(0) } else { Nanos::from_millis(1 << rng.below(12)) };
        let mut options = OffloadOptions {
            held_max: bound(seed ^ 0xa11),
            note_after: Nanos(1 << (20 + Rng::new(seed ^ 0x707e).below(11))),
            ..options(&mut rng, stores.len())
        };
        if moves {
            options.policy = Policy::Counts { base: 0, store: 64 };
            // One more takes what leaves a store.
            options.copies = options.copies.min(stores.len() - 1).max(1);
            bases.iter_mut().for_each(|disk| disk.latency_max = MOVING_LATENCY);
        }
        Self {
            seed,
            bases,
            log: Sectors(log),
            table,
            options,
            each: bound(seed ^ 0xeac4),
            evacuates,
            loses: !calm && Rng::new(seed ^ 0x6_09e).one_in(3),
            stores,
            net,
            outages,
            longest: 1 + rng.below(40),
            incarnations: 1 + rng.below(3),
            clients: (1 + rng.below(4)).max(if moves { MOVING_CLIENTS } else { 0 }),
            operations: 40 + rng.below(120),
            fork_every: 8 + rng.below(16),
            trouble: false,
        }
    }
}

/// Room for tables, in half of the plans, from too little to ample.
fn table(seed: u64) -> Sectors {
    let mut rng = Rng::new(seed ^ 0x7ab1_e000);
    Sectors(if rng.one_in(2) { 0 } else { 8 << rng.below(4) })
}

/// A bound of what stores hold, in some of the plans.
fn bound(seed: u64) -> Sectors {
    let mut rng = Rng::new(seed ^ 0xb0_07d5);
    Sectors(if rng.one_in(4) { 8 + rng.below(200) } else { u64::MAX })
}

/// Logs that each device has besides, in some of the plans: so many that the root does not name all
/// of them as used at once.
fn more_logs(seed: u64) -> u64 {
    if Rng::new(seed ^ 0x10b5_0000).one_in(6) { 24 } else { 0 }
}

fn disk(rng: &mut Rng, sectors: u64) -> CrashDiskConfig {
    CrashDiskConfig {
        capacity: Sectors(sectors),
        physical_sector: if rng.one_in(3) { Sectors(8) } else { Sectors(1) },
        volatile_cache: !rng.one_in(4),
        native_fua: !rng.one_in(4),
        latency_max: Nanos(1 << (10 + rng.below(14))),
    }
}

fn options(rng: &mut Rng, stores: usize) -> OffloadOptions {
    let policy = match rng.below(4) {
        0 => Policy::Counts { base: rng.below(3), store: 64 },
        1 => Policy::Wait { base: Nanos(1 << (8 + rng.below(14))), store: Nanos::from_secs(1) },
        _ => Policy::Always,
    };
    OffloadOptions {
        policy,
        copies: 1 + manylogs_block::to_usize(rng.below(stores.min(2) as u64)),
        patience: Nanos::from_millis(300 + rng.below(2700)),
        reconnect_every: Nanos::from_millis(1 + rng.below(300)),
        reclaim_every: Nanos::from_micros(128 << rng.below(11)),
        together: 1 << rng.below(6),
        calm: Nanos(0),
        ..OffloadOptions::default()
    }
}
