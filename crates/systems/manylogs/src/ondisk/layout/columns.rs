//! Regions of logs on an array, dealt out to its columns.

use manylogs_array::ColumnMap;
use manylogs_block::{Extent, Geometry, Lba, PAGE, Sectors, to_usize};
use manylogs_logstore::ondisk::root::ROOT_SECTORS;
use manylogs_plant::{self as plant, Bug};

use super::{ALIGN, Layout, LogRun, Parts, SNAPSHOT_LEAST, SNAPSHOT_SHARE, SUPERBLOCK_LEAST};
use crate::lifecycle::geometry::Unfit;
use crate::ondisk::superblock::runs_that_fit;

/// Records can fill rows only if a chunk holds a root and a superblock, each in pages of its own.
const ROWS_CHUNK_LEAST: Sectors = Sectors(ROOT_SECTORS.0 + PAGE.0);

/// Rows of the longest image, a few more than a batch of a checkpoint has versions.
const IMAGE_ROWS_MOST: u64 = 520;

impl Layout {
    /// Maps the addresses of structures, logs and homes to the array that the volume was made for;
    /// `None` if it was made for a single drive.
    #[must_use]
    pub fn column_map(&self) -> Option<ColumnMap> {
        let columns = self.parts.columns?;
        let areas = self.parts.runs.iter().flat_map(|run| run.regions());
        // An owner that gives the places of structures has not kept rows free for them.
        if columns.parity == 0 || self.parts.anchors.is_some() {
            return Some(ColumnMap::new(columns, areas.collect()));
        }
        let [first, _] = self.snapshots();
        let by_row = Extent::between(first.start, self.images().end());
        let map = ColumnMap::new(columns, [by_row].into_iter().chain(areas).collect());
        let len = columns.stripe();
        let last = Extent { start: Lba(self.parts.device.0 - len.0), len };
        Some(map.with_structures([Extent { start: Lba(0), len }, last]))
    }

    /// The unit of records: the rows of an array with parity, so that two records never share one;
    /// else physical sectors, which have the length `physical`.
    #[must_use]
    pub fn record_unit(&self, physical: Sectors) -> Sectors {
        let row = self.parts.columns.and_then(|columns| columns.row());
        row.filter(|_| !plant::is(Bug::RecordsShareRow)).unwrap_or(physical)
    }

    /// Whether logs in places that an owner gives can be made for this array: on one with parity
    /// chunks must have 16 KiB or more.
    #[must_use]
    pub fn may_have_logs(array: &Geometry) -> bool {
        array.parity == 0 || array.chunk >= ROWS_CHUNK_LEAST
    }

    /// Room for an image of rows on their way home; empty if the volume has none.
    #[must_use]
    pub fn images(&self) -> Extent {
        Extent { start: self.snapshots()[1].end(), len: self.parts.images }
    }

    /// The array that the volume was made for; `None` if it was made for a single drive.
    #[must_use]
    pub const fn columns(&self) -> Option<Geometry> {
        self.parts.columns
    }

    /// Number of logs in each place of logs that an owner gives on this array: one on each column,
    /// or one that fills rows.
    #[must_use]
    pub fn logs_in(array: Geometry) -> u64 {
        ColumnMap::logs_in_region(&array).into()
    }

    /// Whether the array's shape is its user's word, because the device does not say it.
    #[must_use]
    pub const fn is_said(&self) -> bool {
        self.parts.said
    }

    /// This layout with the array's shape as its user's word.
    #[must_use]
    pub(crate) fn as_said(&self) -> Self {
        Self::from_parts(Parts { said: self.parts.columns.is_some(), ..self.parts.clone() })
    }

    /// This layout with the array's shape as the device's own word.
    pub(crate) fn forget_said(&self) -> Self {
        Self::from_parts(Parts { said: false, ..self.parts.clone() })
    }

    /// The same regions, as on a volume made for another array.
    pub(crate) fn on_columns(&self, columns: Option<Geometry>) -> Self {
        Self::from_parts(Parts { columns, ..self.parts.clone() })
    }
}

