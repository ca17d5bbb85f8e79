//! Advice on whether a volume helps a load on a drive, with which settings, and how certain that
//! is.
//!
//! [`search`] tries settings with seeds of its own. The best ones are then replayed from fresh
//! seeds beside the plain drive. [`Advice::of`] judges these replays only, because the best of many
//! tries looks better than it is.

mod apart;
mod ask;
mod brief;
mod caches;
mod fits;
mod one_drive;
mod outlook;
mod ranges;
mod run;
mod search;
mod shingled;
mod steps;

use serde::Serialize;
use serde_json::{Map, Value};

pub use apart::{Apart, Next};
pub use ask::{Ask, Halt, NoAsk, Replays};
pub use brief::{Brief, Part};
pub use caches::{CacheChoice, Caches};
pub use fits::TooMuch;
pub use one_drive::OneDrive;
pub use outlook::LogsOutlook;
use outlook::cleaning_sentence;
pub use ranges::{DriveRange, drive_range, plain_gain};
pub use run::{Advised, Asked, advise, fitted_policies};
pub use search::{Found, Tried, replays_at_most, search};
pub use shingled::PersistentCache;
use steps::commands;

use crate::replay::{NamedPolicy, Outcome};
use crate::results::{Decision, PolicyResult, Replay, Verdict};
use crate::stats::{Gain, Interval};
use crate::table::{factor, span};
use crate::verdict::decide;

/// The version of [`Advice`]'s structure.
pub const FORMAT: u32 = 1;
/// Reads and streams must keep this share of the plain drive's speed.
pub const KEPT_MIN: f64 = 0.99;

/// The advice with its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The version of this structure.
    pub format: u32,
    /// Warnings that concern all figures.
    pub warnings: Vec<String>,
    /// Whether to use a volume.
    pub decision: Decision,
    /// The judged policy, in the form of `replay --policy`.
    pub policy: String,
    /// Its settings that are not the defaults of `format`, in the form of `format` and `set`.
    pub settings: Map<String, Value>,
    /// Gain over the plain drive.
    pub gain: AdvisedGain,
    /// Range of `gain.durable_mean` over what the drive may be, if its profile has ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive_range: Option<DriveRange>,
    /// The plain drive that is the baseline of all gains.
    pub baseline: Option<String>,
    /// When writes had to be durable.
    pub durability: String,
    /// The drive profile's name.
    pub drive: String,
    /// The trace files.
    pub traces: Vec<String>,
    /// Number of seeds of each final replay.
    pub seeds: u32,
    /// Outlook: how full the logs get in a day.
    pub logs: Option<LogsOutlook>,
    /// How to mount file systems on the volume.
    pub mount_options: MountOptions,
    /// Reasons in words.
    pub reasons: Vec<String>,
    /// Commands that set the volume up. Empty unless the decision is to use it.
    pub commands: Vec<String>,
    /// Policies that the search tried.
    pub tried: Vec<Tried>,
    /// The load, if it is more than the plain drive can do at the rate that was asked for.
    pub too_much: Option<TooMuch>,
    /// The advice for the other state of a shingled drive's persistent cache, if that was measured.
    pub other_cache: Option<PersistentCache>,
    /// The same volume on the array, taken for one drive, if the load is on an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_drive: Option<OneDrive>,
    /// The plain drive and the volume, each with the drive's write cache on and off.
    pub caches: Caches,
}

/// Facts for the advice that are not in the replay.
#[derive(Clone, Debug)]
pub struct Subject {
    /// How the policies were found.
    pub found: Found,
    /// The disk named in the suggested commands.
    pub device: String,
    /// See [`Advice`].
    pub too_much: Option<TooMuch>,
}

/// Gain of a policy: see [`Gain`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AdvisedGain {
    /// By the mean time until data is durable.
    pub durable_mean: Option<Interval>,
    /// By its 99th percentile.
    pub durable_p99: Option<Interval>,
    /// By the mean latency of reads.
    pub reads_mean: Option<Interval>,
    /// By megabytes a second of streams.
    pub stream_mb_s: Option<Interval>,
}

