//! Parts of figures that are episodes of a mail server's peak, and their metrics.

use std::sync::Arc;

use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, in_field};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::work::{Work, put};
use crate::episodes::{
    Counts, Episode, EpisodeFailure, HeldAt, OffloadPolicy, On, fitted, run_over_time,
};
use crate::grid::MadeOnce;
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

/// Metrics of what stores hold, at minutes of an episode, begin so.
pub(super) const HELD_AT: &str = "held_mb_at_";

/// Episodes, as of `manylogs episodes`: the lengths of bursts are fitted first, so that a drive
/// takes the paper's mean.
///
/// `series` and `x` are patterns of `{drive}`, `{episode}`, `{policy}`, `{on}`, `{density}`,
/// `{writes}`, `{t-base}`, `{t-store}` and `{n-reclaim}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Episodes {
    series: String,
    #[serde(default = "episode")]
    x: String,
    drives: Vec<String>,
    /// 1 to 3.
    episodes: Vec<u32>,
    /// none, everest-paper, wait, always, always-kept.
    policies: Vec<String>,
    /// What the busy volume is: drive, volume.
    #[serde(default = "on_drive")]
    on: Vec<String>,
    /// How many times as dense bursts are.
    #[serde(default = "one")]
    densities: Vec<u64>,
    /// Writes: small, or large (a third of them of 512 KiB).
    #[serde(default = "small")]
    writes: Vec<String>,
    /// Thresholds of the paper's policy, and how much goes home together.
    #[serde(default = "paper_base")]
    t_base: Vec<u64>,
    #[serde(default = "paper_store")]
    t_store: Vec<u64>,
    #[serde(default = "paper_together")]
    n_reclaim: Vec<u64>,
    /// What stores hold over time becomes places of the series.
    #[serde(default)]
    over_time: bool,
    /// How much of each episode runs.
    pub(super) share_percent: Scaled,
    #[serde(default = "super::part::one_seed")]
    pub(super) seeds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

fn episode() -> String {
    "{episode}".to_owned()
}

fn on_drive() -> Vec<String> {
    vec!["drive".to_owned()]
}

fn small() -> Vec<String> {
    vec!["small".to_owned()]
}

fn one() -> Vec<u64> {
    vec![1]
}

fn paper_base() -> Vec<u64> {
    vec![Counts::PAPER.base]
}

fn paper_store() -> Vec<u64> {
    vec![Counts::PAPER.store]
}

fn paper_together() -> Vec<u64> {
    vec![Counts::PAPER.together]
}

/// One run of an episode.
#[derive(Clone, Debug)]
pub(super) struct EpisodeCase {
    /// With bursts that are still to be fitted.
    episode: Episode,
    drive: Arc<DriveSettings>,
    density: u64,
    large: bool,
    on: On,
    policy: OffloadPolicy,
    seed: u64,
}

/// Lengths of bursts, by episode, drive and seed.
#[derive(Debug, Default)]
pub(super) struct Fits(MadeOnce<Result<Episode, String>>);

impl EpisodeCase {
    fn name(&self) -> String {
        let Self { episode, drive, on, policy, seed, .. } = self;
        let (number, drive) = (episode.number, &drive.profile.name);
        format!("episode {number} on {drive}, {on:?}, {}, seed {seed}", policy.name())
    }

    fn key(&self) -> RunKey {
        let Self { density, large, on, policy, .. } = self;
        self.fit_key("episode").with("case", format!("{density} {large} {on:?} {policy:?}")).key()
    }

    /// All that the length of bursts follows from.
    fn fit_key(&self, kind: &str) -> KeyBuilder {
        let Self { episode, drive, seed, .. } = self;
        drive.add_to(KeyBuilder::new(kind)).with("episode", format!("{episode:?} {seed}"))
    }

    /// Runs it, with bursts of the fitted length.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn measure(&self, fits: &Fits) -> Result<Metrics, EpisodeFailure> {
        let Self { drive, density, large, on, policy, seed, .. } = self;
        let made = fits.0.get(self.fit_key("fit").key().to_string(), || {
            fitted(self.episode, drive, *seed).map_err(|error| error.to_string())
        });
        let fitted = (*made).clone().map_err(EpisodeFailure::Fit)?;
        let episode = Episode { large: *large, ..fitted.with_density(*density) };
        let (figures, held) = run_over_time(&episode, drive, *on, *policy, *seed)?;
        let offered = episode.offered(drive, *seed);
        let mut metrics = Metrics::new();
        for (name, value) in [
            ("requests", offered.requests as f64),
            ("reads_percent", offered.reads_percent),
            ("peak_per_s", offered.peak_per_s),
            ("burst_s", episode.burst.as_secs_f64()),
            ("mean_ms", figures.mean_ms),
            ("p99_ms", figures.p99_ms),
            ("reads_mean_ms", figures.reads_mean_ms),
            ("reads_p99_ms", figures.reads_p99_ms),
            ("writes_mean_ms", figures.writes_mean_ms),
            ("writes_p99_ms", figures.writes_p99_ms),
            ("lenders_mean_ms", figures.lenders_mean_ms),
            ("lenders_p99_ms", figures.lenders_p99_ms),
            ("offloaded_percent", figures.offloaded_percent),
            ("held_max_mb", figures.held_max_mb),
            ("held_mean_mb", figures.held_mean_mb),
            ("home_after_s", figures.home_after_s),
        ] {
            put(&mut metrics, name, value);
        }
        held.iter().for_each(|at| note_held(&mut metrics, at));
        Ok(metrics)
    }
}

