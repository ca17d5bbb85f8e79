//! Advice on a drive whose figures are known only in ranges: the gain over all drives that the
//! profile may describe.

use std::collections::HashMap;
use std::sync::Arc;

use manylogs_block::Rng;
use manylogs_disk::Profile;
use manylogs_disk::profile::Sheet;
use manylogs_disk::profile::sheet::Key;
use serde::Serialize;

use super::ask::{Ask, Halt, Replays, Threads};
use super::brief::Brief;
use super::{Advice, Found};
use crate::replay::{DriveSettings, Durability, NamedPolicy, Plan, ReplayError, Workload};
use crate::results::Decision;
use crate::stats::round3;
use crate::synthetic::Synthetic;

/// Number of drives drawn at random.
const DRAWN: usize = 57;
/// Of this many other drives one gains less than the range, and one gains more. The range ends at
/// the second least and the second greatest gain of the 57 drawn drives: at either end 2 of 58
/// other drives lie outside, so 93 in 100 lie within. The least and the greatest gain of 28 drives
/// would enclose as many, but vary more from one draw to the next.
const BEYOND: f64 = 29.0;
/// Seeds of the replay on each drive; fewer seeds would widen the range by chance.
const SEEDS: usize = 2;
/// The seed of the draws; not one that `drive vary` has by default.
const DRAWS_SEED: u64 = 0x6164_7669_7365;
/// A figure counts as decisive if it changes the gain by this share of the most decisive one's
/// change ...
const DECIDES: f64 = 0.5;
/// ... and at least by this factor.
const DECIDES_MIN: f64 = 1.02;
/// Most figures that are named.
const NAMED_MAX: usize = 3;

/// The gain by the mean time until data is durable, over the drives that a profile may describe: 93
/// in 100 of them lie between `low` and `high`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveRange {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// Share of these drives for which the load is too much, with their cache on or off. They have
    /// no gain, because their queue grows as long as the load lasts.
    pub too_much: f64,
    /// The figures that decide the gain most, by their names in a profile.
    pub decided_by: Vec<&'static str>,
    /// The same in words.
    #[serde(skip)]
    words: Vec<&'static str>,
}

/// Measures the range of the advised policy's gain over the plain drives of `found`, for the drives
/// that the profile of `plan` may describe. `None` if the profile has no ranges, or the user ended
/// it.
///
/// # Errors
/// As the replays themselves.
pub fn drive_range(
    plan: &Plan,
    found: &Found,
    advice: &Advice,
    replays: &mut dyn Replays,
) -> Result<Option<DriveRange>, Halt> {
    let Some(sheet) = plan.drive.profile.sheet.as_deref() else { return Ok(None) };
    let keys: Vec<Key> = sheet.ranges().map(|(key, _)| key).collect();
    let judged = found.finalists.iter().find(|policy| policy.name == advice.policy);
    let Some(policy) = judged.filter(|_| !keys.is_empty()) else { return Ok(None) };
    let plain: Vec<NamedPolicy> =
        found.finalists.iter().filter(|policy| policy.is_plain()).cloned().collect();
    // Decisive figures are found by differences, for which the better plain drive suffices.
    let is_baseline = |plain: &&NamedPolicy| advice.baseline.as_ref() == Some(&plain.name);
    let baseline: Vec<NamedPolicy> = plain.iter().filter(is_baseline).cloned().collect();
    let on = |nth: usize| match nth < DRAWN {
        true => On { drive: nth + 1, seeds: SEEDS, plain: &plain },
        false => On { drive: nth + 1, seeds: 1, plain: &baseline },
    };
    let drives: Vec<On<'_>> = (0..DRAWN + 2 * keys.len()).map(on).collect();
    let gains = gains(plan, &drives, policy, replays)?;
    Ok(ranged(&keys, &gains))
}