impl From<Gain> for AdvisedGain {
    fn from(gain: Gain) -> Self {
        let Gain { durable_mean, durable_p99, reads_mean, stream_mb_s, .. } = gain;
        Self { durable_mean, durable_p99, reads_mean, stream_mb_s }
    }
}

/// How to mount file systems on a volume.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MountOptions {
    /// ext4: with `data=journal` everything would be written twice, the second time small.
    pub ext4: &'static str,
    /// XFS.
    pub xfs: &'static str,
}

const MOUNT: MountOptions = MountOptions { ext4: "noatime,data=ordered", xfs: "noatime" };

impl Advice {
    /// Judges the policies in `replay`, whose measurements `outcomes` are.
    #[must_use]
    pub fn of(replay: &Replay, outcomes: &[Outcome], subject: Subject) -> Self {
        let Subject { found, device, too_much } = subject;
        let judged = outcomes.iter().filter(|outcome| outcome.policy.can_be_made());
        let judged: Vec<(&Outcome, &PolicyResult)> = judged
            .filter_map(|outcome| Some((outcome, replay.policies.named(&outcome.policy.name)?)))
            .collect();
        let best = judged.iter().max_by(|a, b| rank(a.1).total_cmp(&rank(b.1)));
        let gain = best.and_then(|(_, result)| result.gain).unwrap_or_default();
        let decision = best.map_or(Decision::NoDifference, |(_, result)| decision(replay, result));
        let policy = best.map_or(found.default, |(_, result)| result.name.as_str()).to_owned();
        let settings = settings(&policy);
        let logs = best.and_then(|(outcome, result)| LogsOutlook::of(replay, outcome, result));
        let mut warnings = replay.warnings.clone();
        warnings.extend(logs.as_ref().and_then(LogsOutlook::warning));
        let caches = Caches::of(replay, outcomes, best.map(|(_, result)| *result));
        let commands = match decision {
            Decision::Use => commands(found.default, &settings, caches.set_for_volume, &device),
            Decision::NoDifference | Decision::DoNotUse => Vec::new(),
        };
        let mut reasons = reasons(&gain, decision, &logs);
        let base = replay.base().zip(best);
        reasons.extend(base.and_then(|(plain, (_, with))| cleaning_sentence(plain, with)));
        reasons.extend(caches.sentences());
        Self {
            format: FORMAT,
            warnings,
            decision,
            reasons,
            policy,
            settings,
            gain: gain.into(),
            drive_range: None,
            baseline: replay.baseline.clone(),
            durability: replay.durability.mode.clone(),
            drive: replay.drive.clone(),
            traces: replay.trace.files.clone(),
            seeds: replay.seeds,
            logs,
            mount_options: MOUNT,
            commands,
            tried: found.tried,
            too_much,
            other_cache: None,
            one_drive: None,
            caches,
        }
    }

    /// The advice as pretty-printed JSON.
    ///
    /// # Errors
    /// None is expected: every value has a JSON form.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The advice with the findings for the other state of a shingled drive's persistent cache.
    #[must_use]
    pub fn with_other_cache(mut self, other: PersistentCache) -> Self {
        if other.matters(&self) {
            self.reasons.push(other.sentence());
            self.other_cache = Some(other);
        }
        self
    }

    /// The advice with what the volume gains on an array that it takes for one drive.
    #[must_use]
    pub fn with_one_drive(mut self, other: OneDrive) -> Self {
        self.reasons.push(other.sentence());
        self.one_drive = Some(other);
        self
    }

