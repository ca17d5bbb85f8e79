//! Activity of the drive's mechanism during a run.

use manylogs_disk::Counters;
use serde::Serialize;

use crate::stats::round3;

/// Activity of the drive during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DriveDid {
    /// Number of reads, writes and flushes that the drive received.
    pub commands: u64,
    /// Accesses that moved the arm or changed the head.
    pub seeks: u64,
    /// Rotational latency: time spent waiting for the first sector of an access, in revolutions.
    pub revolutions_waited: f64,
    /// Revolutions lost for each sync: the rotational latency, less that of the stream alone for as
    /// many bytes, divided by the number of syncs.
    pub revolutions_lost_per_sync: f64,
    /// Share of time during which the mechanism worked on commands.
    pub busy_percent: f64,
}

impl DriveDid {
    /// The activity between two readings of the counters, `seconds` apart. For several drives the
    /// time counts once for each.
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
