//! The steps of advice: a search, replays of its best policies from fresh seeds, and the judgement.

use std::sync::Arc;

use super::ask::{Halt, Replays, Threads};
use super::{
    Advice, OneDrive, PersistentCache, Subject, TooMuch, drive_range, replays_at_most, search,
};
use crate::Shape;
use crate::assemble::assemble;
use crate::load::Load;
use crate::replay::{ArraySettings, DriveSettings, NamedPolicy, Plan, Progress, ReplayError};
use crate::results::{RateDetails, Replay};

/// The question to which advice is the answer.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The load on the drive.
    pub load: &'a Load,
    /// Its plan, at the chosen rate.
    pub plan: Plan,
    /// How the rate was chosen.
    pub rate: RateDetails,
    /// The disk named in the suggested commands.
    pub device: String,
    /// The command line that repeats it.
    pub command: String,
    /// Number of replays at the same time.
    pub threads: usize,
}

/// Advice, and the replays that it follows from.
#[derive(Debug)]
pub struct Advised {
    /// The advice.
    pub advice: Advice,
    /// The plain drive and the best policies that the search found.
    pub replay: Replay,
}

/// The policies for which a load must fit when advice is asked for.
///
/// # Errors
/// None: the policy is known.
pub fn fitted_policies() -> Result<Vec<NamedPolicy>, manylogs::PolicyError> {
    Ok(vec![NamedPolicy::parse("mlb")?])
}

/// Gives the advice; `None` if `progress` ended it. `shown` is called with the most requests that
/// the search replays, and what it returns is dropped when the search has ended.
///
/// # Errors
/// If a replay fails.
pub fn advise<G>(
    asked: Asked<'_>,
    progress: &Arc<Progress>,
    shown: impl FnOnce(u64) -> G,
) -> Result<Option<Advised>, ReplayError> {
    let threads = asked.threads;
    match advised(asked, &mut Threads { progress, threads }, shown) {
        Ok(advised) => Ok(Some(advised)),
        Err(Halt::Interrupted) => Ok(None),
        Err(Halt::Failed(error)) => Err(error),
        Err(Halt::Wanted) => unreachable!("threads do every replay that they are asked for"),
    }
}

/// The advice, from the replays that `replays` knows or does.
pub(super) fn advised<G>(
    asked: Asked<'_>,
    replays: &mut dyn Replays,
    shown: impl FnOnce(u64) -> G,
) -> Result<Advised, Halt> {
    let Asked { load, mut plan, mut rate, device, command, threads: _ } = asked;
    let (mut too_much, is_open) = match TooMuch::of(&plan, replays) {
        // Most loads fit.
        Err(Halt::Wanted) if replays.guesses() => (None, true),
        found => (found?, false),
    };
    if let Some(found) = &too_much {
        plan.rate = found.judged;
        rate = RateDetails { factor: found.judged, chosen: "fits", ..rate };
    }
    let bar = shown(plan.workload.requests() * replays_at_most());
    let found = search(&plan, replays)?;
    drop(bar);
    if is_open {
        return Err(Halt::Wanted);
    }
    let outcomes = replays.judged(&plan, &found.finalists)?;
    let replay = assemble(&plan, load.setting(&plan, rate.clone(), &command), &outcomes);
    let subject = Subject { found: found.clone(), device, too_much };
    let mut advice = Advice::of(&replay, &outcomes, subject);
    drop(outcomes);
    if let Some(range) = drive_range(&plan, &found, &advice, replays)? {
        advice.over(range);
    }
    if let Some(found) = &mut too_much {
        *found = found.with_volume(&plan, &advice.policy, replays)?;
        advice.too_much = Some(*found);
    }
    if let Some(array) = plan.drive.array.filter(|array| array.shape.known) {
        let shape = Shape { known: false, ..array.shape };
        let array = Some(ArraySettings { shape, ..array });
        let drive = DriveSettings { array, ..plan.drive.clone() };
        let unknown = Plan { drive, checkpoint_after: false, ..plan.clone() };
        let outcomes = replays.judged(&unknown, &found.finalists)?;
        let setting = load.setting(&unknown, rate.clone(), &command);
        let unknown = assemble(&unknown, setting, &outcomes);
        if let Some(other) = OneDrive::of(&unknown, &advice.policy) {
            advice = advice.with_one_drive(other);
        }
    }
    if plan.drive.profile.shingled.is_some() && !load.smr_cache_given() {
        let drive = DriveSettings { smr_cache: 1.0, ..plan.drive.clone() };
        let full = Plan { drive, checkpoint_after: false, ..plan };
        let outcomes = replays.judged(&full, &found.finalists)?;
        let full = assemble(&full, load.setting(&full, rate, &command), &outcomes);
        if let Some(other) = PersistentCache::of(&full, 1.0) {
            advice = advice.with_other_cache(other);
        }
    }
    Ok(Advised { advice, replay })
}
