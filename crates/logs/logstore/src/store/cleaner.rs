//! Choice of the log to clean next: a policy of the system that uses the store.

use crate::LogId;

use super::Store;

/// Way in which a log is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Live versions move unchanged to another log ([`Store::relocate`]). Logs can be emptied in
    /// this way in any order.
    Move {
        /// The log that becomes empty.
        from: LogId,
        /// An empty log.
        to: LogId,
    },
    /// Live versions are appended again as the newest ones ([`Store::renewal`]). When the oldest
    /// log is emptied in this way, the floor can rise ([`Store::oldest_needed`]).
    Renew(LogId),
}

/// Chooses what to clean.
pub trait Cleaner {
    /// The next job; `None` if no log is worth cleaning now.
    fn next(&mut self, store: &Store) -> Option<Job>;
}
