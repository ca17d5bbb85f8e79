//! Places on the device: the volume's own structures, the logs, and the home of every block.
//!
//! The layout is data: a list of log regions in runs. The space that logs and structures leave is
//! home space, which clients address without gaps. If another owner gives the places of logs and
//! structures (see [`Anchors`]), every block's home is at its own address. See `docs/format.md`.

mod columns;
mod given;
mod regions;

pub use given::Anchors;
pub use regions::LayoutError;

use manylogs_array::ColumnMap;
use manylogs_block::{Extent, Geometry, Lba, Sectors, to_usize};
use manylogs_logstore::UnitTable;
use manylogs_logstore::ondisk::root::ROOT_SECTORS;
use manylogs_plant::{self as plant, Bug};

pub(crate) use columns::fits_rows;
use columns::{Whole, ends, group_runs, room_for_images, single_run, up_to_stripe};

use crate::error::VolumeError;
use crate::ondisk::superblock::runs_that_fit;
use crate::settings::config::{LogPlacement, VolumeConfig};
use crate::settings::config_error::ConfigError;

/// Shortest superblock.
pub(crate) const SUPERBLOCK_LEAST: Sectors = Sectors(8);
/// Longest superblock. If the first copy is damaged, the last one is searched for within this
/// distance of the device's end.
pub(crate) const SUPERBLOCK_MOST: Sectors = Sectors(2048);
/// All parts begin and end at multiples of 4 KiB, even if physical sectors are shorter.
const ALIGN: u64 = 8;
/// A snapshot slot has this share of the log space, as a divisor: enough for the table of logs that
/// are full of 4 KiB records, see `docs/format.md`.
const SNAPSHOT_SHARE: u64 = 256;
const SNAPSHOT_LEAST: Sectors = Sectors(64);

/// Logs of one length at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// First sector of the first region.
    pub first: Lba,
    /// Distance from the start of one region to the start of the next.
    pub stride: Sectors,
    /// Length of each region.
    pub len: Sectors,
    /// Number of regions.
    pub count: u32,
}

/// Parts of a layout, as the superblock keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Size of the device.
    pub(crate) device: Sectors,
    /// Sectors of one copy of the superblock.
    pub(crate) superblock: Sectors,
    /// Sectors of one snapshot slot.
    pub(crate) snapshot: Sectors,
    /// Sectors for images of rows, behind the snapshots; 0 if there are none.
    pub(crate) images: Sectors,
    /// The space that logs and homes share.
    pub(crate) space: Extent,
    /// The runs of logs, by address.
    pub(crate) runs: Vec<LogRun>,
    /// Places of the structures, if they were given.
    pub(crate) anchors: Option<Anchors>,
    /// The array that the volume was made for: then each region holds a log for each column.
    pub(crate) columns: Option<Geometry>,
    /// Whether that array's shape is its user's word: the device does not say it.
    pub(crate) said: bool,
}

/// Places of a volume's structures, logs and homes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    parts: Parts,
    capacity: Sectors,
    logs: Vec<Extent>,
    /// Home space on the device, and the address of the volume at which each piece begins.
    homes: Vec<(Lba, Extent)>,
}

impl Layout {
    /// The layout that `config` asks for on a device of `device` sectors.
    ///
    /// # Errors
    /// [`VolumeError::TooSmall`], [`VolumeError::StripesTooLong`], or [`VolumeError::Config`].
    pub fn of(
        config: &VolumeConfig,
        device: Sectors,
        physical: Sectors,
    ) -> Result<Self, VolumeError> {
        Self::on_array(config, device, physical, None)
    }

    /// As [`Layout::of`]. On an array with `columns` the regions are whole stripes, and each holds
    /// a log for each column. Groups and logs are rounded up to whole stripes.
    ///
    /// # Errors
    /// As [`Layout::of`].
    pub fn on_array(
        config: &VolumeConfig,
        device: Sectors,
        physical: Sectors,
        columns: Option<Geometry>,
    ) -> Result<Self, VolumeError> {
        config.validate()?;
        if config.placement == LogPlacement::Listed {
            return Err(ConfigError::LogsNotListed.into());
        }
        let columns = columns.filter(|array| array.parity == 0 || fits_rows(*array, device));
        let whole = Whole { physical, columns };
        let log = whole.length(config.log);
        let logs_share = match config.placement {
            LogPlacement::EveryGroup(group) => device.0 / group.0 * log.0,
            LogPlacement::Single(_) | LogPlacement::Listed => log.0,
        };
        let snapshot = SNAPSHOT_LEAST.0.max(logs_share / SNAPSHOT_SHARE).next_multiple_of(ALIGN);
        let superblock = SUPERBLOCK_LEAST;
        let (before, behind) = ends(superblock, columns);
        let snapshot = columns.map_or(snapshot, |array| up_to_stripe(before, snapshot, array));
        let images = room_for_images(columns.filter(|_| config.close_hole), log);
        let start = before + 2 * snapshot + images.0;
        let need = start + log.0 + 4 * ALIGN.max(physical.0) + behind + ALIGN;
        if device.0 < need {
            return Err(VolumeError::TooSmall { have: device, need: Sectors(need) });
        }
        let end = (device.0 - behind) / ALIGN * ALIGN;
        let space = Extent::between(Lba(start), Lba(end));
        let runs = match config.placement {
            LogPlacement::EveryGroup(group) => group_runs(space, whole.length(group), log, whole),
            LogPlacement::Single(place) => vec![single_run(space, log, place, whole)],
            LogPlacement::Listed => Vec::new(),
        };
        let snapshot = Sectors(snapshot);
        let frame = Parts { device, superblock, snapshot, images, space, ..Parts::default() };
        let parts = Parts { runs, columns, ..frame };
        if let Some(array) = columns.filter(|_| parts.check_runs(physical).is_err()) {
            return Err(VolumeError::StripesTooLong { log, stripe: array.stripe() });
        }
        Ok(Self::from_parts(parts))
    }

