//! The table of a drive's power and of its spindle's starts, and the defaults without one.

use manylogs_block::{Nanos, PowerTimes};
use serde::{Deserialize, Serialize};

use super::check::Check;
use super::{Profile, ProfileError, Sources};

/// Where the defaults come from.
const USUAL: &str = "default: recalled of nearline drives of 7,200 rpm";
const SECONDS_AN_HOUR: f64 = 3600.0;

/// Power by state, and what starts of the spindle cost.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PowerTable {
    /// Watts at work.
    pub active_w: f64,
    /// Watts without work, the spindle turning.
    pub idle_w: f64,
    /// Watts in standby.
    pub standby_w: f64,
    /// Mean watts while the spindle starts.
    pub spin_up_w: f64,
    /// Seconds from standby until the drive reads and writes.
    pub spin_up_s: f64,
    /// Starts of the spindle that the drive is made for.
    pub starts_max: u64,
    /// Sources of the numbers above.
    pub source: Sources,
}

impl Default for PowerTable {
    fn default() -> Self {
        let keys = ["active_w", "idle_w", "standby_w", "spin_up_w", "spin_up_s", "starts_max"];
        Self {
            active_w: 8.0,
            idle_w: 5.0,
            standby_w: 0.9,
            spin_up_w: 20.0,
            spin_up_s: 10.0,
            starts_max: 50_000,
            source: keys.map(|key| (key.to_owned(), USUAL.to_owned())).into(),
        }
    }
}

impl PowerTable {
    /// Time from standby until the drive reads and writes.
    #[must_use]
    pub fn spin_up(&self) -> Nanos {
        Nanos::from_secs_f64(self.spin_up_s)
    }

    /// What a drive spent that was in its states for these times.
    #[must_use]
    pub fn watt_hours(&self, times: &PowerTimes) -> f64 {
        let spent = [
            (self.active_w, times.active),
            (self.idle_w, times.idle),
            (self.spin_up_w, times.spin_up),
            (self.standby_w, times.standby),
        ];
        spent.iter().map(|(watts, time)| watts * time.as_secs_f64()).sum::<f64>() / SECONDS_AN_HOUR
    }
}

impl Profile {
    /// Power and starts: from the profile, or the usual ones.
    #[must_use]
    pub fn power(&self) -> PowerTable {
        self.power.clone().unwrap_or_default()
    }
}

pub(super) fn check(check: &Check<'_>, profile: &Profile) -> Result<(), ProfileError> {
    let Some(power) = &profile.power else { return Ok(()) };
    check.within(power.standby_w, 0.0, 20.0, "power.standby_w")?;
    check.within(power.idle_w, power.standby_w, 50.0, "power.idle_w")?;
    check.within(power.active_w, power.idle_w, 100.0, "power.active_w")?;
    check.within(power.spin_up_w, power.idle_w, 200.0, "power.spin_up_w")?;
    check.within(power.spin_up_s, 0.1, 300.0, "power.spin_up_s")?;
    check.that(power.starts_max > 0, "power.starts_max", "expected a number from 1 on")?;
    // Of a whole profile this was checked with all other tables.
    let named = PowerTable::default().source;
    match named.keys().find(|key| !power.source.contains_key(*key)) {
        Some(key) => Err(check.no_source(&format!("power.{key}"), key)),
        None => Ok(()),
    }
}
