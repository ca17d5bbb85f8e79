//! Searches the settings one after the other and keeps each value that helps.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ask::{Ask, Halt, Replays};
use super::brief::Brief;
use super::{KEPT_MIN, settings};
use crate::replay::{NamedPolicy, Plan};
use crate::stats::round3;

/// Settings, and the values to try besides each default.
const TRIED: [(&str, &[&str]); 7] = [
    ("appends", &["1", "2", "8"]),
    ("threshold", &["16K", "32K", "64K", "128K", "512K"]),
    ("cache", &["off"]),
    ("group", &["100M", "300M", "1G"]),
    ("latency", &["none", "3ms", "30ms"]),
    ("hold", &["5ms", "20ms"]),
    ("checkpoint", &["idle"]),
];
/// Rounds over all settings: one may help only once another is changed.
const ROUNDS: usize = 2;
/// Seeds of each try; the final replays have others.
const SEEDS: usize = 3;
const FIRST_SEED: usize = 1000;
/// A change must gain at least this share, because the default is the best-tested setting.
const WORTHWHILE: f64 = 1.01;
/// Number of policies in the final replays beside the default.
const FINALISTS: usize = 3;

/// Result of the search.
#[derive(Clone, Debug)]
pub struct Found {
    /// Policies to replay from fresh seeds: the plain drives, the default and the best.
    pub finalists: Vec<NamedPolicy>,
    /// All policies that were tried, in order.
    pub tried: Vec<Tried>,
    /// The policy that has the defaults of `format` for the drive.
    pub default: &'static str,
}

/// A policy that was tried, with its gain over the plain drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The policy as `replay --policy` takes it.
    pub policy: String,
    /// By the mean time until data is durable.
    pub durable_mean: f64,
    /// By the mean latency of reads.
    pub reads_mean: f64,
    /// By megabytes a second of streams.
    pub stream_mb_s: f64,
}

impl Tried {
    fn rank(&self) -> f64 {
        let kept = self.reads_mean.min(self.stream_mb_s);
        rank(&self.policy, self.durable_mean, kept)
    }
}

/// Sort key of policies. Those that keep reads and streams come first. Among these the gain
/// decides, less a discount for each setting that is not the default.
pub(super) fn rank(policy: &str, durable_mean: f64, kept: f64) -> f64 {
    if kept < KEPT_MIN {
        return kept;
    }
    let changed: f64 = settings(policy).iter().map(|_| WORTHWHILE).product();
    1e6 + durable_mean / changed
}

type Options = BTreeMap<&'static str, String>;

/// Upper bound of the number of replays of [`search`], for a progress bar.
#[must_use]
pub fn replays_at_most() -> u64 {
    let values: usize = TRIED.iter().map(|(_, values)| values.len()).sum();
    ((3 + values * ROUNDS) * SEEDS) as u64
}

/// Searches the settings of `mlb` that make the data of `plan` durable soonest, while reads and
/// streams keep 0.99 of the plain drive's speed.
///
/// It asks `replays` for the results that it needs. If `replays` guesses, the search goes on past
/// unknown results to its end, as if each value helped as much as it does alone, and asks for the
/// final replays that this leads to.
///
/// # Errors
/// As the replays themselves.
pub fn search(plan: &Plan, replays: &mut dyn Replays) -> Result<Found, Halt> {
    let names = plain_drives(plan);
    let plan = Plan { checkpoint_after: false, ..plan.clone() };
    let default = plan.drive.default_policy();
    let mut tries = Tries {
        plan,
        base: None,
        replays: &mut *replays,
        default,
        tried: Vec::new(),
        unknown: Vec::new(),
        is_open: false,
    };
    let plain = tries.replay(&names)?.unwrap_or_default();
    tries.base = plain.into_iter().min_by(|a, b| a.durable_us().total_cmp(&b.durable_us()));
    let mut best = Options::new();
    tries.measure(vec![best.clone()])?;
    for _ in 0..ROUNDS {
        let before = best.clone();
        for (key, values) in TRIED {
            best = tries.best_of(best, key, values)?;
        }
        if best == before {
            break;
        }
    }
    let (plan, is_open) = (tries.plan.clone(), tries.is_open);
    let found = tries.finish(names);
    if is_open {
        return Err(match replays.judged(&plan, &found.finalists) {
            Ok(_) => Halt::Wanted,
            Err(halt) => halt,
        });
    }
    Ok(found)
}

/// The plain drive with its write cache as the durability demands, and with the other setting.
pub(super) fn plain_drives(plan: &Plan) -> Vec<NamedPolicy> {
    let mut names = vec![NamedPolicy::nologging()];
    names.extend(NamedPolicy::parse(&format!("nologging:cache={}", other_cache(plan))));
    names
}

/// The setting of the drive's write cache that the durability does not demand.
const fn other_cache(plan: &Plan) -> &'static str {
    if plan.drive.write_cache { "off" } else { "on" }
}

struct Tries<'a> {
    plan: Plan,
    /// The plain drive that makes data durable sooner; `None` while that is not known.
    base: Option<Brief>,
    replays: &'a mut dyn Replays,
    /// See [`Found`].
    default: &'static str,
    tried: Vec<(Options, Tried)>,
    /// Policies whose results were requested and are still unknown.
    unknown: Vec<Options>,
    /// Whether some requested results are still unknown, those of plain drives included.
    is_open: bool,
}