impl Layout {
    /// This layout on `columns`. Regions, homes, superblocks and roots stay where they are; what
    /// is between roots and homes is dealt out anew to snapshots, and to images of rows if there
    /// were any. The logs must be empty.
    ///
    /// # Errors
    /// Why the regions cannot hold logs of these columns.
    pub(crate) fn reshaped(
        &self,
        columns: Option<Geometry>,
        physical: Sectors,
    ) -> Result<Self, Unfit> {
        let stripe = columns.map_or(Sectors(ALIGN), |array| array.stripe());
        let with_parity = columns.filter(|array| array.parity > 0);
        if with_parity.is_some_and(|array| !fits_rows(array, self.parts.device)) {
            return Err(Unfit::NoRows { stripe });
        }
        let (before, behind) = ends(self.parts.superblock, columns);
        let images = self.parts.images;
        let fits = with_parity.is_some() && images.0.is_multiple_of(stripe.0);
        let images = if fits { images } else { Sectors(0) };
        let unit = if with_parity.is_some() { stripe.0 } else { ALIGN };
        let snapshots = self.parts.space.start.0.saturating_sub(before + images.0);
        let snapshot = Sectors(snapshots / 2);
        let least = SNAPSHOT_LEAST.0.max(self.log_sectors().0 / SNAPSHOT_SHARE);
        let has_end = self.parts.space.end().0 + behind <= self.parts.device.0;
        if !snapshots.is_multiple_of(2 * unit) || snapshot.0 < least || !has_end {
            return Err(Unfit::Structures);
        }
        let said = self.parts.said && columns == self.parts.columns;
        let parts = Parts { columns, said, snapshot, images, ..self.parts.clone() };
        if parts.entries() as u64 > runs_that_fit(parts.superblock) {
            return Err(Unfit::TooManyRuns);
        }
        parts.check_runs(physical).map_err(|_| Unfit::PartOfStripe { stripe })?;
        parts.check(physical).map_err(|_| Unfit::Structures)?;
        Ok(Self::from_parts(parts))
    }

    /// The planted bug that puts both roots into the same rows, on two columns.
    pub(super) fn roots_in_one_row(&self, start: Lba) -> Option<[Extent; 2]> {
        let columns = self.parts.columns.filter(|columns| columns.parity > 0)?;
        let both = [start, start + columns.chunk].map(|start| Extent { start, len: ROOT_SECTORS });
        plant::is(Bug::RootsShareRow).then_some(both)
    }
}

impl Parts {
    /// Entries of the superblock's list of runs: anchors and the geometry are such entries, too.
    pub(crate) fn entries(&self) -> usize {
        let anchors = if self.anchors.is_some() { 2 } else { 0 };
        self.runs.len() + anchors + usize::from(self.columns.is_some())
    }

    /// Checks that on an array with parity structures are in rows of their own.
    pub(super) fn check_rows(&self) -> Result<(), &'static str> {
        let Some(columns) = self.columns.filter(|columns| columns.parity > 0) else {
            return match self.images {
                Sectors(0) => Ok(()),
                _ => Err("images of rows without parity"),
            };
        };
        columns.check()?;
        if self.anchors.is_some() {
            return match self.images {
                Sectors(0) if Layout::may_have_logs(&columns) => Ok(()),
                _ => Err("logs that do not fill rows of their array"),
            };
        }
        let own = self.images.0.is_multiple_of(columns.stripe().0)
            && self.snapshot.0.is_multiple_of(columns.stripe().0)
            && fits_rows(columns, self.device)
            && self.superblock == SUPERBLOCK_LEAST
            && self.anchors.is_none();
        if own { Ok(()) } else { Err("structures that are not in rows of their own") }
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
    if array.parity > 0 {
        return snapshot.next_multiple_of(array.stripe().0);
    }
    let begins = |len: &u64| {
        let homes = Lba(before + 2 * len);
        array.stripe_from(homes) == homes
    };
    let lengths = (snapshot..=snapshot + array.stripe().0).step_by(to_usize(ALIGN));
    lengths.into_iter().find(begins).unwrap_or(snapshot)
}

/// Room for an image of rows on an array with parity: [`IMAGE_ROWS_MOST`] of them, but no more than
/// a log takes. A batch that touches more rows goes home behind several images. On other arrays
/// there is none.
pub(super) fn room_for_images(array: Option<Geometry>, log: Sectors) -> Sectors {
    let Some((array, row)) = array.and_then(|array| Some((array, array.row()?))) else {
        return Sectors(0);
    };
    let rows = Sectors(row.0 * IMAGE_ROWS_MOST).min(log);
    Sectors((rows.0 + row.0).next_multiple_of(array.stripe().0))
}

/// Whether a volume on this array may fill rows. If not, it takes the array for one drive: the last
/// stripe must end with the device, and chunks must have room for the structures.
pub(crate) fn fits_rows(array: Geometry, device: Sectors) -> bool {
    array.first == Sectors(0)
        && array.chunk >= ROWS_CHUNK_LEAST
        && device.0.is_multiple_of(array.stripe().0)
}

/// The sectors in front of the snapshots, and behind the last home, that superblocks of the length
/// `superblock` and the roots take. On an array with parity both are whole stripes.
pub(super) fn ends(superblock: Sectors, columns: Option<Geometry>) -> (u64, u64) {
    let both = superblock.0 + ROOT_SECTORS.0;
    match columns {
        Some(columns) if columns.parity > 0 => {
            let len = both.next_multiple_of(columns.stripe().0);
            (len, len)
        }
        _ => (both, both),
    }
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
