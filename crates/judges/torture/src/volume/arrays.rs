//! Plans of volumes on arrays.

use manylogs::{LogPlacement, TablePlace, VolumeConfig};
use manylogs_array::{Level, Pace, Shape as ArrayShape};
use manylogs_block::{Geometry, Nanos, Rng, Sectors};

use crate::volume::plan::{Between, Plan, Shape, Trouble};

/// Salt that decides the shape of arrays.
const ARRAY: u64 = 0xa44a;
/// Salt of plans with many openings.
const SHORT: u64 = 0x5047;
/// Salt that decides which volumes on arrays with parity close the write hole of homes.
const HOLE: u64 = 0x401e;
/// Salt that decides after which reshapes a volume follows its array.
const FOLLOWS: u64 = 0xf011;
/// Sectors of the longest writes beyond the threshold, on most volumes.
const LARGE_WRITES: u64 = 40;
/// The longest chunk of an array.
const CHUNK_MOST: u64 = 32;
/// Bytes of non-volatile RAM for each column that a table has in addition: a record is whole rows,
/// so that the largest has more entries than on one disk.
const NVRAM_EACH_COLUMN: usize = 256;
/// The same on an array without parity, where each column has a log in every region, and the table
/// keeps some bytes for each log.
const NVRAM_LOGS_OF_COLUMN: usize = 2048;
/// The shortest chunk of an array with parity, in sectors: a volume fills rows from there on.
const ROWS_CHUNK_LEAST: u64 = 32;

/// Salt that decides what an array does in use.
const LIFE: u64 = 0x11fe;
/// Salt that decides in which incarnations members leave.
const LEAVES: u64 = 0x1ea7e;

/// What an array does while the volume is opened and used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrayLife {
    /// How fast it brings members in step that may differ after a crash; never if `None`.
    pub(crate) pace: Option<Pace>,
    /// Whether members leave: they fail all requests from some moment on.
    pub(crate) leaves: bool,
    /// Whether new members take the place of missing ones, and are filled in use.
    pub(crate) fills: bool,
}

impl Plan {
    /// This plan on RAID-0 of `members` disks, in chunks that the seed decides. Its devices do not
    /// fail.
    #[must_use]
    pub fn on_raid0(self, members: u16) -> Self {
        self.on_columns(members, 1)
    }

    /// As [`Plan::on_raid0`], on RAID-10 of `members` disks, two of which hold the same content.
    #[must_use]
    pub fn on_raid10(self, members: u16) -> Self {
        self.on_columns(members / 2, 2)
    }

    /// As [`Plan::on_raid0`], on RAID-1 of `members` disks with the same content: a single column.
    #[must_use]
    pub fn on_raid1(self, members: u16) -> Self {
        self.on_columns(1, members)
    }

    /// This plan on an array of this shape. With `trouble`, members of it fail requests, as the
    /// plan says, or all of an array with parity does, which makes up for members.
    #[must_use]
    pub fn on(self, array: &ArrayShape, trouble: bool) -> Self {
        let planned = self.trouble;
        let seed = self.seed;
        let plan = match array.level {
            Level::Raid0 => self.on_raid0(array.members),
            Level::Raid1 => self.on_raid1(array.members),
            Level::Raid10 => self.on_raid10(array.members),
            Level::Raid5 | Level::Raid6 => {
                let closes = Rng::new(self.seed ^ HOLE).one_in(2);
                let plan = self.on_parity(array.members, array.parity());
                if closes { plan.closing_hole() } else { plan }
            }
        };
        let plan = if trouble { Self { trouble: planned, ..plan } } else { plan };
        let mut rng = Rng::new(seed ^ LIFE);
        let (resyncs, loses) = (!rng.one_in(3), rng.one_in(2));
        let plan = if resyncs { plan.resyncing() } else { plan };
        // A member that fails requests by the plan fails no others.
        let plan = if loses && !trouble { plan.losing_members() } else { plan };
        if rng.one_in(2) { plan.filling_members() } else { plan }
    }

    /// This plan on an array that brings members in step while the volume is opened and used, if
    /// they may differ after a crash.
    #[must_use]
    pub fn resyncing(mut self) -> Self {
        let mut rng = Rng::new(!self.seed ^ LIFE);
        let window = Sectors(8 << rng.below(6));
        let pause = Nanos::from_micros(500 * rng.below(8));
        self.array_life.pace = Some(Pace { window, pause });
        self
    }

    /// This plan on an array whose members leave in use, as many as the level bears.
    #[must_use]
    pub fn losing_members(mut self) -> Self {
        self.array_life.leaves = true;
        self
    }

    /// This plan on an array that is given new members for missing ones, and fills them while the
    /// volume is opened and used.
    #[must_use]
    pub fn filling_members(mut self) -> Self {
        self.array_life.fills = true;
        if self.array_life.pace.is_some() { self } else { self.resyncing() }
    }

    /// Decides which members leave in an incarnation, if any do.
    pub(crate) fn leaving(&self, incarnation: u64) -> Option<Rng> {
        let mut rng = Rng::new(self.seed ^ LEAVES ^ incarnation << 32);
        (self.array_life.leaves && rng.one_in(2)).then_some(rng)
    }

