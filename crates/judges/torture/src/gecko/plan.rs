//! Everything that a seed decides ahead of a history.

use manylogs_block::{Nanos, Rng, Sectors, narrow, to_usize};
use manylogs_gecko::{
    ChainOptions, ChainSettings, Cleaning, SleepSettings, export_limit, summary_room,
};
use manylogs_sim::CrashDiskConfig;

/// One history in this number is of a chain that is nearly full.
const FULL_EVERY: u64 = 16;
/// One history in this number is of mirrored links.
const MIRRORED_EVERY: u64 = 8;
/// In one history in this number, besides, links are added and removed.
const LINKED_EVERY: u64 = 8;
/// In one of so many, drives fail and leave.
const BEREFT_EVERY: u64 = 32;
/// One history in this number, besides, is of a chain with a tail cache.
const CACHED_EVERY: u64 = 8;
/// One history in this number is of a chain as older programs made them, without summaries.
const OLD_EVERY: u64 = 5;
/// Length of a stripe of an SSD.
pub(crate) const FLASH_STRIPE: Sectors = Sectors(64);
/// Drives beside those of a mirrored chain, which may take the place of a half.
const SPARES: usize = 2;

/// Size of a drive with so many segments, and something more.
fn capacity(segments: u64, segment: Sectors, more: u64) -> Sectors {
    Sectors(80 + segments * segment.0 + more) + summary_room(segments, segment)
}

/// The plan of a history. The chain is so small that its tail wraps all the time.
#[derive(Clone, Debug)]
pub struct GeckoPlan {
    /// The seed of the plan.
    pub seed: u64,
    /// The drives.
    pub(crate) drives: Vec<CrashDiskConfig>,
    pub(crate) segment: Sectors,
    pub(crate) export: Sectors,
    /// Longest write of a client.
    pub(crate) longest: u64,
    /// Whether clients write everywhere alike. Else half of all requests meet in a few places.
    pub(crate) everywhere: bool,
    /// Whether half of all operations are reads. Else one in six is.
    pub(crate) reads: bool,
    /// The SSD of the tail cache, if it has one.
    pub(crate) flash: Option<CrashDiskConfig>,
    /// Settings of each incarnation.
    pub(crate) settings: Vec<ChainSettings>,
    pub(crate) clients: u64,
    /// Number of operations of all clients in one incarnation.
    pub(crate) operations: u64,
    /// Whether segments are zones, which must be reset before they are written again.
    pub(crate) zoned: bool,
    /// Drives of the new chain; more follow, which may join it. Equal to the number of drives if
    /// the links are not mirrored.
    pub(crate) members: usize,
    /// Whether two drives each are a link. Then halves fail, are replaced, and come back.
    pub(crate) mirrored: bool,
    /// How halves of pairs sleep, if they do. Drives that stand fail requests then.
    pub(crate) sleep: Option<SleepSettings>,
    /// Whether links are added and removed.
    pub(crate) linked: bool,
    /// Whether drives fail and then leave, with what only they held.
    pub(crate) bereft: bool,
    /// Whether links keep summaries of each other's segments.
    pub(crate) summaries: bool,
    /// One event in this number is forked.
    pub(crate) fork_every: u64,
}