    /// The layout that a superblock describes. The caller has checked the parts with
    /// [`Parts::check`].
    pub(crate) fn from_parts(parts: Parts) -> Self {
        let areas: Vec<Extent> = parts.runs.iter().flat_map(|run| run.regions()).collect();
        let logs = match &parts.columns {
            Some(columns) => {
                areas.iter().flat_map(|area| ColumnMap::logs(columns, *area)).collect()
            }
            None => areas.clone(),
        };
        if parts.anchors.is_some() {
            let (capacity, homes) = (parts.space.len, vec![(Lba(0), parts.space)]);
            return Self { parts, capacity, logs, homes };
        }
        let (mut homes, mut exported, mut next) = (Vec::new(), Lba(0), parts.space.start);
        let ends = areas.iter().map(|area| (area.start, area.end()));
        let space_end = parts.space.end();
        for (log_start, log_end) in ends.chain([(space_end, space_end)]) {
            let home = Extent::between(next, log_start);
            if !home.is_empty() {
                homes.push((exported, home));
                exported = exported + home.len;
            }
            next = log_end;
        }
        Self { capacity: Sectors(exported.0), parts, logs, homes }
    }

    /// The parts that the superblock keeps.
    pub(crate) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Size of the device.
    #[must_use]
    pub const fn device(&self) -> Sectors {
        self.parts.device
    }

    /// Capacity of the volume.
    #[must_use]
    pub const fn capacity(&self) -> Sectors {
        self.capacity
    }

    /// The log regions by address. On an array they are addresses of [`Layout::column_map`].
    #[must_use]
    pub fn regions(&self) -> &[Extent] {
        &self.logs
    }

    /// Sectors of all logs together.
    #[must_use]
    pub fn log_sectors(&self) -> Sectors {
        Sectors(self.parts.runs.iter().map(|run| run.len.0 * u64::from(run.count)).sum())
    }

    /// Home space on the device by address, and the address of the volume where each piece begins:
    /// the table that exposes a drained volume without this software.
    #[must_use]
    pub fn homes(&self) -> &[(Lba, Extent)] {
        &self.homes
    }

    /// The two copies of the superblock.
    #[must_use]
    pub fn superblocks(&self) -> [Extent; 2] {
        let len = self.parts.superblock;
        match self.parts.anchors {
            Some(anchors) => anchors.both().map(|anchor| Extent { len, ..anchor }),
            None => [Extent::new(0, len.0), superblock_at_end(self.parts.device, len)],
        }
    }

    /// The two root slots.
    #[must_use]
    pub fn roots(&self) -> [Extent; 2] {
        let [first, last] = self.superblocks();
        if self.parts.anchors.is_some() {
            return [first, last].map(|own| Extent { start: own.end(), len: ROOT_SECTORS });
        }
        if let Some(planted) = self.roots_in_one_row(first.end()) {
            return planted;
        }
        [
            Extent { start: first.end(), len: ROOT_SECTORS },
            Extent { start: Lba(last.start.0 - ROOT_SECTORS.0), len: ROOT_SECTORS },
        ]
    }

    /// The two snapshot slots.
    #[must_use]
    pub fn snapshots(&self) -> [Extent; 2] {
        let len = self.parts.snapshot;
        if self.parts.anchors.is_some() {
            return self.roots().map(|root| Extent { start: root.end(), len });
        }
        let start = Lba(ends(self.parts.superblock, self.parts.columns).0);
        [Extent { start, len }, Extent { start: start + len, len }]
    }

