//! An array that the volume takes for one drive: what the knowledge of its shape is worth.

use serde::Serialize;

use super::{AdvisedGain, decision};
use crate::results::{Decision, Replay};
use crate::table::span;

/// The advised policy on the same array if the volume took it for one drive.
#[derive(Clone, Debug, Serialize)]
pub struct OneDrive {
    /// The policy.
    pub policy: String,
    /// Whether to use the volume then.
    pub decision: Decision,
    /// Its gain over the plain array then.
    pub gain: AdvisedGain,
}

impl OneDrive {
    /// Judges `policy` in `replay`, whose array does not tell its shape. `None` if it is not there.
    pub(super) fn of(replay: &Replay, policy: &str) -> Option<Self> {
        let result = replay.policies.named(policy)?;
        let gain = result.gain.unwrap_or_default();
        Some(Self {
            policy: policy.to_owned(),
            decision: decision(replay, result),
            gain: gain.into(),
        })
    }

    pub(super) fn sentence(&self) -> String {
        let figures = [
            ("data is durable", self.gain.durable_mean),
            ("the slowest hundredth of it", self.gain.durable_p99),
            ("reads", self.gain.reads_mean),
            ("streams", self.gain.stream_mb_s),
        ];
        let figures: Vec<String> = figures
            .into_iter()
            .filter_map(|(what, gain)| Some(format!("{what} {} times as fast", span(&gain?))))
            .collect();
        format!(
            "with the array taken for one drive (`placement=ignored`), as `{}`: {}",
            self.policy,
            figures.join(", ")
        )
    }
}
