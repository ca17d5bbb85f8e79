//! Loads that are more than the drive can do.

use serde::Serialize;

use super::ask::{Ask, Halt, Replays};
use super::brief::Brief;
use super::search::plain_drives;
use crate::replay::{NamedPolicy, Plan, highest_rate_by};
use crate::stats::round3;

/// A load that the plain drive cannot do at the rate that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TooMuch {
    /// The requested rate, as a multiple of the recorded one.
    pub asked: f64,
    /// The highest rate that the plain drive can do with its cache on or off, whichever is higher,
    /// at which settings are judged.
    pub judged: f64,
    /// Whether the drive can do the requested rate with the judged volume. `None` while that is
    /// unknown.
    pub volume_keeps_up: Option<bool>,
}

impl TooMuch {
    /// Checks whether the plain drive, with its cache on or off, can do the load of `plan`. If not,
    /// finds the rate that it can do.
    ///
    /// # Errors
    /// Those of the replays.
    pub fn of(plan: &Plan, replays: &mut dyn Replays) -> Result<Option<Self>, Halt> {
        let plain = plain_drives(plan);
        for policy in &plain {
            if !replayed(plan, Ask::of(plan, policy, plan.seed), replays)?.overloaded {
                return Ok(None);
            }
        }
        let mut judged = 0.0_f64;
        for policy in &plain {
            let mut probe = |rate: f64, nth: u32| {
                let seed = plan.nth_seed(nth as usize);
                let ask = Ask { rate, ..Ask::of(plan, policy, seed) };
                Ok::<_, Halt>(replayed(plan, ask, replays)?.probe())
            };
            judged = judged.max(highest_rate_by(plan.rate, plan.seeds, &mut probe)?.factor);
        }
        Ok(Some(Self { asked: plan.rate, judged, volume_keeps_up: None }))
    }

    /// Checks whether the drive can do the requested rate under `policy`.
    ///
    /// # Errors
    /// Those of the replay.
    pub fn with_volume(
        self,
        plan: &Plan,
        policy: &str,
        replays: &mut dyn Replays,
    ) -> Result<Self, Halt> {
        let Ok(policy) = NamedPolicy::parse(policy) else { return Ok(self) };
        let ask = Ask { rate: self.asked, ..Ask::of(plan, &policy, plan.seed) };
        let overloaded = replayed(plan, ask, replays)?.overloaded;
        Ok(Self { volume_keeps_up: Some(!overloaded), ..self })
    }

    pub(super) fn sentence(&self, drive: &str) -> String {
        let volume = match self.volume_keeps_up {
            Some(true) => "; with the volume it can",
            Some(false) => ", nor with the volume",
            None => "",
        };
        format!(
            "This load does not fit {drive}: at {} times the recorded rate the plain drive falls \
             further and further behind{volume}. What follows is for {} times the recorded rate, \
             about the highest that the plain drive can do.",
            round3(self.asked),
            self.judged
        )
    }
}

/// Does one replay.
fn replayed(plan: &Plan, ask: Ask, replays: &mut dyn Replays) -> Result<Brief, Halt> {
    Ok(replays.all(plan, &[ask])?.pop().unwrap_or_default())
}