/// The `nth` of the drives that the profile of `drive` may describe: the drawn ones, then for each
/// figure one at either end of its range. 0 is the drive itself. `None` if no such drive can exist.
pub(super) fn drive_of(drive: &DriveSettings, nth: usize) -> Option<DriveSettings> {
    let Some(nth) = nth.checked_sub(1) else { return Some(drive.clone()) };
    let sheet = drive.profile.sheet.as_deref()?;
    let keys: Vec<Key> = sheet.ranges().map(|(key, _)| key).collect();
    let at: Sheet = match nth.checked_sub(DRAWN) {
        None => sheet.at(&draws(&keys)[nth]),
        Some(end) => sheet.at(&[(*keys.get(end / 2)?, (end % 2) as f64)]),
    };
    let profile = at.clone().profile(&at.name).ok()?;
    Some(DriveSettings { profile: Arc::new(profile), ..drive.clone() })
}

/// Positions within the ranges, one list for each drawn drive. Each range is cut into as many parts
/// as there are drives, and each part is drawn from once.
fn draws(keys: &[Key]) -> Vec<Vec<(Key, f64)>> {
    let mut rng = Rng::new(DRAWS_SEED);
    let mut drives: Vec<Vec<(Key, f64)>> = vec![Vec::new(); DRAWN];
    for &key in keys {
        let mut parts: Vec<usize> = (0..DRAWN).collect();
        rng.shuffle(&mut parts);
        for (drive, part) in drives.iter_mut().zip(parts) {
            drive.push((key, (part as f64 + rng.unit()) / DRAWN as f64));
        }
    }
    drives
}

/// The result for one drive.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OnDrive {
    /// The gain.
    Gains(f64),
    /// The load is too much for the plain drive.
    TooMuch,
    /// No such drive can exist, or no write was durable.
    Nothing,
}

impl OnDrive {
    const fn gain(self) -> Option<f64> {
        match self {
            Self::Gains(gain) => Some(gain),
            Self::TooMuch | Self::Nothing => None,
        }
    }
}

/// A drive on which the gain is measured.
#[derive(Clone, Copy)]
struct On<'a> {
    /// See [`drive_of`].
    drive: usize,
    /// Number of seeds, from the first of the plan on.
    seeds: usize,
    /// The plain drives to compare with.
    plain: &'a [NamedPolicy],
}

impl On<'_> {
    fn asks(&self, plan: &Plan, policies: &[NamedPolicy]) -> Vec<Ask> {
        let of_policy = |policy| {
            (0..self.seeds).map(move |nth| {
                let seed = plan.nth_seed(nth);
                Ask { drive: self.drive, ..Ask::of(plan, policy, seed) }
            })
        };
        policies.iter().flat_map(of_policy).collect()
    }
}

