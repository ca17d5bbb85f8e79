//! A policy of a caller, in place of the volume's: which writes are logged, and where.

use std::fmt;
use std::rc::Rc;

use manylogs_block::{Extent, Lba, Sectors};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Logs, Placement};

use crate::records::placement::{NearHead, around};
use crate::volume::Volume;

/// Decides in place of the volume's own policy: see [`Volume::decided_by`].
///
/// A policy that cannot decide must tell its owner itself and still answer: the volume goes on.
pub trait OwnPolicy: fmt::Debug {
    /// Whether this write is logged; else it goes home. It is no longer than the threshold.
    fn logs(&self, write: &OwnWrite) -> bool;

    /// The log for the next record, one of `logs`. If the answer is not one of them, the volume's
    /// own policy decides.
    fn place(&self, head: Lba, logs: &LogsWithRoom<'_>) -> Option<LogId>;
}

/// A write that waits for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnWrite {
    /// The sectors to write.
    pub extent: Extent,
    /// Whether it must be durable when it is answered.
    pub fua: bool,
    /// The head: the end of the last request that was not logged.
    pub head: Lba,
}

/// The logs of a volume that can take the next record, as a view.
#[derive(Clone, Copy)]
pub struct LogsWithRoom<'a> {
    logs: &'a Logs,
    needed: Sectors,
    ready: &'a dyn Fn(LogId) -> bool,
}

impl LogsWithRoom<'_> {
    /// Number of all logs, including full ones. Logs are numbered from 0, in order of address.
    #[must_use]
    pub fn count(&self) -> usize {
        self.logs.count()
    }

    /// The place of a log; `None` if there is no log with this number.
    #[must_use]
    pub fn region(&self, log: LogId) -> Option<Extent> {
        self.exists(log).then(|| self.logs.region(log))
    }

    /// Sectors of the log that are filled; `None` if there is no log with this number.
    #[must_use]
    pub fn used(&self, log: LogId) -> Option<Sectors> {
        let used = || self.logs.get(log).map_or(Sectors(0), manylogs_logstore::Log::used);
        self.exists(log).then(used)
    }

    /// Whether the log can take the record.
    #[must_use]
    pub fn takes(&self, log: LogId) -> bool {
        self.exists(log) && self.logs.takes(log, self.needed) && (self.ready)(log)
    }

    /// The nearest logs that can take the record and count as open: one that begins at `head` or
    /// before it, and one that begins behind it.
    #[must_use]
    pub fn around(&self, head: Lba) -> (Option<LogId>, Option<LogId>) {
        around(self.logs, head, |log| self.takes(log))
    }

    /// All logs that can take the record, in order of address.
    pub fn iter(&self) -> impl Iterator<Item = LogId> + '_ {
        self.logs.ids().filter(|log| self.takes(*log))
    }

    fn exists(&self, log: LogId) -> bool {
        (log.0 as usize) < self.logs.count()
    }
}

impl fmt::Debug for LogsWithRoom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogsWithRoom").field("needed", &self.needed).finish_non_exhaustive()
    }
}

/// Placement by a caller's policy.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) policy: Rc<dyn OwnPolicy>,
    pub(crate) head: Lba,
}

impl Placement for Own {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let usual = NearHead { head: self.head }.choose(logs, needed, ready)?;
        let seen = LogsWithRoom { logs, needed, ready };
        let chosen = self.policy.place(self.head, &seen).filter(|log| seen.takes(*log));
        Some(chosen.unwrap_or(usual))
    }
}

impl Volume {
    /// From now on `policy` decides which writes up to the threshold are logged, and where records
    /// go. Earlier decisions stay, and all guarantees hold. Only the first call counts.
    pub fn decided_by(&self, policy: Rc<dyn OwnPolicy>) {
        _ = self.inner().own.set(policy);
    }
}

#[cfg(test)]
mod tests {
    use manylogs_logstore::{Log, RecordShape};

    use super::*;

    #[derive(Debug)]
    struct Always(Option<LogId>);

    impl OwnPolicy for Always {
        fn logs(&self, _: &OwnWrite) -> bool {
            true
        }

        fn place(&self, _: Lba, _: &LogsWithRoom<'_>) -> Option<LogId> {
            self.0
        }
    }

    fn logs() -> Logs {
        let regions: Vec<Extent> = (0..5).map(|i| Extent::new(i * 1000 + 900, 100)).collect();
        Logs::new(&regions, Sectors(10), RecordShape::in_log(Sectors(1)))
    }

    #[test]
    fn what_it_names_counts_if_that_log_takes_the_record() {
        let mut logs = logs();
        logs.with(LogId(3), Log::retire);
        let choose = |log: Option<u32>| {
            let policy = Rc::new(Always(log.map(LogId)));
            let own = Own { policy, head: Lba(1500) };
            own.choose(&logs, Sectors(8), &|id| id != LogId(4)).map(|id| id.0)
        };
        assert_eq!(choose(Some(0)), Some(0));
        for none_of_them in [None, Some(3), Some(4), Some(5), Some(u32::MAX)] {
            assert_eq!(choose(none_of_them), Some(1), "as the volume's own: {none_of_them:?}");
        }
    }

    #[test]
    fn the_view_shows_what_has_room_and_where() {
        let mut logs = logs();
        logs.with(LogId(1), Log::retire);
        let seen = LogsWithRoom { logs: &logs, needed: Sectors(8), ready: &|id| id != LogId(4) };
        assert_eq!(seen.iter().map(|id| id.0).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(seen.around(Lba(1950)), (Some(LogId(0)), Some(LogId(2))));
        assert_eq!(seen.around(Lba(9999)), (Some(LogId(3)), None));
        assert_eq!(seen.region(LogId(2)), Some(Extent::new(2900, 100)));
        assert_eq!((seen.used(LogId(2)), seen.used(LogId(5))), (Some(Sectors(0)), None));
        assert_eq!((seen.count(), seen.takes(LogId(1)), seen.region(LogId(9))), (5, false, None));
    }
}
