//! When writes of a busy volume go to stores, by name.

use manylogs_block::{Nanos, to_usize};
use manylogs_everest::{OffloadOptions, Policy};

/// What is never reclaimed waits for so long.
const NEVER: Nanos = Nanos::from_secs(1_000_000);

/// When writes go to the stores of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadPolicy {
    /// There are no stores.
    None,
    /// By counts of requests in flight.
    Counts(Counts),
    /// By the time that a request would wait.
    Ours(OursOptions),
    /// Always.
    Always,
    /// Always, and nothing is reclaimed (the paper, section 4.1).
    Kept,
}

/// What the paper's policy is made of, for a volume of several drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Requests in flight at the base volume from which on it off-loads.
    pub base: u64,
    /// Requests in flight at a store's volume from which on it takes no more.
    pub store: u64,
    /// Ranges that go home together.
    pub together: u64,
}

impl Counts {
    /// The paper's: 32 in flight at the base, 32 at a store, 256 brought home together.
    pub const PAPER: Self = Self { base: 32, store: 32, together: 256 };
}

/// What the default policy is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OursOptions {
    /// Threshold of the base and of the stores.
    pub threshold: Nanos,
    /// See [`OffloadOptions::calm`].
    pub calm: Nanos,
    /// See [`OffloadOptions::together`].
    pub together: usize,
}

impl Default for OursOptions {
    fn default() -> Self {
        let OffloadOptions { policy, calm, together, .. } = OffloadOptions::default();
        let threshold = match policy {
            Policy::Wait { base, .. } => base,
            _ => Nanos::from_millis(15),
        };
        Self { threshold, calm, together }
    }
}

impl OffloadPolicy {
    /// By the paper's counts.
    pub const PAPER: Self = Self::Counts(Counts::PAPER);

    /// Name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Counts(_) => "everest-paper",
            Self::Ours(_) => "wait",
            Self::Always => "always",
            Self::Kept => "always-kept",
        }
    }

    /// The policy of this name, with its usual settings.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let ours = Self::Ours(OursOptions::default());
        let all = [Self::None, Self::PAPER, ours, Self::Always, Self::Kept];
        all.into_iter().find(|policy| policy.name() == name)
    }

    /// The options of a client whose volume has one drive in place of `drives`: counts are shared
    /// out among these.
    pub(crate) fn options(self, drives: u64) -> OffloadOptions {
        let default = OffloadOptions::default();
        match self {
            Self::None => default,
            Self::Ours(OursOptions { threshold, calm, together }) => {
                let policy = Policy::Wait { base: threshold, store: threshold };
                OffloadOptions { policy, calm, together, ..default }
            }
            Self::Counts(Counts { base, store, together }) => {
                let each = |count: u64| count.div_ceil(drives);
                let policy = Policy::Counts { base: each(base), store: each(store) };
                let together = to_usize(each(together));
                OffloadOptions { policy, together, calm: Nanos(0), ..default }
            }
            Self::Always => OffloadOptions { policy: Policy::Always, ..default },
            Self::Kept => {
                OffloadOptions { policy: Policy::Always, reclaim_every: NEVER, ..default }
            }
        }
    }
}