impl Tries<'_> {
    /// Returns `current`, or `current` with another value of `key` if that value helps.
    fn best_of(
        &mut self,
        current: Options,
        key: &'static str,
        values: &[&str],
    ) -> Result<Options, Halt> {
        if key == "cache" && !self.plan.drive.write_cache {
            return Ok(current);
        }
        let with = |value: &&str| {
            let mut options = current.clone();
            options.insert(key, (*value).to_owned());
            options
        };
        let mut candidates: Vec<Options> = values.iter().map(with).collect();
        let mut default = current.clone();
        default.remove(key);
        candidates.push(default);
        self.measure(candidates.clone())?;
        let mut best = current;
        for candidate in candidates {
            if self.rank(&candidate) > self.rank(&best) {
                best = candidate;
            }
        }
        Ok(best)
    }

    fn rank(&self, options: &Options) -> f64 {
        let guess = || self.unknown.contains(options).then(|| self.guess(options)).flatten();
        self.known(options).cloned().or_else(guess).map_or(0.0, |tried| tried.rank())
    }

    fn known(&self, options: &Options) -> Option<&Tried> {
        self.tried.iter().find(|(tried, _)| tried == options).map(|(_, tried)| tried)
    }

    /// What a policy gains if each of its settings changes as much as it does alone. `None` if that
    /// is not known of all.
    fn guess(&self, options: &Options) -> Option<Tried> {
        let default = self.known(&Options::new())?;
        let pairs: Vec<_> = options.clone().into_iter().collect();
        let policy = NamedPolicy::ours(self.default, &pairs).ok()?.name;
        let mut guess = Tried { policy, ..default.clone() };
        for pair in pairs {
            let alone = self.known(&Options::from([pair]))?;
            guess.durable_mean *= alone.durable_mean / default.durable_mean;
            guess.reads_mean *= alone.reads_mean / default.reads_mean;
            guess.stream_mb_s *= alone.stream_mb_s / default.stream_mb_s;
        }
        Some(guess)
    }

    /// Measures the policies that were not measured before. Policies that do not fit the drive are
    /// left out.
    fn measure(&mut self, candidates: Vec<Options>) -> Result<(), Halt> {
        let is_new = |c: &Options| self.known(c).is_none() && !self.unknown.contains(c);
        let new = candidates.into_iter().filter(is_new);
        let capacity = self.plan.drive.capacity();
        let policy = |options: Options| {
            let pairs: Vec<_> = options.clone().into_iter().collect();
            let policy = NamedPolicy::ours(self.default, &pairs).ok()?;
            policy.on(capacity).is_ok().then_some((options, policy))
        };
        let (options, policies): (Vec<_>, Vec<_>) = new.filter_map(policy).unzip();
        let (Some(briefs), Some(base)) = (self.replay(&policies)?, &self.base) else {
            self.unknown.extend(options);
            return Ok(());
        };
        let tried = policies.iter().zip(&briefs).map(|(policy, brief)| tried(base, policy, brief));
        self.tried.extend(options.into_iter().zip(tried));
        Ok(())
    }

    /// Replays each policy from the search's seeds. `None` if it is not known yet, and the search
    /// goes on nevertheless.
    fn replay(&mut self, policies: &[NamedPolicy]) -> Result<Option<Vec<Brief>>, Halt> {
        let seeds = (0..SEEDS).map(|nth| self.plan.nth_seed(FIRST_SEED + nth));
        let of_policy = |policy| {
            let ask = |seed| Ask::of(&self.plan, policy, seed);
            seeds.clone().map(ask).collect::<Vec<_>>()
        };
        let asks: Vec<Ask> = policies.iter().flat_map(of_policy).collect();
        match self.replays.all(&self.plan, &asks) {
            Ok(briefs) => Ok(Some(briefs.chunks(SEEDS).map(Brief::pooled).collect())),
            Err(Halt::Wanted) if self.replays.guesses() => {
                self.is_open = true;
                Ok(None)
            }
            Err(halt) => Err(halt),
        }
    }

    fn finish(mut self, mut finalists: Vec<NamedPolicy>) -> Found {
        let guess = |options: &Options| Some((options.clone(), self.guess(options)?));
        let guessed: Vec<_> = self.unknown.iter().filter_map(guess).collect();
        self.tried.extend(guessed);
        let mut ranked: Vec<&Tried> = self.tried.iter().map(|(_, tried)| tried).collect();
        ranked.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
        let default = NamedPolicy::parse(self.default);
        finalists.extend(default);
        let best = self.tried.iter().max_by(|a, b| a.1.rank().total_cmp(&b.1.rank()));
        // The best policy with the other setting of the drive's write cache: the setting is part of
        // the advice.
        let twin = best.and_then(|(options, _)| {
            let mut options = options.clone();
            if options.remove("cache").is_none() {
                options.insert("cache", other_cache(&self.plan).to_owned());
            }
            NamedPolicy::ours(self.default, &options.into_iter().collect::<Vec<_>>()).ok()
        });
        if let Some((_, best)) = best {
            self.replays.likely(&best.policy);
        }
        let policies = ranked.into_iter().take(FINALISTS);
        let policies = policies.filter_map(|tried| NamedPolicy::parse(&tried.policy).ok());
        for policy in policies.chain(twin) {
            if finalists.iter().all(|other| other.name != policy.name) {
                finalists.push(policy);
            }
        }
        Found {
            finalists,
            default: self.default,
            tried: self.tried.into_iter().map(|(_, tried)| tried).collect(),
        }
    }
}

fn tried(base: &Brief, policy: &NamedPolicy, brief: &Brief) -> Tried {
    let ratio = |a: f64, b: f64| if a > 0.0 && b > 0.0 { round3(a / b) } else { 1.0 };
    let stream = |brief: &Brief| brief.stream.mb_s().unwrap_or(0.0);
    Tried {
        policy: policy.name.clone(),
        durable_mean: ratio(base.durable_us(), brief.durable_us()),
        reads_mean: ratio(base.reads.mean_us(), brief.reads.mean_us()),
        stream_mb_s: ratio(stream(brief), stream(base)),
    }
}
