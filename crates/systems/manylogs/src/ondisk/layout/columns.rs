//! Regions of logs, and the columns of an array that they are dealt out to.

use manylogs_array::ColumnMap;
use manylogs_block::{Extent, Geometry, Lba, Sectors, to_usize};

use super::{ALIGN, Layout, LogRun, Parts};

impl Layout {
    /// Where the addresses of the volume's structures, logs and homes lie on the array that it was
    /// made for, if it was.
    #[must_use]
    pub fn column_map(&self) -> Option<ColumnMap> {
        let areas = self.parts.runs.iter().flat_map(|run| run.regions());
        self.parts.columns.map(|columns| ColumnMap::new(columns, areas.collect()))
    }

    /// The array that the volume was made for, if it was.
    #[must_use]
    pub const fn columns(&self) -> Option<Geometry> {
        self.parts.columns
    }

    /// The same regions as if the volume had been made for another array.
    pub(crate) fn on_columns(&self, columns: Option<Geometry>) -> Self {
        Self::from_parts(Parts { columns, ..self.parts.clone() })
    }
}

impl LogRun {
    /// Whether the logs of `next` follow as if they were of this run.
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

/// The length of a snapshot slot, at least `snapshot`, with which the homes behind the two, which
/// begin `before` sectors behind the device's beginning, begin at a stripe: then a client's full
/// stripes are the array's. `snapshot` itself where no length does that, as behind a partition's
/// odd beginning.
pub(super) fn up_to_stripe(before: u64, snapshot: u64, array: Geometry) -> u64 {
    let begins = |len: &u64| {
        let homes = Lba(before + 2 * len);
        array.stripe_from(homes) == homes
    };
    let lengths = (snapshot..=snapshot + array.stripe().0).step_by(to_usize(ALIGN));
    lengths.into_iter().find(begins).unwrap_or(snapshot)
}

/// What regions are whole multiples of.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) physical: Sectors,
    pub(super) columns: Option<Geometry>,
}

impl Whole {
    /// A length as regions have it: whole physical sectors of it, or as many stripes as hold it.
    pub(super) fn length(self, len: Sectors) -> Sectors {
        match self.columns {
            Some(columns) => Sectors(len.0.next_multiple_of(columns.stripe().0)),
            None => Sectors(len.0 / self.physical.0 * self.physical.0),
        }
    }

    /// The part of `space` in which regions may begin, or end.
    fn within(self, space: Extent) -> Extent {
        self.columns.map_or(space, |columns| columns.whole_within(space))
    }
}

/// Logs at the end of each group of `space`. A short last group keeps its log only if data remain
/// beside it.
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