impl GeckoPlan {
    /// The plan of a seed; the same one each time.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        if seed % FULL_EVERY == FULL_EVERY - 1 {
            Self::nearly_full(seed)
        } else if seed % MIRRORED_EVERY == MIRRORED_EVERY - 2 {
            // In every other one halves sleep.
            match seed % (2 * MIRRORED_EVERY) < MIRRORED_EVERY {
                true => Self::sleeping(seed),
                false => Self::mirrored(seed),
            }
        } else if seed % CACHED_EVERY == CACHED_EVERY - 3 {
            Self::cached(seed)
        } else if seed % BEREFT_EVERY == 12 {
            Self::bereft(seed)
        } else if seed % LINKED_EVERY == LINKED_EVERY - 4 {
            Self::linked(seed)
        } else {
            Self::plain(seed)
        }
    }

    fn plain(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6ec0_c4a1);
        let segment = 128 + 8 * rng.below(17);
        let drives: Vec<CrashDiskConfig> = (0..2 + rng.below(3))
            .map(|_| CrashDiskConfig {
                capacity: capacity(4 + rng.below(4), Sectors(segment), rng.below(40)),
                physical_sector: if rng.one_in(3) { Sectors(8) } else { Sectors(1) },
                volatile_cache: !rng.one_in(4),
                native_fua: !rng.one_in(4),
                latency_max: Nanos(1 << (10 + rng.below(14))),
            })
            .collect();
        let smallest = drives.iter().map(|drive| drive.capacity.0).min().unwrap_or(0);
        let limit = export_limit(drives.len(), Sectors(smallest), Sectors(segment));
        let export = Sectors(limit.0 / (1 + rng.below(3)) / 8 * 8);
        let incarnations = 1 + rng.below(3);
        let settings = (0..incarnations).map(|_| ChainSettings {
            cleaning: Cleaning::ALL[to_usize(rng.below(Cleaning::ALL.len() as u64))],
            buffer: Sectors(8 + rng.below(100)),
            buffer_age: Nanos::from_micros(1 << rng.below(18)),
            cache: Sectors(0),
            degraded: false,
            sleep: None,
            copy_noted: Sectors(1),
        });
        let settings = settings.collect();
        Self {
            seed,
            members: drives.len(),
            mirrored: false,
            sleep: None,
            linked: false,
            bereft: false,
            drives,
            segment: Sectors(segment),
            export,
            longest: 1 + rng.below(40),
            everywhere: false,
            reads: false,
            flash: None,
            settings,
            clients: 1 + rng.below(5),
            operations: 60 + rng.below(240),
            fork_every: 6 + rng.below(10),
            zoned: seed % 4 == 3,
            summaries: !seed.is_multiple_of(OLD_EVERY),
        }
    }

    /// The plan of a seed, for a chain with a tail cache, of which clients read what they wrote.
    /// Two in three have an SSD behind it.
    #[must_use]
    pub fn cached(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0xcac4_e000);
        let mut plan = Self::plain(seed);
        for settings in &mut plan.settings {
            // From less than one write to all that the drives hold.
            settings.cache = Sectors(1 << rng.below(12));
        }
        let flash = CrashDiskConfig {
            capacity: Sectors(FLASH_STRIPE.0 * (2 + rng.below(12)) + rng.below(FLASH_STRIPE.0)),
            physical_sector: Sectors(8),
            volatile_cache: !rng.one_in(4),
            native_fua: true,
            latency_max: Nanos(1 << (10 + rng.below(8))),
        };
        let flash = (!rng.one_in(3)).then_some(flash);
        Self { reads: true, flash, ..plan }
    }

    /// The plan of a seed, for a chain that is nearly full. It exports the most that `format`
    /// allows, and its clients write everywhere. So room is short all the time, on so many drives
    /// that several segments are cleaned at a time.
    #[must_use]
    pub fn nearly_full(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0xf011);
        let plan = Self::plain(seed);
        let segment = Sectors(128 + 8 * rng.below(5));
        let drive = CrashDiskConfig {
            capacity: capacity(4, segment, rng.below(segment.0)),
            physical_sector: Sectors(if rng.one_in(2) { 8 } else { 1 }),
            ..plan.drives[0]
        };
        let drives = vec![drive; to_usize(4 + rng.below(4))];
        let members = drives.len();
        let export = export_limit(drives.len(), drive.capacity, segment);
        let longest = 1 << rng.below(7);
        // Of twelve operations eight write, half of the longest write on average.
        let operations = ((2 + rng.below(3)) * export.0 * 3 / longest.max(4)).min(4000);
        Self {
            drives,
            members,
            segment,
            export,
            longest,
            everywhere: true,
            clients: 1 + rng.below(8),
            operations,
            fork_every: 200,
            zoned: rng.one_in(4),
            ..plan
        }
    }

    /// The plan of a seed, for a chain of pairs of drives of which halves sleep, so shortly that
    /// the tail comes and goes several times in a history.
    #[must_use]
    pub fn sleeping(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x51ee_9000);
        let plan = Self::mirrored(seed);
        let sleep = Some(SleepSettings {
            // Some have no starts left soon.
            wakes_a_day: if rng.one_in(4) { narrow(rng.below(4)) } else { 1000 },
            spin_up: Nanos::from_micros(1 << (10 + rng.below(5))),
            rest: Nanos::from_micros(1 << rng.below(12)),
        });
        let settings = plan.settings.iter();
        let settings = settings.map(|settings| ChainSettings { sleep, ..*settings }).collect();
        Self { sleep, settings, ..plan }
    }

    /// The plan of a seed, for a chain of pairs of drives.
    #[must_use]
    pub fn mirrored(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x9a12);
        let plan = Self::plain(seed);
        let links = &plan.drives[..plan.drives.len().min(3)];
        let mut drives: Vec<CrashDiskConfig> =
            links.iter().flat_map(|drive| [*drive, *drive]).collect();
        let members = drives.len();
        // A drive with large sectors would not be taken in place of one with small ones.
        let smallest = drives.iter().min_by_key(|drive| drive.physical_sector);
        let spare = smallest.copied().unwrap_or(plan.drives[0]);
        let capacity = Sectors(spare.capacity.0 + 80 + 7 * plan.segment.0);
        drives.extend([CrashDiskConfig { capacity, ..spare }; SPARES]);
        let used = drives[..members].iter().map(|drive| drive.capacity);
        let smallest = used.min().unwrap_or_default();
        let limit = export_limit(links.len(), smallest, plan.segment);
        let export = Sectors(limit.0 / (1 + rng.below(3)) / 8 * 8);
        let settings = [plan.settings[0]; 4][..2 + to_usize(rng.below(3))].to_vec();
        let copy_noted = Sectors(plan.segment.0 << rng.below(3));
        let of = |settings: ChainSettings| ChainSettings { copy_noted, ..settings };
        let settings = settings.into_iter().map(of).collect();
        let (zoned, mirrored) = (false, true);
        Self { drives, members, export, settings, zoned, mirrored, fork_every: 40, ..plan }
    }

    /// The plan of a seed, for a chain that links are added to and removed from. One in four is of
    /// pairs.
    #[must_use]
    pub fn linked(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x11_4c5);
        let mirrored = rng.one_in(4);
        Self::with_links(seed, rng, mirrored)
    }

    /// The plan of a seed, for a chain of single drives, which fail and leave with what only they
    /// held.
    #[must_use]
    pub fn bereft(seed: u64) -> Self {
        let plan = Self::with_links(seed, &mut Rng::new(seed ^ 0xbe_4ef7), false);
        Self { bereft: true, ..plan }
    }

    fn with_links(seed: u64, rng: &mut Rng, mirrored: bool) -> Self {
        let plan = Self::plain(seed);
        let halves = if mirrored { 2 } else { 1 };
        let links = 3 + to_usize(rng.below(2));
        let segments = 5 + rng.below(4);
        let capacity = capacity(segments, plan.segment, rng.below(40));
        let drive = CrashDiskConfig { capacity, ..plan.drives[0] };
        let mut drives = vec![drive; links * halves];
        let members = drives.len();
        let larger = Sectors(capacity.0 + rng.below(3 * plan.segment.0));
        drives.extend(vec![CrashDiskConfig { capacity: larger, ..drive }; SPARES * halves]);
        // One link fewer must do.
        let limit = export_limit(links - 1, capacity, plan.segment);
        let export = Sectors((limit.0 / (1 + rng.below(3)) / 8 * 8).max(8));
        let settings = (0..2 + to_usize(rng.below(3))).map(|_| ChainSettings {
            cleaning: Cleaning::ALL[to_usize(rng.below(Cleaning::ALL.len() as u64))],
            ..plan.settings[0]
        });
        let settings = settings.collect();
        let (zoned, linked, fork_every) = (false, true, 12 + rng.below(20));
        Self { drives, members, export, settings, mirrored, zoned, linked, fork_every, ..plan }
    }

    /// Longest write that a crash keeps or loses as a whole: an eighth of a segment.
    pub(crate) fn piece(&self) -> Sectors {
        Sectors((self.segment.0 / 8).min(512))
    }

    pub(crate) const fn options(&self) -> ChainOptions {
        let (segment, export) = (self.segment, Some(self.export));
        ChainOptions { segment, export, mirror: self.mirrored, summaries: self.summaries }
    }
}
