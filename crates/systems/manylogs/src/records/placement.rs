//! Placement near the head (the Manylogs paper, section III-D): a record goes to the log nearest to
//! the head, i.e. to the end of the last request that was not logged. On a drive-managed shingled
//! drive one log is filled before the next is begun: records in a row are a stream to the drive,
//! while scattered ones cost the cleaning of a band later.

use manylogs_block::{Lba, Sectors};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Device, Logs, Placement};

use crate::records::own::Own;

/// Number of logs on either side that are tried first.
const NEIGHBOURS: u32 = 16;
/// A log counts as near a head if it is at most this many log regions away.
const REGIONS_NEAR: u32 = 3;

/// Placement of the paper: the log nearest to the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearHead {
    /// The end of the last request that was not logged.
    pub(crate) head: Lba,
}

impl Placement for NearHead {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let takes = |id: LogId| logs.takes(id, needed) && ready(id);
        nearest(logs, self.head, takes).or_else(|| {
            let distance = |id: &LogId| logs.region(*id).start.distance(self.head);
            logs.ids().filter(|id| takes(*id)).min_by_key(distance)
        })
    }
}

/// Placement on a shingled drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    /// The log of the last record.
    pub(crate) last: Option<LogId>,
    /// The head as in [`NearHead`]: the next log is near it.
    pub(crate) head: Lba,
}

impl Placement for Filling {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let takes = |id: LogId| logs.takes(id, needed) && ready(id);
        let is_empty = |id: LogId| logs.get(id).is_none_or(manylogs_logstore::Log::is_empty);
        self.last
            .filter(|id| takes(*id))
            .or_else(|| nearest(logs, self.head, |id| is_empty(id) && takes(id)))
            .or_else(|| NearHead { head: self.head }.choose(logs, needed, ready))
    }
}

/// Placement on an array: the log nearest to the head of the column that a record disturbs least. A
/// log far from its column's head is worse than another column. So all columns are first tried for
/// a log near their heads. A slow column is worse than a far log: a record there waits for longer
/// than any seek takes.
#[derive(Clone, Debug)]
pub(crate) struct OnColumns {
    /// The columns, the best one first, with the position of each head.
    pub(crate) order: Vec<(usize, Lba)>,
    /// How many of them are not slow: the first ones.
    pub(crate) fast: usize,
}

impl OnColumns {
    /// The log of a column that is nearest to the column's head. Logs are numbered region by
    /// region.
    fn on(
        &self,
        logs: &Logs,
        (column, head): (usize, Lba),
        takes: &dyn Fn(LogId) -> bool,
    ) -> Option<LogId> {
        let columns = self.order.len();
        nearest(logs, head, |id| id.0 as usize % columns == column && takes(id))
    }

    /// Whether `log` lies in a region near `head`.
    fn is_near(&self, logs: &Logs, head: Lba, log: LogId) -> bool {
        let at = logs.count_until(Device::default(), head);
        log.0.abs_diff(at) <= REGIONS_NEAR * u32::try_from(self.order.len()).unwrap_or(u32::MAX)
    }
}

impl Placement for OnColumns {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let takes = |id: LogId| logs.takes(id, needed) && ready(id);
        let of = |columns: &[(usize, Lba)]| {
            let log = |on: &(usize, Lba)| self.on(logs, *on, &takes);
            let near = |on: &(usize, Lba)| log(on).filter(|id| self.is_near(logs, on.1, *id));
            columns.iter().find_map(near).or_else(|| columns.iter().find_map(log))
        };
        let (fast, slow) = self.order.split_at(self.fast);
        of(fast).or_else(|| of(slow)).or_else(|| logs.ids().find(|id| takes(*id)))
    }
}

/// The placement policy of a volume, by its settings.
#[derive(Clone, Debug)]
pub(crate) enum Records {
    /// To the log nearest to the head.
    NearHead(NearHead),
    /// To one log until it is full.
    Filling(Filling),
    /// To the column that is disturbed least.
    OnColumns(OnColumns),
    /// By a caller's policy.
    Own(Own),
}

impl Placement for Records {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        match self {
            Self::NearHead(near) => near.choose(logs, needed, ready),
            Self::Filling(filling) => filling.choose(logs, needed, ready),
            Self::OnColumns(columns) => columns.choose(logs, needed, ready),
            Self::Own(own) => own.choose(logs, needed, ready),
        }
    }
}

/// The open log nearest to `head` for which `ready` holds.
pub(crate) fn nearest(logs: &Logs, head: Lba, ready: impl Fn(LogId) -> bool) -> Option<LogId> {
    let distance = |id: LogId| {
        let tail = logs.get(id).map_or(Sectors(0), |log| log.used());
        (logs.region(id).start + tail).distance(head)
    };
    match around(logs, head, ready) {
        (Some(a), Some(b)) => Some(if distance(a) <= distance(b) { a } else { b }),
        (one, other) => one.or(other),
    }
}

/// The open logs nearest to `head` for which `ready` holds: one that begins at it or before, and
/// one that begins behind it.
pub(crate) fn around(
    logs: &Logs,
    head: Lba,
    ready: impl Fn(LogId) -> bool,
) -> (Option<LogId>, Option<LogId>) {
    let split = logs.count_until(Device::default(), head);
    let ready = |id: &LogId| ready(*id);
    // One of the neighbours nearly always has room, and a narrow range is cheaper to search.
    let near = split.saturating_sub(NEIGHBOURS)..split.saturating_add(NEIGHBOURS);
    let below = logs.open_in(near.start..split).rev().find(ready);
    let below = below.or_else(|| logs.open_in(..near.start).rev().find(ready));
    let above = logs.open_in(split..near.end).find(ready);
    let above = above.or_else(|| logs.open_in(near.end..).find(ready));
    (below, above)
}