    /// The advice as the report's verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut points = self.reasons.clone();
        points.extend(self.commands.iter().map(|command| format!("to do it: `{command}`")));
        Verdict {
            decision: self.decision,
            policy: Some(self.policy.clone()),
            text: self.sentence(),
            points,
        }
    }

    /// Measures that fall below the share that must be kept.
    fn lost(&self) -> Vec<&'static str> {
        let AdvisedGain { durable_mean, reads_mean, stream_mb_s, .. } = self.gain;
        let all = [("writes", durable_mean), ("reads", reads_mean), ("streams", stream_mb_s)];
        let low = |interval: Option<Interval>| interval.is_some_and(|i| i.estimate < KEPT_MIN);
        all.into_iter().filter(|(_, interval)| low(*interval)).map(|(what, _)| what).collect()
    }

    /// The decision in a sentence, after the warnings that must precede it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let before = self.too_much.as_ref().map(|found| found.sentence(&self.drive) + " ");
        let other = self.other_cache.as_ref().filter(|_| self.open_sentence().is_none());
        let behind = other.map(|other| " ".to_owned() + &other.headline(self));
        before.unwrap_or_default() + &self.judgement() + &behind.unwrap_or_default()
    }

    fn judgement(&self) -> String {
        if let Some(open) = self.open_sentence() {
            return open;
        }
        let how_much = self.gain.durable_mean.as_ref().map_or_else(
            || "too few durable writes to judge".to_owned(),
            |gain| format!("data becomes durable {}", factor(gain)),
        );
        let (drive, policy) = (&self.drive, &self.policy);
        match self.decision {
            Decision::Use => format!("Use it on {drive}, as `{policy}`: {how_much}."),
            Decision::NoDifference => {
                format!("It makes no difference on {drive} ({policy}: {how_much}): leave it.")
            }
            Decision::DoNotUse => {
                let lost = match self.lost() {
                    lost if lost.is_empty() => "the drive does not keep up".to_owned(),
                    lost => format!("{} would be slower", lost.join(" and ")),
                };
                format!("Do not use it on {drive}: {lost} ({policy}: {how_much}).")
            }
        }
    }
}

/// Sort key of policies: those that keep reads and streams come first, then the gain decides.
fn rank(result: &PolicyResult) -> f64 {
    let gain = result.gain.unwrap_or_default();
    let durable = gain.durable_mean.map_or(1.0, |interval| interval.estimate);
    search::rank(&result.name, durable, kept(&gain))
}

/// The smaller of the two shares of the plain drive's speed that reads and streams keep.
fn kept(gain: &Gain) -> f64 {
    let shares = [gain.reads_mean, gain.stream_mb_s].into_iter().flatten();
    shares.map(|interval| interval.estimate).fold(f64::INFINITY, f64::min)
}

fn decision(replay: &Replay, result: &PolicyResult) -> Decision {
    let gain = result.gain.unwrap_or_default();
    let overloaded = |policy: &PolicyResult| policy.overload.overloaded;
    if overloaded(result) {
        return match replay.base() {
            Some(base) if !overloaded(base) => Decision::DoNotUse,
            _ => Decision::NoDifference,
        };
    }
    match decide(&gain) {
        Decision::Use if kept(&gain) < KEPT_MIN => Decision::DoNotUse,
        other => other,
    }
}

/// The options in the policy's name.
fn settings(policy: &str) -> Map<String, Value> {
    let options = policy.split_once(':').map_or("", |(_, options)| options);
    let pairs = options.split(',').filter_map(|option| option.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

fn reasons(gain: &Gain, decision: Decision, logs: &Option<LogsOutlook>) -> Vec<String> {
    let mut reasons = Vec::new();
    let figures = [
        ("data is durable", gain.durable_mean),
        ("the slowest hundredth of it", gain.durable_p99),
        ("reads", gain.reads_mean),
        ("streams", gain.stream_mb_s),
    ];
    for (what, interval) in figures {
        let Some(interval) = interval else { continue };
        let costs = interval.estimate < KEPT_MIN;
        let word = match decision {
            Decision::DoNotUse if costs => ", less than the 0.99 that is to be kept",
            _ => "",
        };
        reasons.push(format!("{what}: {} times as fast{word}", span(&interval)));
    }
    reasons.extend(logs.as_ref().map(LogsOutlook::sentence));
    reasons
}

impl NamedPolicy {
    /// The policy `default`, which is ours, with these options.
    pub(crate) fn ours(
        default: &str,
        options: &[(&'static str, String)],
    ) -> Result<Self, manylogs::PolicyError> {
        let pairs: Vec<String> = options.iter().map(|(key, v)| format!("{key}={v}")).collect();
        match pairs.is_empty() {
            true => Self::parse(default),
            false => Self::parse(&format!("{default}:{}", pairs.join(","))),
        }
    }
}
