//! Which segment takes the next record of clients: the tail of the log.

use manylogs_block::Sectors;
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Device, Logs, Placement};

use crate::heaps::Heaps;
use crate::limit::DRIVES_MOST;

/// Stays with the segment at the tail as long as it takes records. Then comes the next empty
/// segment of the same drive in order of address. If the drive has none left, one follows of the
/// next drive, or of the drive that has most empty segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) at: LogId,
    /// Segments of each drive.
    pub(crate) per_drive: u32,
    /// Segments that take moved content, not clients' records.
    pub(crate) heaps: Heaps,
    /// The link that leaves: none of its segments is taken.
    pub(crate) leaving: Option<Device>,
    /// Whether the tail goes to the drive with most empty segments, not to the next in order.
    pub(crate) to_most: bool,
}

impl Tail {
    /// All segments but the one at the tail: those of its drive that follow it, those before it,
    /// and then those of the other drives, in the order of the chain.
    pub(crate) fn around(self, count: usize) -> impl Iterator<Item = LogId> {
        let count: u32 = manylogs_block::narrow(count);
        let begin = self.at.0 / self.per_drive * self.per_drive;
        let end = begin + self.per_drive;
        let own = (self.at.0 + 1..end).chain(begin..self.at.0);
        own.chain(end..count).chain(0..begin).map(LogId)
    }
}

impl Tail {
    /// Whether the tail may move to this segment.
    fn is_free(&self, logs: &Logs, id: LogId) -> bool {
        let leaves = self.leaving == Some(logs.device(id));
        logs.is_blank(id) && !self.heaps.contains(id) && !leaves
    }

    /// The next segment that takes a record of `needed`.
    pub(crate) fn next(&self, logs: &Logs, needed: Sectors) -> Option<LogId> {
        let free = |id: &LogId| self.is_free(logs, *id) && logs.takes(*id, needed);
        let first = self.around(logs.count()).find(free)?;
        let drive = |id: LogId| id.0 / self.per_drive;
        if !self.to_most || drive(first) == drive(self.at) {
            return Some(first);
        }
        let mut counts = [0; DRIVES_MOST];
        for id in self.around(logs.count()).filter(free) {
            if let Some(count) = counts.get_mut(drive(id) as usize) {
                *count += 1;
            }
        }
        let most = counts.iter().copied().max()?;
        let of_most = |id: &LogId| counts.get(drive(*id) as usize) == Some(&most);
        self.around(logs.count()).filter(free).find(of_most)
    }
}

impl Placement for Tail {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let takes = |id: &LogId| logs.takes(*id, needed);
        if takes(&self.at) && ready(self.at) {
            return Some(self.at);
        }
        // The next segment or none: if one that is not ready were passed over, the tail would leave
        // its drive too early.
        let next = self.next(logs, needed);
        // If no empty segment is left, because segments failed or cleaning took the last ones, any
        // segment with room serves.
        let next = next.or_else(|| self.around(logs.count()).find(takes));
        next.filter(|id| ready(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_goes_round_its_drive_and_then_on() {
        let order = |at| {
            let heaps = Heaps::default();
            let tail = Tail { at: LogId(at), per_drive: 3, heaps, leaving: None, to_most: false };
            tail.around(9).map(|log| log.0).collect::<Vec<_>>()
        };
        assert_eq!(order(4), [5, 3, 6, 7, 8, 0, 1, 2]);
        assert_eq!(order(8), [6, 7, 0, 1, 2, 3, 4, 5]);
    }
}
