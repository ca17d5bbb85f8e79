//! Regions of logs on an array, dealt out to its columns.

use manylogs_array::ColumnMap;
use manylogs_block::{Extent, Geometry, Lba, Sectors, to_usize};

use super::{ALIGN, Layout, LogRun, Parts};

impl Layout {
    /// Maps the addresses of structures, logs and homes to the array that the volume was made for;
    /// `None` if it was made for a single drive.
    #[must_use]
    pub fn column_map(&self) -> Option<ColumnMap> {
        let areas = self.parts.runs.iter().flat_map(|run| run.regions());
        self.parts.columns.map(|columns| ColumnMap::new(columns, areas.collect()))
    }

    /// The array that the volume was made for; `None` if it was made for a single drive.
    #[must_use]
    pub const fn columns(&self) -> Option<Geometry> {
        self.parts.columns
    }

    /// The same regions, as on a volume made for another array.
    pub(crate) fn on_columns(&self, columns: Option<Geometry>) -> Self {
        Self::from_parts(Parts { columns, ..self.parts.clone() })
    }
}

impl LogRun {
    /// Whether the logs of `next` continue this run.
    pub(super) fn is_continued_by(&self, next: &Self) -> bool {
        let same = (self.stride, self.len) == (next.stride, next.len);
        let end = self.first.0 + u64::from(self.count) * self.stride.0;
        same && end == next.first.0 && self.count.checked_add(next.count).is_some()
    }

    /// Regions of the logs in order.
    pub(super) fn regions(self) -> impl DoubleEndedIterator<Item = Extent> + Clone {
        (0..self.count).map(move |i| Extent {
            start: self.first + Sectors(u64::from(i) * self.stride.0),
            len: self.len,
        })
    }
}

/// The length of a snapshot slot, at least `snapshot`, for which the homes begin at a stripe. They
/// follow the two slots, which begin `before` sectors behind the device's beginning. Then a
/// client's full stripes are full stripes of the array. If no length does that, as on a partition
/// with an odd beginning, it is `snapshot` itself.
pub(super) fn up_to_stripe(before: u64, snapshot: u64, array: Geometry) -> u64 {
    let begins = |len: &u64| {
        let homes = Lba(before + 2 * len);
        array.stripe_from(homes) == homes
    };
    let lengths = (snapshot..=snapshot + array.stripe().0).step_by(to_usize(ALIGN));
    lengths.into_iter().find(begins).unwrap_or(snapshot)
}

/// The units that regions are whole multiples of.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) physical: Sectors,
    pub(super) columns: Option<Geometry>,
}

impl Whole {
    /// A length for regions: rounded down to physical sectors, or up to stripes.
    pub(super) fn length(self, len: Sectors) -> Sectors {
        match self.columns {
            Some(columns) => Sectors(len.0.next_multiple_of(columns.stripe().0)),
            None => Sectors(len.0 / self.physical.0 * self.physical.0),
        }
    }

    /// The part of `space` in which regions may begin or end.
    fn within(self, space: Extent) -> Extent {
        self.columns.map_or(space, |columns| columns.whole_within(space))
    }
}

/// Logs at the end of each group of `space`. A short last group gets a log only if data space
/// remains beside it.
pub(super) fn group_runs(space: Extent, group: Sectors, log: Sectors, whole: Whole) -> Vec<LogRun> {
    let space = whole.within(space);
    let count = space.len.0 / group.0;
    let rest = space.len.0 % group.0;
    let mut runs = Vec::new();
    if count > 0 {
        let first = space.start + (group - log);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        runs.push(LogRun { first, stride: group, len: log, count });
    }
    if rest > log.0 {
        let first = Lba(space.end().0 - log.0);
        runs.push(LogRun { first, stride: group, len: log, count: 1 });
    }
    runs
}

pub(super) fn single_run(space: Extent, log: Sectors, place: f64, whole: Whole) -> LogRun {
    let space = whole.within(space);
    let step = whole.columns.map_or(whole.physical, |columns| columns.stripe());
    let room = space.len.0.saturating_sub(log.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a validated fraction of the room"
    )]
    let at = (room as f64 * place) as u64 / step.0 * step.0;
    LogRun { first: space.start + Sectors(at), stride: log, len: log, count: 1 }
}
