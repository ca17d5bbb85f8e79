//! What becomes of a load that is more than the drive can do.

use std::sync::Arc;

use serde::Serialize;

use super::search::plain_drives;
use crate::replay::{NamedPolicy, Plan, Progress, ReplayError, highest_rate, run};
use crate::stats::round3;

/// A load that the plain drive cannot do at the rate that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TooMuch {
    /// The rate that was asked for, in times of the recorded one.
    pub asked: f64,
    /// The highest rate that the plain drive can do with its cache on or off, whichever is higher,
    /// at which settings are judged.
    pub judged: f64,
    /// Whether the drive can do the rate that was asked for with the volume that is judged. `None`
    /// before that is known.
    pub volume_keeps_up: Option<bool>,
}

impl TooMuch {
    /// Looks whether the plain drive, with its cache on or off, can do the load of `plan`. If not,
    /// finds the rate that it can do.
    ///
    /// # Errors
    /// As the replays themselves.
    pub fn of(plan: &Plan, progress: &Arc<Progress>) -> Result<Option<Self>, ReplayError> {
        let probe = Plan { checkpoint_after: false, ..plan.clone() };
        let plain = plain_drives(plan);
        for policy in &plain {
            if !run(&probe, policy, progress)?.overloaded {
                return Ok(None);
            }
        }
        let mut judged = 0.0_f64;
        for policy in &plain {
            judged = judged.max(highest_rate(&probe, policy, progress)?.factor);
        }
        Ok(Some(Self { asked: plan.rate, judged, volume_keeps_up: None }))
    }

    /// Looks whether the drive can do the rate that was asked for under `policy`.
    ///
    /// # Errors
    /// As the replay itself.
    pub fn with_volume(
        self,
        plan: &Plan,
        policy: &str,
        progress: &Arc<Progress>,
    ) -> Result<Self, ReplayError> {
        let asked = Plan { rate: self.asked, checkpoint_after: false, ..plan.clone() };
        let Ok(policy) = NamedPolicy::parse(policy) else { return Ok(self) };
        let overloaded = run(&asked, &policy, progress)?.overloaded;
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
