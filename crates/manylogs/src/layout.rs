//! Where a volume keeps what: its own structures, the logs, and the home of every block.
//!
//! The layout is data, a list of log regions; whatever they and the structures leave is home
//! space, exported without gaps. See `docs/format.md`.

use manylogs_block::{Extent, Lba, Sectors, to_usize};

use crate::config::{EngineConfig, LogPlacement};
use crate::error::VolumeError;
use crate::superblock::to_millionths;

/// Sectors of a superblock, at the start of the device and in the last sectors of it.
pub(crate) const SUPERBLOCK_SECTORS: Sectors = Sectors(8);
/// Sectors of a root slot; there are two behind the superblock.
pub(crate) const ROOT_SECTORS: Sectors = Sectors(16);
const ROOTS_START: u64 = 16;
const SNAPSHOTS_START: u64 = ROOTS_START + 2 * ROOT_SECTORS.0;
/// A snapshot slot holds a table of logs that are full of the smallest records.
const SNAPSHOT_SHARE: u64 = 64;
const SNAPSHOT_LEAST: Sectors = Sectors(64);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    device: Sectors,
    capacity: Sectors,
    snapshot: Sectors,
    logs: Vec<Extent>,
    /// Home space on the device, and the exported address at which each piece begins.
    homes: Vec<(Lba, Extent)>,
}

impl Layout {
    /// The layout that `config` asks for on a device of `device` sectors.
    ///
    /// # Errors
    /// [`VolumeError::TooSmall`], or [`VolumeError::Config`].
    pub fn plan(
        config: &EngineConfig,
        device: Sectors,
        physical: Sectors,
    ) -> Result<Self, VolumeError> {
        config.validate().map_err(VolumeError::Config)?;
        let align = |n: u64| n / physical.0 * physical.0;
        let log = Sectors(align(config.log.0));
        let logs_share = match config.placement {
            LogPlacement::EveryGroup(group) => device.0 / group.0 * log.0,
            LogPlacement::Single(_) => log.0,
        };
        let snapshot = SNAPSHOT_LEAST.0.max(logs_share / SNAPSHOT_SHARE).next_multiple_of(8);
        let start = SNAPSHOTS_START + 2 * snapshot;
        let end = align(superblock_places(device)[1].start.0);
        let need = start + log.0 + 4 * physical.0.max(8) + SUPERBLOCK_SECTORS.0;
        if device.0 < need {
            return Err(VolumeError::TooSmall { have: device, need: Sectors(need) });
        }
        let space = Extent::between(Lba(start), Lba(end));
        let logs = match config.placement {
            LogPlacement::EveryGroup(group) => group_logs(space, Sectors(align(group.0)), log),
            LogPlacement::Single(place) => vec![single_log(space, log, place, physical)],
        };
        Ok(Self::of_logs(device, Sectors(snapshot), space, logs))
    }

    fn of_logs(device: Sectors, snapshot: Sectors, space: Extent, logs: Vec<Extent>) -> Self {
        let (mut homes, mut exported, mut next) = (Vec::new(), Lba(0), space.start);
        let ends = logs.iter().map(|log| (log.start, log.end()));
        for (log_start, log_end) in ends.chain([(space.end(), space.end())]) {
            let home = Extent::between(next, log_start);
            if !home.is_empty() {
                homes.push((exported, home));
                exported = exported + home.len;
            }
            next = log_end;
        }
        Self { device, capacity: Sectors(exported.0), snapshot, logs, homes }
    }

    /// Size of the device.
    #[must_use]
    pub const fn device(&self) -> Sectors {
        self.device
    }

    /// Sectors that the volume exports.
    #[must_use]
    pub const fn capacity(&self) -> Sectors {
        self.capacity
    }

    /// The log regions by address.
    #[must_use]
    pub fn regions(&self) -> &[Extent] {
        &self.logs
    }

    /// Whether a device address lies in a log.
    #[must_use]
    pub fn is_log(&self, at: Lba) -> bool {
        let index = self.logs.partition_point(|log| log.start <= at);
        index > 0 && at < self.logs[index - 1].end()
    }

    /// The two places of the superblock.
    pub(crate) fn superblocks(&self) -> [Extent; 2] {
        superblock_places(self.device)
    }

    /// The root slots.
    pub(crate) const fn root(slot: usize) -> Extent {
        Extent::new(ROOTS_START + slot as u64 * ROOT_SECTORS.0, ROOT_SECTORS.0)
    }

    /// The snapshot slots.
    pub(crate) fn snapshot(&self, slot: u32) -> Extent {
        let start = SNAPSHOTS_START + u64::from(slot) * self.snapshot.0;
        Extent { start: Lba(start), len: self.snapshot }
    }

