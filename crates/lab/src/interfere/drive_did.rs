//! What the mechanism did in a run.

use manylogs_disk::Counters;
use serde::Serialize;

use crate::stats::round3;

/// What the drive did while it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DriveDid {
    /// Reads, writes and flushes that it was sent.
    pub commands: u64,
    /// Accesses for which the arm moved or the head changed.
    pub seeks: u64,
    /// Time in which the first sector of an access was waited for, in revolutions.
    pub revolutions_waited: f64,
    /// The same, less what the stream alone would have waited for as many bytes, a sync.
    pub revolutions_lost_per_sync: f64,
    /// Share of the time in which the mechanism worked for commands.
    pub busy_percent: f64,
}

impl DriveDid {
    /// The difference of two readings of a drive's counters, `seconds` apart.
    pub(super) fn between(
        before: &Counters,
        after: &Counters,
        seconds: f64,
        revolution_us: f64,
    ) -> Self {
        let commands = |c: &Counters| c.reads + c.writes + c.flushes;
        let waited = after.rotation.0 - before.rotation.0;
        let busy = after.busy.0 - before.busy.0;
        Self {
            commands: commands(after) - commands(before),
            seeks: after.seeks - before.seeks,
            revolutions_waited: round3(waited as f64 / 1e3 / revolution_us),
            revolutions_lost_per_sync: 0.0,
            busy_percent: round3(busy as f64 / 1e7 / seconds),
        }
    }
}