    /// The places of an extent of the volume on the device: one piece, unless a log lies in
    /// between.
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
        // All groups but the last have one size, so a division finds most addresses.
        let guess = to_usize(at.0 / self.homes[0].1.len.0).min(self.homes.len() - 1);
        let (exported, home) = self.homes[guess];
        if exported <= at && at.0 < exported.0 + home.len.0 {
            return guess;
        }
        self.homes.partition_point(|(exported, _)| *exported <= at).saturating_sub(1)
    }

    /// The layout on a larger device. Every block keeps its address; the new space continues with
    /// logs at the distance of the last run.
    ///
    /// # Errors
    /// [`VolumeError::CannotGrow`] if the device is not larger, [`VolumeError::GrewTooOften`] if
    /// the superblock cannot hold the new logs.
    pub(crate) fn grown(&self, device: Sectors) -> Result<Self, VolumeError> {
        let (_, behind) = ends(self.parts.superblock, self.parts.columns);
        let end = Lba(device.0.saturating_sub(behind) / ALIGN * ALIGN);
        let old = &self.parts;
        let odd = old.columns.is_some_and(|it| it.parity > 0 && !fits_rows(it, device));
        if device <= old.device || end <= old.space.end() || odd {
            return Err(VolumeError::CannotGrow { formatted: old.device, now: device });
        }
        let mut parts = old.clone();
        parts.device = device;
        parts.space = Extent::between(old.space.start, end);
        if let Some(last) = parts.runs.last().copied()
            && self.logs.len() > 1
            && last.stride > last.len
        {
            // The last group may have been too short for a log. Its blocks keep their homes, so no
            // new log may begin before the end of the old space.
            let behind = last.regions().next_back().map_or(end, |region| region.end());
            let home = last.stride.0 - last.len.0;
            let planted = plant::is(Bug::GrowTakesHome);
            let from = if planted { behind } else { behind.max(Lba(old.space.end().0 - home)) };
            // The parts of the first layout are whole physical sectors already.
            let whole = Whole { physical: Sectors(1), columns: parts.columns };
            let runs = group_runs(Extent::between(from, end), last.stride, last.len, whole);
            for run in runs.into_iter().filter(|run| planted || run.first >= old.space.end()) {
                match parts.runs.last_mut() {
                    Some(last) if last.is_continued_by(&run) => last.count += run.count,
                    _ => parts.runs.push(run),
                }
            }
        }
        if parts.entries() as u64 > runs_that_fit(parts.superblock) {
            // The superblock cannot become longer, because root and snapshots lie behind it.
            return Err(VolumeError::GrewTooOften);
        }
        Ok(Self::from_parts(parts))
    }
}

impl Parts {
    /// Checks that structures, space and logs follow one another without overlap, in whole physical
    /// sectors. Otherwise a superblock is not believed.
    pub(crate) fn check(&self, physical: Sectors) -> Result<(), &'static str> {
        self.check_frame(physical)?;
        self.check_runs(physical)
    }

    fn check_frame(&self, physical: Sectors) -> Result<(), &'static str> {
        let lengths = (SUPERBLOCK_LEAST..=SUPERBLOCK_MOST).contains(&self.superblock)
            && self.superblock.0.is_multiple_of(ALIGN)
            && self.snapshot.0 >= ALIGN
            && self.snapshot.0.is_multiple_of(ALIGN)
            && self.device.0 < 1 << 48;
        if !lengths {
            return Err("structures that do not fit the device");
        }
        self.check_rows()?;
        if let Some(anchors) = self.anchors {
            return self.check_anchors(anchors, physical);
        }
        let (before, behind) = ends(self.superblock, self.columns);
        let before = before + self.images.0;
        let start = self.snapshot.0.checked_mul(2).and_then(|s| s.checked_add(before));
        let end = self.space.start.0.checked_add(self.space.len.0);
        let fits = start.is_some_and(|start| start == self.space.start.0)
            && end.and_then(|end| end.checked_add(behind)).is_some_and(|e| e <= self.device.0);
        if fits { Ok(()) } else { Err("structures that do not fit the device") }
    }

    fn check_runs(&self, physical: Sectors) -> Result<(), &'static str> {
        if let Some(columns) = self.columns {
            columns.check()?;
        }
        let mut next = self.space.start.0;
        for run in &self.runs {
            let stripes = self.columns.is_none_or(|columns| {
                let alone = run.count == 1 || run.stride.0.is_multiple_of(columns.stripe().0);
                alone && columns.is_whole(Extent { start: run.first, len: run.len })
            });
            let aligned = stripes
                && [run.first.0, run.stride.0, run.len.0]
                    .iter()
                    .all(|value| value.is_multiple_of(physical.0));
            let last = u64::from(run.count.saturating_sub(1)).checked_mul(run.stride.0);
            let run_end = last
                .and_then(|span| span.checked_add(run.first.0))
                .and_then(|start| start.checked_add(run.len.0));
            let sound = run.count > 0
                && run.len.0 > 0
                && UnitTable::fits(run.len)
                && run.stride >= run.len
                && run.first.0 >= next
                && run_end.is_some_and(|run_end| run_end <= self.space.end().0);
            if !sound || !aligned {
                return Err("log regions that overlap or leave the device");
            }
            next = run_end.unwrap_or(u64::MAX);
        }
        let logs: u64 = self.runs.iter().map(|run| run.len.0 * u64::from(run.count)).sum();
        if self.runs.is_empty() {
            return Err("lack of logs");
        }
        if logs == self.space.len.0 { Err("lack of room for data") } else { Ok(()) }
    }
}

/// Place of the last copy of a superblock of `len` sectors.
pub(crate) fn superblock_at_end(device: Sectors, len: Sectors) -> Extent {
    let end = device.0 / ALIGN * ALIGN;
    Extent::new(end.saturating_sub(len.0), len.0)
}

#[cfg(test)]
#[path = "layout/tests.rs"]
mod tests;
