//! The replays that advice asks for, and the ways to get their results.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thiserror::Error;

use super::brief::Brief;
use super::ranges::drive_of;
use crate::parallel::on_threads;
use crate::replay::{
    DriveSettings, NamedPolicy, Outcome, Plan, Progress, ReplayError, run, run_all,
};

/// A replay that advice asks for. Its text identifies the replay among those of the same advice.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The policy.
    pub policy: NamedPolicy,
    /// The seed.
    pub seed: u64,
    /// Factor by which arrivals are faster than recorded.
    pub rate: f64,
    /// Share of a shingled drive's persistent cache that is in use from the start.
    pub smr_cache: f64,
    /// Number of a drive within the profile's ranges, from 1; 0 is the profile's own drive.
    pub drive: usize,
    /// Whether means of the replay's parts are needed, too.
    pub parts: bool,
}

/// Why there is no advice.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Halt {
    /// A replay failed.
    #[error(transparent)]
    Failed(#[from] ReplayError),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// It needs replays that were not done yet.
    #[error("replays are to be done before it can go on")]
    Wanted,
}

/// Does the replays that advice asks for, or knows their results.
pub trait Replays {
    /// The results of these replays, in order.
    ///
    /// # Errors
    /// If a replay fails, the user ends it, or its result is not known yet.
    fn all(&mut self, plan: &Plan, asks: &[Ask]) -> Result<Vec<Brief>, Halt>;

    /// Replays `policies` from all seeds of `plan`; the advice judges them by these replays.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    fn judged(&mut self, plan: &Plan, policies: &[NamedPolicy]) -> Result<Vec<Outcome>, Halt>;

    /// Whether to name later replays early, on the guess that unknown results change nothing.
    fn guesses(&self) -> bool {
        false
    }

    /// Takes note of the policy that the advice is likely to be about.
    fn likely(&mut self, policy: &str) {
        let _ = policy;
    }
}

impl Ask {
    /// The replay of `policy` by `plan`, from this seed.
    pub(super) fn of(plan: &Plan, policy: &NamedPolicy, seed: u64) -> Self {
        let (rate, smr_cache) = (plan.rate, plan.drive.smr_cache);
        Self { policy: policy.clone(), seed, rate, smr_cache, drive: 0, parts: false }
    }

    /// The plan of this replay, where `plan` is that of the advice. `None` if there is no such
    /// drive.
    #[must_use]
    pub fn plan(&self, plan: &Plan) -> Option<Plan> {
        let drive = drive_of(&plan.drive, self.drive)?;
        let drive = DriveSettings { smr_cache: self.smr_cache, ..drive };
        let (rate, seed) = (self.rate, self.seed);
        Some(Plan { rate, seed, drive, checkpoint_after: false, ..plan.clone() })
    }

    /// Does the replay.
    ///
    /// # Errors
    /// If it fails, or the user ends it.
    pub fn done(&self, plan: &Plan, progress: &Arc<Progress>) -> Result<Brief, Halt> {
        let Some(plan) = self.plan(plan) else { return Ok(Brief::default()) };
        let outcome = run(&plan, &self.policy, progress)?;
        match outcome.interrupted || progress.stop.load(Ordering::Relaxed) {
            true => Err(Halt::Interrupted),
            false => Ok(Brief::of(&outcome, self.parts)),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, seed, rate, smr_cache, drive, parts } = self;
        let parts = u8::from(*parts);
        write!(f, "{} {seed} {rate:?} {smr_cache:?} {drive} {parts}", policy.name)
    }
}

/// The error that a text is no [`Ask`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} names no replay of advice")]
pub struct NoAsk(String);

impl FromStr for Ask {
    type Err = NoAsk;

    fn from_str(text: &str) -> Result<Self, NoAsk> {
        let words: Vec<&str> = text.split(' ').collect();
        let parsed = || {
            let [policy, seed, rate, smr_cache, drive, parts] = words[..] else { return None };
            Some(Self {
                policy: NamedPolicy::parse(policy).ok()?,
                seed: seed.parse().ok()?,
                rate: rate.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite())?,
                smr_cache: smr_cache.parse().ok().filter(|used| (0.0..=1.0).contains(used))?,
                drive: drive.parse().ok()?,
                parts: parts == "1",
            })
        };
        parsed().ok_or_else(|| NoAsk(text.to_owned()))
    }
}

/// Replays on threads of this process.
#[derive(Debug)]
pub(super) struct Threads<'a> {
    pub(super) progress: &'a Arc<Progress>,
    pub(super) threads: usize,
}

impl Replays for Threads<'_> {
    fn all(&mut self, plan: &Plan, asks: &[Ask]) -> Result<Vec<Brief>, Halt> {
        let done = on_threads(asks.len(), self.threads, |job| asks[job].done(plan, self.progress));
        done.into_iter().collect()
    }

    fn judged(&mut self, plan: &Plan, policies: &[NamedPolicy]) -> Result<Vec<Outcome>, Halt> {
        let progresses: Vec<_> = policies.iter().map(|_| Arc::clone(self.progress)).collect();
        let results = run_all(plan, policies, &progresses, self.threads);
        let outcomes = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        match self.progress.stop.load(Ordering::Relaxed) {
            true => Err(Halt::Interrupted),
            false => Ok(outcomes),
        }
    }
}

/// Replays that others do: the known results, and the replays still wanted.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) known: &'a HashMap<String, Brief>,
    pub(super) wanted: Vec<String>,
    pub(super) guesses: bool,
    pub(super) likely: Option<String>,
}

impl Replays for Known<'_> {
    fn all(&mut self, _: &Plan, asks: &[Ask]) -> Result<Vec<Brief>, Halt> {
        let keys: Vec<String> = asks.iter().map(ToString::to_string).collect();
        let found: Option<Vec<Brief>> =
            keys.iter().map(|key| self.known.get(key).cloned()).collect();
        if let Some(found) = found {
            return Ok(found);
        }
        for key in keys {
            if !self.known.contains_key(&key) && !self.wanted.contains(&key) {
                self.wanted.push(key);
            }
        }
        Err(Halt::Wanted)
    }

    fn judged(&mut self, plan: &Plan, policies: &[NamedPolicy]) -> Result<Vec<Outcome>, Halt> {
        let seeds = manylogs_block::to_usize(u64::from(plan.seeds.max(1)));
        let of_policy = |policy| {
            (0..seeds)
                .map(move |nth| Ask { parts: true, ..Ask::of(plan, policy, plan.nth_seed(nth)) })
        };
        let asks: Vec<Ask> = policies.iter().flat_map(of_policy).collect();
        let briefs = self.all(plan, &asks)?;
        let pairs = policies.iter().zip(briefs.chunks(seeds));
        Ok(pairs.map(|(policy, briefs)| Brief::pooled(briefs).outcome(plan, policy)).collect())
    }

    fn guesses(&self) -> bool {
        self.guesses
    }

    fn likely(&mut self, policy: &str) {
        self.likely = Some(policy.to_owned());
    }
}