/// What is held at a minute, as far as samples have it.
fn note_held(metrics: &mut Metrics, at: &HeldAt) {
    let minute = format!("{:06.2}", at.since.as_secs_f64() / 60.0);
    put(metrics, &format!("{HELD_AT}{minute}"), at.mb);
}

/// The minute of such a metric.
pub(super) fn minute(name: &str) -> String {
    let minute: Option<f64> = name.strip_prefix(HELD_AT).and_then(|text| text.parse().ok());
    minute.map_or_else(|| name.to_owned(), |minute| minute.to_string())
}

/// How many times better than without stores.
pub(super) fn derive(metrics: &mut Metrics, alone: &Metrics) {
    let times = |of: &str, metrics: &Metrics, less: bool| {
        let (own, alone) = (metrics.get(of)?, alone.get(of)?);
        let (more, less) = if less { (alone, own) } else { (own, alone) };
        Some(more / less.max(1e-3))
    };
    for (name, of, less) in [
        ("mean_times", "mean_ms", true),
        ("p99_times", "p99_ms", true),
        ("reads_mean_times", "reads_mean_ms", true),
        ("writes_mean_times", "writes_mean_ms", true),
        ("lenders_mean_times", "lenders_mean_ms", false),
        ("lenders_p99_times", "lenders_p99_ms", false),
    ] {
        if let Some(value) = times(of, metrics, less) {
            put(metrics, name, value);
        }
    }
}

pub(super) fn plan(part: &Episodes, scale: Scale, planned: &mut Planned) -> Planning {
    let seeds: Vec<u64> = (1..=scale.of(part.seeds)).collect();
    for name in &part.drives {
        let profile = drive(name).map_err(in_field("drives"))?;
        let settings = Arc::new(DriveSettings::new(profile, false));
        for number in &part.episodes {
            let known = Episode::ALL.into_iter().find(|one| one.number == *number);
            let known = known.ok_or_else(|| format!("episodes: there is no {number}"))?;
            let episode = known.shortened(scale.of(part.share_percent));
            let of_seed = |seed: &u64| EpisodeCase {
                episode,
                drive: Arc::clone(&settings),
                density: 1,
                large: false,
                on: On::Drive,
                policy: OffloadPolicy::None,
                seed: *seed,
            };
            let usual: Vec<EpisodeCase> = seeds.iter().map(of_seed).collect();
            for (words, case) in combinations(part)? {
                let words: Vec<(&str, &str)> =
                    words.iter().map(|(word, value)| (*word, value.as_str())).collect();
                let number = number.to_string();
                let words = [&words[..], &[("drive", &**name), ("episode", &number)]].concat();
                let run = |usual: &EpisodeCase| {
                    let Combination { on, density, large, policy } = case;
                    let case = EpisodeCase { on, density, large, policy, ..usual.clone() };
                    let alone = EpisodeCase { policy: OffloadPolicy::None, ..case.clone() };
                    let mut add = |case: EpisodeCase| {
                        let (key, name) = (case.key(), case.name());
                        planned.add_run(key, name, Work::Episode(Box::new(case)))
                    };
                    let alone = add(alone);
                    (add(case), Some(alone))
                };
                let runs = usual.iter().map(run).collect();
                let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                let kind = PlaceKind::Episode { over_time: part.over_time };
                planned.places.push(Place { series, x, runs, kind });
            }
        }
    }
    Ok(())
}

/// What a run has besides its episode, drive and seed.
#[derive(Clone, Copy, Debug)]
struct Combination {
    on: On,
    density: u64,
    large: bool,
    policy: OffloadPolicy,
}

