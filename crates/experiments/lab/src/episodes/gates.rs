//! What off-loading should gain in an episode, and what it gains.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::figures::EpisodeFigures;
use super::generate::{Episode, fitted};
use super::policy::{OffloadPolicy, OursOptions};
use super::world::{EpisodeFailure, On, run};
use crate::parallel::in_parallel;
use crate::replay::DriveSettings;
use crate::stats::round3;

/// The most that stores should hold, and how soon after the last burst all should be home.
const HELD_MB: f64 = 300.0;
const HOME_S: f64 = 60.0;
/// How much slower the lenders' own requests may be, in the mean and in the 99th percentile.
const LENDERS: [f64; 2] = [1.3, 3.0];

/// A run, and what it is held against.
#[derive(Clone, Copy, Debug)]
struct Case {
    on: On,
    policy: OffloadPolicy,
    /// Bursts are so many times as dense.
    density: u64,
    large: bool,
}

/// Something that should hold.
#[derive(Clone, Debug, Serialize)]
pub struct EpisodeGate {
    /// In words.
    pub gate: &'static str,
    /// The bound.
    pub bound: f64,
    /// What was reached.
    pub reached: f64,
    /// Whether that is enough.
    pub holds: bool,
}

/// A run with its gates.
#[derive(Clone, Debug, Serialize)]
pub struct EpisodeResult {
    /// The drive profile's name.
    pub drive: String,
    /// 1 to 3.
    pub episode: u32,
    /// Decides everything random.
    pub seed: u64,
    /// Length of each of the two bursts.
    pub burst_s: f64,
    /// Whether a third of the writes are of 512 KiB.
    pub large: bool,
    /// drive or volume.
    pub on: &'static str,
    /// none, everest-paper, wait or always.
    pub policy: &'static str,
    /// How many times better the mean is than without stores.
    pub mean_times: f64,
    /// The same of the 99th percentile.
    pub p99_times: f64,
    /// The figures.
    pub figures: EpisodeFigures,
    /// What it should reach.
    pub gates: Vec<EpisodeGate>,
}

const fn case(on: On, policy: OffloadPolicy, density: u64, large: bool) -> Case {
    Case { on, policy, density, large }
}

/// The runs of an episode: each policy on a drive, and the default on a volume. Each case's run
/// without stores comes before it.
fn cases(episode: &Episode, ours: OursOptions) -> Vec<Case> {
    use OffloadPolicy::{Always, None};
    let ours = OffloadPolicy::Ours(ours);
    let mut cases: Vec<Case> = [None, OffloadPolicy::PAPER, ours, Always]
        .map(|policy| case(On::Drive, policy, 1, false))
        .to_vec();
    // Denser bursts and large writes are the first episode's.
    let further = if episode.number == 1 { &[1, 2, 3][..] } else { &[1] };
    for &density in further {
        cases.extend([None, ours].map(|policy| case(On::Volume, policy, density, false)));
    }
    if episode.number == 1 {
        cases.extend([None, ours].map(|policy| case(On::Volume, policy, 1, true)));
    }
    cases
}

