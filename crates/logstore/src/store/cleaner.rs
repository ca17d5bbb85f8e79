//! What is cleaned next: the policy of whoever uses the store.

use crate::LogId;

use super::Store;

/// How a log is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// What counts moves to another log as it is ([`Store::relocate`]). Any log can be emptied so,
    /// in any order.
    Move {
        /// The log that becomes empty.
        from: LogId,
        /// An empty log.
        to: LogId,
    },
    /// What counts is appended again as the newest versions ([`Store::renewal`]). Where the oldest
    /// log is emptied so, the floor can rise behind it ([`Store::oldest_needed`]).
    Renew(LogId),
}

/// Chooses what to clean.
pub trait Cleaner {
    /// The next thing to do; none if nothing is worth it now.
    fn next(&mut self, store: &Store) -> Option<Job>;
}
