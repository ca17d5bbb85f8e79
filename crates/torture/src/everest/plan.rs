//! Everything that a seed decides ahead of a history.

use manylogs_block::{Nanos, Rng, Sectors};
use manylogs_sim::CrashDiskConfig;

/// The plan of a history. The store is so small that it wraps all the time.
#[derive(Clone, Debug)]
pub struct EverestPlan {
    /// The seed that it was made from.
    pub seed: u64,
    /// The base volumes.
    pub(crate) bases: Vec<CrashDiskConfig>,
    /// The devices of the store.
    pub(crate) stores: Vec<CrashDiskConfig>,
    pub(crate) log: Sectors,
    /// Longest write of a client, beside bursts.
    pub(crate) longest: u64,
    pub(crate) reclaim_every: Nanos,
    pub(crate) incarnations: u64,
    pub(crate) clients: u64,
    /// Number of operations of all clients in one incarnation.
    pub(crate) operations: u64,
    /// One event in this number is forked.
    pub(crate) fork_every: u64,
    /// The devices of the store fail requests.
    pub(crate) trouble: bool,
}

impl EverestPlan {
    /// The same on devices that fail requests. One log may go out of use in each incarnation, so
    /// there are more logs: the store goes on. Few events are forked: such a history tests answers,
    /// and its own openings.
    #[must_use]
    pub fn in_trouble(self) -> Self {
        let more = |disk: CrashDiskConfig| CrashDiskConfig {
            capacity: Sectors(disk.capacity.0 + self.incarnations * self.log.0),
            ..disk
        };
        let stores = self.stores.iter().copied().map(more).collect();
        Self { stores, fork_every: 4 * self.fork_every, trouble: true, ..self }
    }

    /// The plan of a seed; the same one each time.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xe7e2_e57e);
        let disk = |rng: &mut Rng, sectors: u64| CrashDiskConfig {
            capacity: Sectors(sectors),
            physical_sector: if rng.one_in(3) { Sectors(8) } else { Sectors(1) },
            volatile_cache: !rng.one_in(4),
            native_fua: !rng.one_in(4),
            latency_max: Nanos(1 << (10 + rng.below(14))),
        };
        let log = 128 + 8 * rng.below(17);
        let devices = 1 + rng.below(2);
        let stores = (0..devices).map(|_| {
            let logs = 6 + rng.below(4);
            let sectors = 80 + logs * log + rng.below(40);
            disk(&mut rng, sectors)
        });
        let stores = stores.collect();
        let bases = 1 + rng.below(3);
        let bases = (0..bases).map(|_| {
            let sectors = 8 * (20 + rng.below(60));
            disk(&mut rng, sectors)
        });
        let bases = bases.collect();
        Self {
            seed,
            bases,
            stores,
            log: Sectors(log),
            longest: 1 + rng.below(40),
            reclaim_every: Nanos::from_micros(1 << rng.below(18)),
            incarnations: 1 + rng.below(3),
            clients: 1 + rng.below(4),
            operations: 40 + rng.below(160),
            fork_every: 6 + rng.below(10),
            trouble: false,
        }
    }
}
