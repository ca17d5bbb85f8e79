//! The persistent cache of a shingled drive: a short load never fills it, and a drive with a full
//! cache behaves differently.

use serde::Serialize;

use super::{Advice, AdvisedGain, decision, rank};
use crate::results::{Decision, Replay};
use crate::stats::Interval;
use crate::table::span;

/// How the names of plain drives begin.
const PLAIN: &str = "nologging";
/// Gains that differ by less than this factor count as equal.
const ALIKE: f64 = 1.1;

/// The advice if the persistent cache begins in another state.
#[derive(Clone, Debug, Serialize)]
pub struct PersistentCache {
    /// Share of it that is in use when the load begins, 0 to 1.
    pub used: f64,
    /// The policy that is best then.
    pub policy: String,
    /// Whether to use the volume then.
    pub decision: Decision,
    /// What the volume gains then.
    pub gain: AdvisedGain,
    /// Whether the plain drive keeps up with the load then.
    pub plain_keeps_up: bool,
}

impl PersistentCache {
    /// Judges the best policy in `replay`, on a drive with the share `used` of its cache in use at
    /// the start.
    #[must_use]
    pub fn of(replay: &Replay, used: f64) -> Option<Self> {
        let base = replay.base()?;
        let made = replay.policies.0.iter().filter(|policy| !policy.name.starts_with(PLAIN));
        let result = made.max_by(|a, b| rank(a).total_cmp(&rank(b)))?;
        let gain = result.gain.unwrap_or_default();
        Some(Self {
            used,
            policy: result.name.clone(),
            decision: decision(replay, result),
            gain: gain.into(),
            plain_keeps_up: !base.overload.overloaded,
        })
    }

    /// Whether this differs from `advice`.
    pub(super) fn matters(&self, advice: &Advice) -> bool {
        let differ = |a: Option<Interval>, b: Option<Interval>| match (a, b) {
            (Some(a), Some(b)) => {
                let times = a.estimate / b.estimate;
                !(1.0 / ALIKE..=ALIKE).contains(&times)
            }
            _ => false,
        };
        self.decision != advice.decision
            || !self.plain_keeps_up
            || differ(self.gain.durable_mean, advice.gain.durable_mean)
            || differ(self.gain.reads_mean, advice.gain.reads_mean)
    }

    fn state(&self) -> &'static str {
        if self.used == 0.0 { "empty" } else { "full" }
    }

    /// What the decision would be.
    pub(super) fn headline(&self, advice: &Advice) -> String {
        let state = self.state();
        let use_it = format!("use it, as `{}`", self.policy);
        let then = match self.decision {
            _ if self.decision == advice.decision => {
                return format!(
                    "The same holds with a persistent cache that is {state} at the start."
                );
            }
            Decision::Use => &use_it,
            Decision::NoDifference => "it makes no difference",
            Decision::DoNotUse => "do not use it",
        };
        format!("With a persistent cache that is {state} at the start: {then}.")
    }

    /// The figures, and when the drive is in that state.
    pub(super) fn sentence(&self) -> String {
        let when = match self.state() {
            "full" => "as after more scattered writes than it could clean away",
            _ => "as after a night at rest",
        };
        let figures = [
            ("data is durable", self.gain.durable_mean),
            ("reads", self.gain.reads_mean),
            ("streams", self.gain.stream_mb_s),
        ];
        let figures: Vec<String> = figures
            .into_iter()
            .filter_map(|(what, interval)| {
                Some(format!("{what} {} times as fast", span(&interval?)))
            })
            .collect();
        let behind = if self.plain_keeps_up { "" } else { "; the plain drive cannot keep up then" };
        let (state, figures) = (self.state(), figures.join(", "));
        format!(
            "with the drive's persistent cache {state} at the start ({when}; `--smr-cache \
             {state}`), as `{}`: {figures}{behind}",
            self.policy
        )
    }
}