type Words = Vec<(&'static str, String)>;

/// All combinations of the lists of a part, each with its words.
fn combinations(part: &Episodes) -> Result<Vec<(Words, Combination)>, String> {
    let mut all: Vec<(Words, Combination)> = Vec::new();
    for on_name in &part.on {
        let on = match &**on_name {
            "drive" => On::Drive,
            "volume" => On::Volume,
            "controller" => On::Controller,
            other => {
                return Err(format!("on: {other:?}: expected drive, volume or controller"));
            }
        };
        for writes in &part.writes {
            let large = match &**writes {
                "small" => false,
                "large" => true,
                other => return Err(format!("writes: {other:?}: expected small or large")),
            };
            for &density in &part.densities {
                for (mut words, policy) in policies(part)? {
                    words.push(("on", on_name.clone()));
                    words.push(("writes", writes.clone()));
                    words.push(("density", density.to_string()));
                    all.push((words, Combination { on, density, large, policy }));
                }
            }
        }
    }
    Ok(all)
}

/// The policy of this name.
pub(super) fn policy(name: &str) -> Result<OffloadPolicy, String> {
    OffloadPolicy::named(name).ok_or_else(|| format!("policies: unknown {name:?}"))
}

/// The policies of a part: the paper's with each of its settings.
fn policies(part: &Episodes) -> Result<Vec<(Words, OffloadPolicy)>, String> {
    let mut all = Vec::new();
    for name in &part.policies {
        let policy = policy(name)?;
        let words = |counts: Counts| {
            let Counts { base, store, together } = counts;
            vec![
                ("policy", name.clone()),
                ("t-base", base.to_string()),
                ("t-store", store.to_string()),
                ("n-reclaim", together.to_string()),
            ]
        };
        if policy != OffloadPolicy::PAPER {
            all.push((words(Counts::PAPER), policy));
            continue;
        }
        for &base in &part.t_base {
            for &store in &part.t_store {
                for &together in &part.n_reclaim {
                    let counts = Counts { base, store, together };
                    all.push((words(counts), OffloadPolicy::Counts(counts)));
                }
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, Folder, plan};
    use super::*;

    const FIGURE: &str = "name = 'f'\nsource = 's'\ntitle = 't'\nabout = 'a'\n[[part]]\n\
        kind = 'episodes'\nseries = '{policy} {t-base}'\ndrives = ['cheetah-15k5']\n\
        episodes = [1, 3]\npolicies = ['none', 'everest-paper']\nt-base = [16, 32]\n\
        share-percent = [5, 100]\nseeds = [2, 3]\n";

    fn planned(text: &str) -> Result<Planned, String> {
        let figure = Figure::parse(text)?;
        let scale = Scale::new(1).unwrap();
        plan(&figure, &[], scale, &Folder::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_combination_is_a_place_and_what_is_alike_runs_once() {
        let planned = planned(FIGURE).unwrap();
        let places: Vec<(&str, &str)> =
            planned.places.iter().map(|place| (&*place.series, &*place.x)).collect();
        let of = |x| [("none 32", x), ("everest-paper 16", x), ("everest-paper 32", x)];
        assert_eq!(places, [of("1"), of("3")].concat());
        // Two seeds of each; without stores there is nothing to compare with but itself.
        assert_eq!(planned.runs.len(), 2 * places.len());
        assert!(planned.places[0].runs.iter().all(|(run, alone)| Some(*run) == *alone));
        assert!(planned.places[2].runs.iter().all(|(run, alone)| Some(*run) != *alone));
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_field() {
        for (from, to, words) in [
            ("[1, 3]", "[4]", "episodes: there is no 4"),
            ("'none', ", "'some', ", "policies: unknown \"some\""),
            ("cheetah-15k5", "no-such-drive", "drives: "),
            ("t-base = ", "on = ['tape']\nt-base = ", "on: \"tape\""),
            ("t-base = ", "writes = ['huge']\nt-base = ", "writes: \"huge\""),
            ("[5, 100]", "[0, 100]", "share-percent = [0, 100]"),
        ] {
            let error = planned(&FIGURE.replace(from, to)).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn what_stores_hold_over_time_keeps_its_order() {
        let mut metrics = Metrics::new();
        for (seconds, mb) in [(10, 1.0), (600, 2.0), (90, 3.0)] {
            note_held(
                &mut metrics,
                &HeldAt { since: manylogs_block::Nanos::from_secs(seconds), mb },
            );
        }
        let found: Vec<(String, f64)> =
            metrics.iter().map(|(name, mb)| (minute(name), *mb)).collect();
        let expected = [("0.17", 1.0), ("1.5", 3.0), ("10", 2.0)];
        assert_eq!(found, expected.map(|(at, mb)| (at.to_owned(), mb)));
    }

    #[test]
    fn what_stores_gain_is_told_in_times() {
        let metrics = |mean: f64, lenders: f64| {
            let pairs = [("mean_ms", mean), ("lenders_mean_ms", lenders)];
            Metrics::from(pairs.map(|(name, value)| (name.to_owned(), value)))
        };
        let mut own = metrics(5.0, 6.0);
        derive(&mut own, &metrics(100.0, 5.0));
        assert_eq!((own["mean_times"], own["lenders_mean_times"]), (20.0, 1.2));
    }
}