/// Least number of logs between a full log and the one that takes its content: the same hot place
/// will fill nearer ones next.
const COLD_LOGS_AWAY: u32 = 8;

/// The empty log to which the content of the full log `from` moves: the nearest one that is not
/// among its neighbours, or else the farthest. A near one is better, because clients that read the
/// content also read around `from`, and because the head moves to and fro during the move.
pub(crate) fn cold_empty(logs: &Logs, from: LogId) -> Option<LogId> {
    let empty = |id: &LogId| {
        let unused =
            |log: &manylogs_logstore::Log| log.is_empty() && !log.is_busy() && !log.is_retired();
        *id != from && logs.get(*id).is_none_or(unused)
    };
    let distance = |id: &LogId| logs.region(*id).start.distance(logs.region(from).start);
    let below = logs.open_in(..=from.0.saturating_sub(COLD_LOGS_AWAY)).rev();
    let above = logs.open_in(from.0.saturating_add(COLD_LOGS_AWAY)..);
    let far = |id: &LogId| id.0.abs_diff(from.0) >= COLD_LOGS_AWAY && empty(id);
    let nearest = below.filter(far).take(1).chain(above.filter(far).take(1)).min_by_key(distance);
    nearest.or_else(|| {
        let (first, last) = (logs.open_in(..).find(empty), logs.open_in(..).rev().find(empty));
        first.into_iter().chain(last).max_by_key(distance)
    })
}

#[cfg(test)]
mod tests {
    use manylogs_block::Extent;
    use manylogs_logstore::{Log, RecordShape};

    use super::*;

    #[test]
    fn the_near_head_log_is_the_nearest_with_room_on_either_side() {
        let regions: Vec<Extent> = (0..5).map(|i| Extent::new(i * 1000 + 900, 100)).collect();
        let mut logs = Logs::new(&regions, Sectors(10), RecordShape::in_log(Sectors(1)));
        let nearest = |logs: &Logs, head| super::nearest(logs, Lba(head), |_| true).unwrap().0;
        assert_eq!(nearest(&logs, 0), 0);
        assert_eq!(nearest(&logs, 1300), 0);
        assert_eq!(nearest(&logs, 1500), 1);
        assert_eq!(nearest(&logs, 9999), 4);
        logs.with(LogId(1), Log::retire);
        assert_eq!(nearest(&logs, 1899), 0);
        assert_eq!(nearest(&logs, 2500), 2);
        assert_eq!(super::nearest(&logs, Lba(0), |_| false), None);
    }

    #[test]
    fn a_log_is_filled_before_the_next_empty_one_is_begun() {
        let regions: Vec<Extent> = (0..5).map(|i| Extent::new(i * 1000 + 900, 100)).collect();
        let mut logs = Logs::new(&regions, Sectors(10), RecordShape::in_log(Sectors(1)));
        let choose = |logs: &Logs, last, head| {
            let filling = Filling { last, head: Lba(head) };
            filling.choose(logs, Sectors(8), &|_| true).map(|id| id.0)
        };
        assert_eq!(choose(&logs, None, 2000), Some(1), "the nearest");
        assert_eq!(choose(&logs, Some(LogId(3)), 0), Some(3), "not the nearest to the head");
        logs.with(LogId(3), Log::retire);
        assert_eq!(choose(&logs, Some(LogId(3)), 4000), Some(4), "another, as it takes none");
        let filled = |id: u32| id == 0;
        let only = Filling { last: None, head: Lba(4000) };
        assert_eq!(only.choose(&logs, Sectors(8), &|id| filled(id.0)), Some(LogId(0)));
    }

    #[test]
    fn a_far_log_of_a_fast_column_is_better_than_a_near_one_of_a_slow_column() {
        let regions: Vec<Extent> = (0..40).map(|i| Extent::new(i * 1000 + 900, 100)).collect();
        let mut logs = Logs::new(&regions, Sectors(10), RecordShape::in_log(Sectors(1)));
        // Of two columns the first has no room near the heads.
        for full in (0..16).step_by(2) {
            logs.with(LogId(full), Log::retire);
        }
        let choose = |fast| {
            let order = vec![(0, Lba(2000)), (1, Lba(2000))];
            OnColumns { order, fast }.choose(&logs, Sectors(8), &|_| true).map(|id| id.0)
        };
        assert_eq!(choose(2), Some(1), "near, on the other column");
        assert_eq!(choose(1), Some(16), "far, because the other column is slow");
    }

    #[test]
    fn a_full_log_moves_near_but_not_among_its_neighbours() {
        let regions: Vec<Extent> = (0..30).map(|i| Extent::new(i * 1000 + 900, 100)).collect();
        let mut logs = Logs::new(&regions, Sectors(10), RecordShape::in_log(Sectors(1)));
        let cold = |logs: &Logs, from| cold_empty(logs, LogId(from)).map(|id| id.0);
        assert_eq!(cold(&logs, 3), Some(11));
        assert_eq!(cold(&logs, 28), Some(20));
        for used in [11, 12] {
            logs.with(LogId(used), Log::retire);
        }
        assert_eq!(cold(&logs, 3), Some(13), "the next one that is empty");
        let few: Vec<Extent> = regions[..5].to_vec();
        let few = Logs::new(&few, Sectors(10), RecordShape::in_log(Sectors(1)));
        assert_eq!(cold(&few, 1), Some(4), "the farthest, where all are neighbours");
        let one = Logs::new(&regions[..1], Sectors(10), RecordShape::in_log(Sectors(1)));
        assert_eq!(cold(&one, 0), None);
    }
}