    /// Where an exported extent is on the device: in one piece but where it spans a log.
    pub fn home(&self, extent: Extent) -> impl Iterator<Item = Extent> {
        let mut index = self.home_index(extent.start);
        let mut left = extent;
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let (exported, home) = self.homes[index];
            index += 1;
            let skip = Sectors(left.start.0 - exported.0);
            let len = Sectors(left.len.0.min(home.len.0 - skip.0));
            left = Extent { start: left.start + len, len: left.len - len };
            Some(Extent { start: home.start + skip, len })
        })
    }

    fn home_index(&self, at: Lba) -> usize {
        // Groups are of one size but for the last, so a division finds most addresses.
        let guess = to_usize(at.0 / self.homes[0].1.len.0).min(self.homes.len() - 1);
        let (exported, home) = self.homes[guess];
        if exported <= at && at.0 < exported.0 + home.len.0 {
            return guess;
        }
        self.homes.partition_point(|(exported, _)| *exported <= at).saturating_sub(1)
    }
}

/// Where a device of this size has its superblocks.
pub(crate) const fn superblock_places(device: Sectors) -> [Extent; 2] {
    let last = device.0.saturating_sub(SUPERBLOCK_SECTORS.0) / 8 * 8;
    [Extent::new(0, SUPERBLOCK_SECTORS.0), Extent::new(last, SUPERBLOCK_SECTORS.0)]
}

fn group_logs(space: Extent, group: Sectors, log: Sectors) -> Vec<Extent> {
    let mut logs = Vec::new();
    let mut start = space.start;
    while start < space.end() {
        let len = Sectors(group.0.min(space.end().0 - start.0));
        // A short last group keeps its log only if data remain beside it.
        if len.0 > log.0 {
            logs.push(Extent { start: start + (len - log), len: log });
        }
        start = start + len;
    }
    logs
}

fn single_log(space: Extent, log: Sectors, place: f64, physical: Sectors) -> Extent {
    let room = u128::from((space.len - log).0);
    // In whole numbers, so that format and every later opening agree to the sector.
    let at = room * u128::from(to_millionths(place)) / 1_000_000;
    let at = u64::try_from(at).unwrap_or(u64::MAX) / physical.0 * physical.0;
    Extent { start: space.start + Sectors(at), len: log }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<Layout> {
        let tiny = EngineConfig {
            threshold: Sectors(8),
            record: Sectors(32),
            log: Sectors(64),
            placement: LogPlacement::EveryGroup(Sectors(256)),
            ..EngineConfig::default()
        };
        let single = EngineConfig { placement: LogPlacement::Single(0.3), ..tiny.clone() };
        let mut out = Vec::new();
        for config in [tiny, single] {
            for device in [2000, 4097, 10_001] {
                for physical in [1, 8] {
                    out.push(Layout::plan(&config, Sectors(device), Sectors(physical)).unwrap());
                }
            }
        }
        out
    }

    #[test]
    fn structures_logs_and_homes_never_overlap() {
        for layout in layouts() {
            let mut all: Vec<Extent> = layout.superblocks().to_vec();
            all.extend([Layout::root(0), Layout::root(1)]);
            all.extend([layout.snapshot(0), layout.snapshot(1)]);
            all.extend(layout.regions());
            all.extend(layout.homes.iter().map(|(_, home)| *home));
            all.sort();
            for pair in all.windows(2) {
                assert!(!pair[0].overlaps(pair[1]), "{} and {}", pair[0], pair[1]);
            }
            assert!(all.last().unwrap().end().0 <= layout.device().0);
        }
    }

    #[test]
    fn every_exported_sector_has_one_home_outside_the_logs() {
        for layout in layouts() {
            let whole = Extent::new(0, layout.capacity().0);
            let mut next = Lba(0);
            for piece in layout.home(whole) {
                assert!(piece.start >= next && !layout.is_log(piece.start));
                next = piece.end();
            }
            for at in 0..layout.capacity().0 {
                let one: Vec<_> = layout.home(Extent::new(at, 1)).collect();
                assert_eq!(one.len(), 1);
                assert!(!layout.is_log(one[0].start));
            }
        }
    }

    #[test]
    fn the_paper_layout_reserves_a_tenth() {
        let device = Sectors(1_953_525_168);
        let layout = Layout::plan(&EngineConfig::default(), device, Sectors(1)).unwrap();
        let share = layout.capacity().0 as f64 / device.0 as f64;
        assert!((0.89..0.90).contains(&share), "{share}");
        assert_eq!(layout.regions().len(), 9509);
    }
}
