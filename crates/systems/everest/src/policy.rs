//! When a write is off-loaded, and when off-loaded ranges are brought home.

use manylogs_block::Nanos;

use crate::lender::Load;

/// When to off-load. Under each policy, writes over off-loaded ranges go to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// While a request would wait for longer than `base` at the base volume, and for less than
    /// `store` at a store.
    Wait {
        /// Threshold of the base volume.
        base: Nanos,
        /// Threshold of a store.
        store: Nanos,
    },
    /// While the base volume has more than `base` requests in flight, and a store's disk less than
    /// `store` (the Everest paper, section 3.2.2).
    Counts {
        /// Threshold of the base volume.
        base: u64,
        /// Threshold of a store.
        store: u64,
    },
    /// Every write.
    Always,
    /// None.
    Never,
}

impl Policy {
    /// The paper's thresholds.
    pub const PAPER: Self = Self::Counts { base: 32, store: 32 };

    /// The default thresholds: about three requests of a disk. `manylogs episodes` shows the effect
    /// of others.
    pub const DEFAULT: Self =
        Self::Wait { base: Nanos::from_millis(15), store: Nanos::from_millis(15) };

    /// Whether the base volume is over its threshold.
    pub(crate) fn is_over(self, base: Load) -> bool {
        match self {
            Self::Wait { base: most, .. } => base.wait > most,
            Self::Counts { base: most, .. } => base.in_flight > most,
            Self::Always => true,
            Self::Never => false,
        }
    }

    /// Whether the base volume has no threshold.
    pub(crate) const fn is_always_over(self) -> bool {
        matches!(self, Self::Always)
    }

    /// Whether a store is under its threshold, and less busy than the base volume.
    pub(crate) fn is_under(self, store: Load, base: Load) -> bool {
        match self {
            Self::Wait { store: least, .. } => store.wait < least && store.wait < base.wait,
            Self::Counts { store: least, .. } => {
                store.in_flight < least && store.in_flight < base.in_flight
            }
            Self::Always => true,
            Self::Never => false,
        }
    }

    /// The number by which stores are compared: less is better. `pace` is how long the store takes
    /// for a write besides the wait.
    pub(crate) const fn key(self, load: Load, pace: Nanos) -> u64 {
        match self {
            Self::Wait { .. } => load.wait.0 + pace.0,
            _ => load.in_flight,
        }
    }

    /// Whether the base volume has time for reclaiming.
    pub(crate) fn may_reclaim(self, base: Load) -> bool {
        matches!(self, Self::Always | Self::Never) || !self.is_over(base)
    }
}
