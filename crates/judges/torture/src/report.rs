//! The result of a history: its counts, or a broken promise.

use std::fmt;

use manylogs::Phase;

use crate::tally::Tally;

/// Counters of a history and its distinct crash states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts, without the states, which other histories may have seen as well.
    pub tally: Tally,
    /// Crash states: a hash of image and phase, and the phase.
    pub states: Vec<(u64, Phase)>,
}

/// A broken promise, described in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub(crate) String);

impl Violation {
    /// Reports that `what` does not hold.
    pub fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}