/// Replays `policies` on each of `drives`: one list a drive, one entry a policy.
fn on_drives(
    plan: &Plan,
    drives: &[(On<'_>, &[NamedPolicy])],
    replays: &mut dyn Replays,
) -> Result<Vec<Vec<Brief>>, Halt> {
    let asks: Vec<Vec<Ask>> = drives.iter().map(|(on, all)| on.asks(plan, all)).collect();
    let mut found = replays.all(plan, &asks.concat())?.into_iter();
    let mut pooled = |on: &On<'_>, asks: &Vec<Ask>| -> Vec<Brief> {
        let briefs: Vec<Brief> = found.by_ref().take(asks.len()).collect();
        briefs.chunks(on.seeds).map(Brief::pooled).collect()
    };
    Ok(drives.iter().zip(&asks).map(|((on, _), asks)| pooled(on, asks)).collect())
}

/// How many times sooner data is durable under `policy` than on the best of the plain drives, on
/// each of `drives`.
fn gains(
    plan: &Plan,
    drives: &[On<'_>],
    policy: &NamedPolicy,
    replays: &mut dyn Replays,
) -> Result<Vec<OnDrive>, Halt> {
    let can_be = |on: &On<'_>| drive_of(&plan.drive, on.drive).is_some();
    let possible: Vec<On<'_>> = drives.iter().copied().filter(can_be).collect();
    let plain: Vec<_> = possible.iter().map(|on| (*on, on.plain)).collect();
    let plain = on_drives(plan, &plain, replays)?;
    let keeps_up = |briefs: &[Brief]| briefs.iter().any(|brief| !brief.overloaded);
    let policies = std::slice::from_ref(policy);
    let kept: Vec<_> = possible.iter().zip(&plain).filter(|(_, briefs)| keeps_up(briefs)).collect();
    let asked: Vec<_> = kept.iter().map(|(on, _)| (**on, policies)).collect();
    let with = on_drives(plan, &asked, replays)?;
    let mut gains = HashMap::new();
    for ((on, plain), with) in kept.iter().zip(&with) {
        let base = plain.iter().map(Brief::durable_us).fold(f64::INFINITY, f64::min);
        let gain = base / with.first().map_or(f64::NAN, Brief::durable_us);
        let is_one = gain.is_finite() && gain > 0.0;
        gains.insert(on.drive, if is_one { OnDrive::Gains(gain) } else { OnDrive::Nothing });
    }
    let of = |on: &On<'_>| match gains.get(&on.drive) {
        Some(gain) => *gain,
        None if can_be(on) => OnDrive::TooMuch,
        None => OnDrive::Nothing,
    };
    Ok(drives.iter().map(of).collect())
}

/// The value with that rank, counted from 1, in a sorted list; interpolated between ranks.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
fn of_rank(sorted: &[f64], rank: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = (rank - 1.0).clamp(0.0, last as f64);
    let below = sorted[place as usize];
    let above = sorted[(place as usize + 1).min(last)];
    Some(below + (above - below) * place.fract())
}

/// The range, from the gains of the drawn drives, followed by those at both ends of each figure's
/// range.
fn ranged(keys: &[Key], gains: &[OnDrive]) -> Option<DriveRange> {
    let (drawn, ends) = gains.split_at(DRAWN.min(gains.len()));
    let mut sorted: Vec<f64> = drawn.iter().filter_map(|found| found.gain()).collect();
    sorted.sort_by(f64::total_cmp);
    let others = sorted.len() as f64 + 1.0;
    let low = of_rank(&sorted, others / BEYOND)?;
    let high = of_rank(&sorted, others - others / BEYOND)?;
    let too_much = drawn.iter().filter(|found| **found == OnDrive::TooMuch).count();
    let change = |pair: &[OnDrive]| match pair {
        [OnDrive::Gains(low), OnDrive::Gains(high)] => (high / low).max(low / high),
        _ => 1.0,
    };
    let mut changes: Vec<(Key, f64)> =
        keys.iter().copied().zip(ends.chunks(2).map(change)).collect();
    changes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let top = changes.first().map_or(1.0, |(_, change)| *change);
    let enough = DECIDES_MIN.max(top.powf(DECIDES));
    let deciding: Vec<Key> = changes
        .into_iter()
        .filter(|(_, change)| *change >= enough)
        .map(|(key, _)| key)
        .take(NAMED_MAX)
        .collect();
    Some(DriveRange {
        low: round3(low),
        high: round3(high),
        too_much: round3(too_much as f64 / (sorted.len() + too_much) as f64),
        decided_by: deciding.iter().map(|key| key.name()).collect(),
        words: deciding.iter().map(|key| key.words()).collect(),
    })
}

impl DriveRange {
    /// Whether the drive may gain or lose, as far as the range tells.
    #[must_use]
    pub fn is_around_one(&self) -> bool {
        self.low <= 1.0 && self.high > 1.0
    }

    /// The range in words.
    #[must_use]
    pub fn words(&self) -> String {
        let decides = match self.words.as_slice() {
            [] => "no single figure of it decides".to_owned(),
            [one] => format!("{one} decides"),
            [others @ .., last] => format!("{} and {last} decide", others.join(", ")),
        };
        let left_out = if self.too_much > 0.0 {
            format!(
                " (without {:.0} % of the drives that it may be, for which the load is too much)",
                100.0 * self.too_much
            )
        } else {
            String::new()
        };
        format!("between {:.2} and {:.2} times as fast{left_out}; {decides}", self.low, self.high)
    }
}

impl Advice {
    /// Takes the range into account: a range around 1 withdraws the advice to use a volume.
    pub fn over(&mut self, range: DriveRange) {
        self.reasons.push(format!("over what the drive may be: {}", range.words()));
        if self.decision == Decision::Use && range.is_around_one() {
            self.decision = Decision::NoDifference;
            self.commands.clear();
        }
        self.drive_range = Some(range);
    }

    /// The sentence where the drive's range leaves the decision open.
    pub(super) fn open_sentence(&self) -> Option<String> {
        let range = self.drive_range.as_ref().filter(|range| range.is_around_one())?;
        (self.decision == Decision::NoDifference).then(|| {
            format!(
                "Whether it helps on {} cannot be said: {}. Leave it until that is known \
                 (`{}`).",
                self.drive,
                range.words(),
                self.policy
            )
        })
    }
}

/// How many times sooner data is durable with the default policy than on the plain drive, for a
/// sequential reader beside small random writes, with every write durable.
///
/// # Errors
/// If the replay fails.
pub fn plain_gain(profile: Arc<Profile>, seed: u64) -> Result<f64, ReplayError> {
    let open = move || Ok(Box::new(Synthetic::reader_and_writers(seed, 5_000)) as _);
    let workload = Workload::measure(Arc::new(open))?;
    let drive = DriveSettings::new(profile, false);
    let policy = NamedPolicy::parse(drive.default_policy())
        .unwrap_or_else(|_| unreachable!("the default policy is one"));
    let plan = Plan { seed, ..Plan::new(workload, drive, Durability::All) };
    let drive = [On { drive: 0, seeds: 1, plain: &[NamedPolicy::nologging()] }];
    let (progress, threads) = (&Arc::default(), 1);
    let found = gains(&plan, &drive, &policy, &mut Threads { progress, threads });
    match found {
        Ok(gains) => Ok(gains.first().and_then(|found| found.gain()).unwrap_or(1.0)),
        Err(Halt::Failed(error)) => Err(error),
        Err(Halt::Interrupted | Halt::Wanted) => unreachable!("nobody ends it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_range_is_drawn_once() {
        let keys = [Key::Segments, Key::TrackToTrack];
        let drives = draws(&keys);
        for index in 0..keys.len() {
            let part = |share: f64| (1..=DRAWN).position(|end| share * (DRAWN as f64) < end as f64);
            let mut parts: Vec<usize> =
                drives.iter().filter_map(|shares| part(shares[index].1)).collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..DRAWN).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_range_is_that_of_the_drawn_and_its_ends_say_what_decides() {
        use OnDrive::{Gains, Nothing, TooMuch};
        let mut gains: Vec<OnDrive> = (0..DRAWN).map(|i| Gains(0.89 + i as f64 / 100.0)).collect();
        gains.extend([Gains(0.95), Gains(1.2), Gains(1.1), Gains(1.11), Nothing, Gains(3.0)]);
        let keys = [Key::Segment, Key::WriteSettle, Key::Heads];
        let range = ranged(&keys, &gains).unwrap();
        // The range ends at the second and at the last but one.
        assert_eq!((range.low, range.high, range.too_much), (0.9, 1.44, 0.0));
        assert_eq!(range.decided_by, ["segment"]);
        assert!(range.is_around_one());
        assert_eq!(range.words(), "between 0.90 and 1.44 times as fast; the read-ahead decides");
        // With fewer drives, the ends lie between the least and the second.
        gains[28..DRAWN].fill(TooMuch);
        let range = ranged(&keys, &gains).unwrap();
        assert_eq!((range.low, range.high, range.too_much), (0.89, 1.16, 0.509));
        assert!(range.words().contains("without 51 % of the drives that it may be"));
        assert!(ranged(&keys, &[Nothing; DRAWN]).is_none());
        assert!(ranged(&keys, &[TooMuch; DRAWN]).is_none());
    }

    #[test]
    fn a_rank_between_two_is_in_between() {
        let sorted = [1.0, 2.0, 4.0];
        let ranks = [0.5, 1.0, 1.5, 2.5, 3.0, 9.0].map(|rank| of_rank(&sorted, rank));
        assert_eq!(ranks, [1.0, 1.0, 1.5, 3.0, 4.0, 4.0].map(Some));
        assert_eq!(of_rank(&[], 1.0), None);
    }
}
