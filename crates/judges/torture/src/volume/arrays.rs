//! Plans of volumes on arrays.

use manylogs::{LogPlacement, VolumeConfig};
use manylogs_array::{Level, Shape};
use manylogs_block::{Geometry, Rng, Sectors};

use crate::volume::plan::{Plan, Trouble};

/// Salt that decides the shape of arrays.
const ARRAY: u64 = 0xa44a;
/// The longest chunk of an array.
const CHUNK_MOST: u64 = 32;

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

    /// This plan on an array of this shape, if the histories know its level.
    pub(crate) fn on(self, array: &Shape) -> Self {
        match array.level {
            Level::Raid10 => self.on_raid10(array.members),
            Level::Raid0 | Level::Raid1 => self.on_raid0(array.members),
        }
    }

    fn on_columns(mut self, columns: u16, copies: u16) -> Self {
        let chunk = Sectors(8 << Rng::new(self.seed ^ ARRAY).below(3));
        self.array = Some(Geometry { chunk, columns, copies, first: Sectors(0) });
        self.trouble = Trouble::Never;
        let columns = u64::from(columns);
        let least = self.disk.capacity.0 * columns;
        self.disk.capacity = Sectors(least.next_multiple_of(columns * CHUNK_MOST));
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
        let array = self.array.filter(|_| rng.one_in(3))?;
        let chunk = Sectors(8 << rng.below(3));
        Some(Geometry { chunk, ..array })
    }
}