    /// As [`Plan::on_raid0`], on RAID-5 or 6 of `members` disks, `parity` of which hold parity in
    /// each stripe. Members are missing after crashes, as many as the array bears.
    #[must_use]
    pub fn on_parity(mut self, members: u16, parity: u16) -> Self {
        let chunk = Sectors(ROWS_CHUNK_LEAST << Rng::new(self.seed ^ ARRAY).below(2));
        let columns = members - parity;
        let array = Geometry { chunk, columns, copies: 1, parity, first: Sectors(0) };
        self.array = Some(array);
        self.trouble = Trouble::Never;
        let least = self.disk.capacity.0 * u64::from(columns) + 4 * array.stripe().0;
        self.disk.capacity = Sectors(least.next_multiple_of(array.stripe().0));
        if let Some(Between::Grow(larger)) = &mut self.between {
            *larger = Sectors(larger.0.next_multiple_of(array.stripe().0));
        }
        // A log is whole stripes, and each group needs another one for data.
        let log = Sectors(self.config.log.0.next_multiple_of(chunk.0));
        if let LogPlacement::EveryGroup(group) = &mut self.config.placement {
            *group = if *group > log { *group } else { log + chunk };
        }
        if let TablePlace::Nvram(bytes) = &mut self.config.table {
            *bytes += NVRAM_EACH_COLUMN * usize::from(columns);
        }
        self
    }

    /// This plan on an array with parity with the write hole of homes closed: after a crash with
    /// missing members nothing may be lost but what clients were writing.
    #[must_use]
    pub fn closing_hole(mut self) -> Self {
        let Some(array) = self.array.filter(|array| array.parity > 0) else { return self };
        self.config.close_hole = true;
        let images = self.config.log.0 * u64::from(array.columns) + 2 * array.stripe().0;
        self.disk.capacity += Sectors(images.next_multiple_of(array.stripe().0));
        self
    }

    /// Length of the longest writes beyond the threshold: on an array with a closed write hole some
    /// must be whole stripes.
    pub(crate) fn longest_large(&self) -> u64 {
        let stripe = self.array.map_or(0, |array| array.stripe().0);
        if self.config.close_hole { LARGE_WRITES + 3 * stripe } else { LARGE_WRITES }
    }

    fn on_columns(mut self, columns: u16, copies: u16) -> Self {
        let chunk = Sectors(8 << Rng::new(self.seed ^ ARRAY).below(3));
        self.array = Some(Geometry { chunk, columns, copies, parity: 0, first: Sectors(0) });
        self.trouble = Trouble::Never;
        if let TablePlace::Nvram(bytes) = &mut self.config.table {
            *bytes += NVRAM_LOGS_OF_COLUMN * usize::from(columns - 1);
        }
        let columns = u64::from(columns);
        let least = self.disk.capacity.0 * columns;
        self.disk.capacity = Sectors(least.next_multiple_of(columns * CHUNK_MOST));
        if copies > 1 && Rng::new(self.seed ^ SHORT ^ ARRAY).one_in(4) && self.is_small() {
            return self.in_short_lives();
        }
        self
    }

    fn is_small(&self) -> bool {
        self.shape == Shape::Small && self.between.is_none()
    }

    /// This plan with many openings, after each of which clients send a few requests. A crash then
    /// often falls into the first records of an epoch, and logs hold a little of an epoch that a
    /// drain has ended.
    #[must_use]
    pub fn in_short_lives(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ SHORT);
        self.incarnations = 6 + rng.below(6);
        self.operations = 1 + rng.below(12);
        self.short_lives = true;
        self.config.log = Sectors(self.config.log.0 * (1 + rng.below(4)));
        if rng.one_in(2) {
            self.config.placement = LogPlacement::Single(0.5);
        }
        if let LogPlacement::EveryGroup(group) = &mut self.config.placement {
            *group += self.config.log;
        }
        // Room for the longer logs.
        let columns = self.array.map_or(1, |array| u64::from(array.columns));
        let least = (1600 + 8 * rng.below(60)) + 3 * self.config.log.0;
        self.disk.capacity = Sectors(columns * least.next_multiple_of(CHUNK_MOST));
        self
    }

    /// The parameters with which the volume is made. On an array each column has logs and groups
    /// like a single disk.
    pub(crate) fn created(&self) -> VolumeConfig {
        let columns = self.array.map_or(1, |array| u64::from(array.columns));
        let times = |len: Sectors| Sectors(len.0 * columns);
        let placement = match self.config.placement {
            LogPlacement::EveryGroup(group) => LogPlacement::EveryGroup(times(group)),
            other => other,
        };
        VolumeConfig { log: times(self.config.log), placement, ..self.config }
    }

    /// The new shape of the array from this incarnation on, if it changes.
    pub(crate) fn reshape(&self, incarnation: u64) -> Option<Geometry> {
        let mut rng = Rng::new(self.seed ^ ARRAY ^ incarnation << 32);
        let array = self.array.filter(|array| rng.one_in(3) && array.columns > 1)?;
        if array.parity > 0 {
            return None;
        }
        let chunk = Sectors(8 << rng.below(3));
        Some(Geometry { chunk, ..array })
    }

    /// Whether the volume follows its array to the shape that it has from this incarnation on. It
    /// cannot if its table is in non-volatile RAM. After failures it may not be drained.
    pub(crate) fn follows(&self, incarnation: u64) -> bool {
        let mut rng = Rng::new(self.seed ^ FOLLOWS ^ incarnation << 32);
        let table = matches!(self.config.table, TablePlace::Logs);
        table && self.trouble == Trouble::Never && rng.one_in(2)
    }
}
