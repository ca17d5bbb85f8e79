//! Counters of the volume, beside those of its store.

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) logged_writes: u64,
    pub(crate) logged_sectors: u64,
    pub(crate) bypassed_writes: u64,
    pub(crate) log_swaps: u64,
    pub(crate) swapped_sectors: u64,
    pub(crate) checkpoints: u64,
    pub(crate) snapshots: u64,
    pub(crate) redirected_reads: u64,
    pub(crate) starved_writes: u64,
    /// Small writes that began to wait for the neighbours with which they go home.
    pub(crate) gathered_writes: u64,
    /// Small writes that went home because the adaptive threshold had fallen.
    pub(crate) sent_home_writes: u64,
    pub(crate) logged_since_checkpoint: u64,
    pub(crate) logged_sectors_since_checkpoint: u64,
    pub(crate) kept_extents: u64,
    pub(crate) lost_extents: u64,
    /// Number in the last checkpoint only.
    pub(crate) unread_extents: u64,
    pub(crate) failed_checkpoints: u64,
}
