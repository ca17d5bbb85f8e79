//! Placement near the head (seed 000 section III-D): a record goes to the log nearest to the head,
//! which is where the last request that was not logged ended.

use manylogs_block::{Lba, Sectors};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Logs, Placement};

/// Number of logs on either side that are tried first.
const NEIGHBOURS: u32 = 16;

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

/// The open log nearest to `head` for which `ready` holds.
pub(crate) fn nearest(logs: &Logs, head: Lba, ready: impl Fn(LogId) -> bool) -> Option<LogId> {
    let split = logs.count_until(head);
    let ready = |id: &LogId| ready(*id);
    // One of the neighbours nearly always has room, and a narrow range is cheaper to search.
    let near = split.saturating_sub(NEIGHBOURS)..split.saturating_add(NEIGHBOURS);
    let below = logs.open_in(near.start..split).rev().find(ready);
    let below = below.or_else(|| logs.open_in(..near.start).rev().find(ready));
    let above = logs.open_in(split..near.end).find(ready);
    let above = above.or_else(|| logs.open_in(near.end..).find(ready));
    let distance = |id: LogId| {
        let tail = logs.get(id).map_or(Sectors(0), |log| log.used());
        (logs.region(id).start + tail).distance(head)
    };
    match (below, above) {
        (Some(a), Some(b)) => Some(if distance(a) <= distance(b) { a } else { b }),
        (one, other) => one.or(other),
    }
}

/// The empty log farthest from `head`: full hot logs are moved there.
pub(crate) fn farthest_empty(logs: &Logs, head: Lba, except: LogId) -> Option<LogId> {
    let empty = |id: &LogId| {
        let unused =
            |log: &manylogs_logstore::Log| log.is_empty() && !log.is_busy() && !log.is_retired();
        *id != except && logs.get(*id).is_none_or(unused)
    };
    let (first, last) = (logs.open_in(..).find(empty), logs.open_in(..).rev().find(empty));
    let distance = |id: &LogId| logs.region(*id).start.distance(head);
    first.into_iter().chain(last).max_by_key(distance)
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
}