/// Measures an episode, on up to `threads` threads: its bursts are fitted to the paper's mean
/// first. `ours` is the default policy, or another one to try. Runs that have not begun when `stop`
/// is set are left out.
///
/// # Errors
/// The first failure.
pub fn gates(
    episode: Episode,
    drive: &Arc<DriveSettings>,
    (seed, ours): (u64, OursOptions),
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<EpisodeResult>, EpisodeFailure> {
    let episode = fitted(episode, drive, seed)?;
    let cases = cases(&episode, ours);
    let of = |case: &Case| Episode { large: case.large, ..episode.with_density(case.density) };
    let found = in_parallel(&cases, threads, stop, |case| {
        run(&of(case), drive, case.on, case.policy, seed)
    })?;
    let mut results = Vec::new();
    for (case, figures) in cases.iter().zip(&found) {
        let Some(figures) = *figures else { continue };
        let alone = cases.iter().zip(&found).find(|(other, _)| {
            let same =
                (other.on, other.density, other.large) == (case.on, case.density, case.large);
            same && other.policy == OffloadPolicy::None
        });
        let Some(alone) = alone.and_then(|(_, alone)| *alone) else { continue };
        let best = cases
            .iter()
            .zip(&found)
            .find(|(other, _)| (other.on, other.policy) == (On::Drive, OffloadPolicy::Ours(ours)));
        let plain = best.and_then(|(_, plain)| *plain).unwrap_or(figures);
        results.push(EpisodeResult {
            drive: drive.profile.name.clone(),
            episode: episode.number,
            seed,
            burst_s: round3(of(case).burst.as_secs_f64()),
            large: case.large,
            on: match case.on {
                On::Drive => "drive",
                On::Controller => "controller",
                On::Volume => "volume",
            },
            policy: case.policy.name(),
            mean_times: round3(alone.mean_ms / figures.mean_ms.max(1e-3)),
            p99_times: round3(alone.p99_ms / figures.p99_ms.max(1e-3)),
            figures,
            gates: gates_of(case, episode.number, &figures, &alone, &plain),
        });
    }
    Ok(results)
}

fn at_least(gate: &'static str, bound: f64, reached: f64) -> EpisodeGate {
    EpisodeGate { gate, bound, reached: round3(reached), holds: reached >= bound }
}

fn at_most(gate: &'static str, bound: f64, reached: f64) -> EpisodeGate {
    EpisodeGate { gate, bound, reached: round3(reached), holds: reached <= bound }
}

/// `alone` is the same volume without stores, `plain` a drive with them.
fn gates_of(
    case: &Case,
    episode: u32,
    figures: &EpisodeFigures,
    alone: &EpisodeFigures,
    plain: &EpisodeFigures,
) -> Vec<EpisodeGate> {
    let ratio = |of: f64, to: f64| of / to.max(1e-3);
    let [mean, p99] = [ratio(alone.mean_ms, figures.mean_ms), ratio(alone.p99_ms, figures.p99_ms)];
    let lenders = [
        at_most("lenders' mean", LENDERS[0], ratio(figures.lenders_mean_ms, alone.lenders_mean_ms)),
        at_most("lenders' p99", LENDERS[1], ratio(figures.lenders_p99_ms, alone.lenders_p99_ms)),
    ];
    let others = [
        at_most("held, MB", HELD_MB, figures.held_max_mb),
        at_most("home, s", HOME_S, figures.home_after_s),
    ];
    match (case.on, case.policy, episode) {
        (_, OffloadPolicy::None | OffloadPolicy::Always | OffloadPolicy::Kept, _) => Vec::new(),
        (On::Drive, OffloadPolicy::Counts(_), 1) => {
            [at_least("mean", 100.0, mean), at_least("p99", 70.0, p99)].into_iter().collect()
        }
        (_, OffloadPolicy::Counts(_), _) | (On::Controller, ..) => Vec::new(),
        (On::Drive, OffloadPolicy::Ours(_), 1) => {
            let gains = [at_least("mean", 150.0, mean), at_least("p99", 150.0, p99)];
            gains.into_iter().chain(others).chain(lenders).collect()
        }
        (On::Drive, OffloadPolicy::Ours(_), 2) => vec![at_least("mean", 3.0, mean)],
        (On::Drive, OffloadPolicy::Ours(_), _) => vec![at_least("mean", 4.0, mean)],
        (On::Volume, OffloadPolicy::Ours(_), _) => {
            let of_alone = ratio(figures.mean_ms, alone.mean_ms);
            match (case.density, case.large) {
                (2, _) => vec![at_most("mean of the volume alone", 0.8, of_alone)],
                (3, _) => vec![at_most("mean of the volume alone", 0.65, of_alone)],
                (_, true) => vec![at_most("mean of the volume alone", 0.5, of_alone)],
                _ => {
                    let better = alone.mean_ms.min(plain.mean_ms);
                    vec![at_most("mean of the better alone", 1.05, ratio(figures.mean_ms, better))]
                }
            }
        }
    }
}
