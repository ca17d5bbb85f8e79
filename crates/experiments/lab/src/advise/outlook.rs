//! How full the logs get, and how long it takes to empty them.

use manylogs::LogPlacement;
use manylogs_block::Sectors;
use serde::Serialize;

use crate::replay::Outcome;
use crate::results::{PolicyResult, Replay};
use crate::stats::round3;
use crate::table::{bytes, duration};

/// Hours from the end of the default quiet hours (06:00) to their next beginning (22:00).
const HOURS: f64 = 16.0;

/// How full the logs get in a day that is as busy as the trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LogsOutlook {
    /// Space in all logs.
    pub space_bytes: u64,
    /// How full they are, in per cent, when the quiet hours begin, 16 hours after the last ones.
    pub full_percent_before_quiet_hours: f64,
    /// How long it then takes the idle drive to empty them.
    pub checkpoint_seconds: f64,
}

impl LogsOutlook {
    /// The outlook for a policy that was replayed; `None` if it logged nothing.
    #[must_use]
    pub fn of(replay: &Replay, outcome: &Outcome, result: &PolicyResult) -> Option<Self> {
        let device = Sectors::from_bytes_ceil(replay.drive_details.capacity_bytes);
        let fitted = outcome.policy.on(device).ok()?;
        let config = fitted.config()?;
        let LogPlacement::EveryGroup(group) = config.placement else { return None };
        let space = Sectors(device.0 / group.0.max(1) * config.log.0).bytes();
        let checkpoint = result.checkpoint.as_ref()?;
        if result.record_bytes == 0 || space == 0 {
            return None;
        }
        let rate = result.record_bytes as f64 / result.simulated_seconds.max(1e-9);
        let share = rate * HOURS * 3600.0 / space as f64;
        // A checkpoint starts by itself when the logs are nearly full.
        let logged = share.min(config.watermark) * space as f64;
        let seconds = checkpoint.simulated_seconds / result.record_bytes as f64 * logged;
        Some(Self {
            space_bytes: space,
            full_percent_before_quiet_hours: round3(share * 100.0),
            checkpoint_seconds: round3(seconds),
        })
    }

    pub(super) fn sentence(&self) -> String {
        format!(
            "were every hour as busy as this trace, the logs ({}) would be {:.1} % full after {} \
             hours, and the idle drive would need {} to empty them",
            bytes(self.space_bytes),
            self.full_percent_before_quiet_hours.min(100.0),
            HOURS,
            duration(self.checkpoint_seconds * 1e6)
        )
    }

    pub(super) fn warning(&self) -> Option<String> {
        let full = self.full_percent_before_quiet_hours;
        (full > 90.0).then(|| {
            format!(
                "were every hour as busy as this trace, the logs would be full after {:.1} hours, \
                 and be emptied in busy hours",
                HOURS * 90.0 / full
            )
        })
    }
}

/// A sentence on what a shingled drive has to clean for an hour as busy as the trace, without the
/// volume and with it. `None` for other drives. Given because a replay of minutes ends before such
/// a drive stalls.
pub(super) fn cleaning_sentence(plain: &PolicyResult, with: &PolicyResult) -> Option<String> {
    let cache = plain.smr.as_ref()?.cache_bytes;
    let bands_an_hour = |result: &PolicyResult| {
        let bands = result.smr.as_ref().map_or(0, |smr| smr.dirty_bands + smr.bands_cleaned);
        bands as f64 * 3600.0 / result.simulated_seconds.max(1e-9)
    };
    Some(format!(
        "an hour as busy as this trace leaves the drive {:.0} bands to clean, each some 30 MB in \
         some 0.6 s, and with the volume {:.0}; a drive that is not idle for as long fills its \
         persistent cache ({}) in the end, and stalls",
        bands_an_hour(plain),
        bands_an_hour(with),
        bytes(cache)
    ))
}
