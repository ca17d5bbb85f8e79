//! From the files of figures to runs.

use std::collections::BTreeMap;

use thiserror::Error;

use super::applications;
use super::cells::{Cells, Metrics};
use super::chains;
use super::claims::Gaps;
use super::cleaner;
use super::episodes;
use super::file::{Figure, Ratio};
use super::folder::Folder;
use super::lent;
use super::part::{Part, Scaled};
use super::parts;
use super::programs;
use super::random;
use super::trees;
use super::work::{Run, percentile};
use crate::mlfs::trees::PhaseKind;
use crate::runs::RunKey;
use crate::sweep::JobError;

/// How much of a figure runs: 1 is the smallest, 10 as the papers have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scale(u32);

impl Scale {
    /// The papers' lengths and ours.
    pub const FULL: Self = Self(10);

    /// The scale of this number; `None` beyond 1 to 10.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (1..=Self::FULL.0).contains(&number).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    pub(super) fn of(self, Scaled(smallest, full): Scaled) -> u64 {
        let steps = u64::from(Self::FULL.0 - 1);
        smallest + (full - smallest) * u64::from(self.0 - 1) / steps
    }
}

/// Why a figure cannot be planned.
#[derive(Debug, Error)]
#[error("{figure}: {reason}")]
pub struct PlanError {
    /// The figure.
    pub figure: String,
    /// What is wrong with its file.
    pub reason: String,
}

/// A figure with its runs.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The figure.
    pub figure: Figure,
    /// Its runs; several figures may share some.
    pub runs: Vec<Run>,
    /// What cannot run, and why.
    pub left_out: Vec<JobError>,
    /// Traces that were found and are used.
    pub traces: Vec<String>,
    pub(super) places: Vec<Place>,
}

/// Where the metrics of some runs go.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) series: String,
    pub(super) x: String,
    /// Runs with their baselines, one pair a seed.
    pub(super) runs: Vec<(RunKey, Option<RunKey>)>,
    pub(super) kind: PlaceKind,
}

/// What is derived of the metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PlaceKind {
    /// The share of the stream that is kept.
    Beside,
    /// The paper's measure of speed-up, at each percentile. The rate is the drive's, in MB/s.
    Replayed { outer_mb_s: f64, curve: bool },
    /// How many times better than without stores; what these hold over time.
    Episode { over_time: bool },
    /// How many times as much without lent drives.
    Lent,
    /// How many times as long as in the baseline somebody waits.
    Waits,
    /// How many times as fast as the baseline, and how much of its cleaning.
    Program,
    /// Nothing.
    Alone,
    /// What one phase took, and how much less than in the baseline.
    Phase(PhaseKind),
}

/// Plans `figure`, with those of `others` whose parts it has as well.
///
/// # Errors
/// If a name in its file is not known.
pub fn plan(
    figure: &Figure,
    others: &[Figure],
    scale: Scale,
    folder: &Folder,
) -> Result<Planned, PlanError> {
    let named = figure.file.as_ref().map(|path| path.display().to_string());
    let named = named.unwrap_or_else(|| figure.name.clone());
    let bad = |reason: String| PlanError { figure: named.clone(), reason };
    if let Some(none) =
        figure.parts_of.iter().find(|name| others.iter().all(|it| it.name != **name))
    {
        return Err(bad(format!("parts-of: there is no figure `{none}`")));
    }
    let mut planned = Planned {
        figure: figure.clone(),
        runs: Vec::new(),
        left_out: Vec::new(),
        traces: Vec::new(),
        places: Vec::new(),
    };
    let borrowed = others.iter().filter(|other| figure.parts_of.contains(&other.name));
    let parts: Vec<&Part> = borrowed.flat_map(|other| &other.parts).chain(&figure.parts).collect();
    for part in parts {
        match part {
            Part::FsInterfere(part) => parts::fs_interfere(part, scale, &mut planned),
            Part::FsApplications(part) => applications::plan(part, scale, &mut planned),
            Part::Interfere(part) => parts::interfere(part, scale, &mut planned),
            Part::FsTrees(part) => trees::plan(part, scale, &mut planned),
            Part::FsCleaner(part) => cleaner::plan(part, scale, &mut planned),
            Part::FsMounts(part) => cleaner::plan_mounts(part, scale, &mut planned),
            Part::FsPrograms(part) => programs::plan(part, scale, &mut planned),
            Part::RandomWrites(part) => random::plan(part, scale, &mut planned),
            Part::Replay(part) => parts::replay(part, scale, folder, &mut planned),
            Part::Episodes(part) => episodes::plan(part, scale, &mut planned),
            Part::Lent(part) => lent::plan(part, scale, &mut planned),
            Part::Reclaim(part) => lent::reclaim(part, scale, &mut planned),
            Part::Recovery(part) => lent::recovery(part, scale, &mut planned),
            Part::Chain(part) => chains::plan(part, scale, &mut planned),
        }
        .map_err(&bad)?;
    }
    planned.check_series().map_err(bad)?;
    Ok(planned)
}

impl Planned {
    /// Adds the place of a run that is compared with no other.
    pub(super) fn add_place(&mut self, series: String, x: String, run: RunKey) {
        self.places.push(Place { series, x, runs: vec![(run, None)], kind: PlaceKind::Alone });
    }

    /// Refuses points and claims about series that no part has.
    fn check_series(&self) -> Result<(), String> {
        let Figure { points, claims, ratios, not_testable, .. } = &self.figure;
        let is_known = |name: &str| {
            self.places.iter().any(|place| place.series == name)
                || ratios.iter().any(|ratio| ratio.name == name)
        };
        let of_points = points.iter().map(|point| ("point", &point.series));
        let of_claims = claims
            .iter()
            .flat_map(|claim| claim.order.iter().chain(&claim.series).map(|name| ("claim", name)));
        let unknown = of_points.chain(of_claims).find(|(_, name)| !is_known(name));
        match unknown.filter(|_| not_testable.is_none()) {
            Some((what, name)) => Err(format!("{what}: no part has the series {name:?}")),
            None => Ok(()),
        }
    }

    /// Places whose runs are not all done.
    pub(super) fn gaps(&self, done: &dyn Fn(RunKey) -> Option<Metrics>) -> Gaps {
        let is_done = |(run, base): &(RunKey, Option<RunKey>)| {
            done(*run).is_some() && base.is_none_or(|base| done(base).is_some())
        };
        let gaps =
            self.places.iter().filter(|it| it.runs.is_empty() || !it.runs.iter().all(is_done));
        let made_of = |ratio: &Ratio| {
            let of = [Some(ratio.series.clone()), ratio.over.clone()];
            (ratio.name.clone(), of.into_iter().flatten().collect())
        };
        Gaps {
            places: gaps.map(|place| (place.series.clone(), place.x.clone())).collect(),
            made_of: self.figure.ratios.iter().map(made_of).collect(),
        }
    }

    /// The figure's cells, of the runs that are done.
    #[must_use]
    pub fn cells(&self, done: &dyn Fn(RunKey) -> Option<Metrics>) -> Cells {
        let mut cells = Cells::default();
        for place in &self.places {
            let one = |(run, base): &(RunKey, Option<RunKey>)| {
                let base = match base {
                    Some(base) => Some(done(*base)?),
                    None => None,
                };
                Some(derived(done(*run)?, base.as_ref(), place.kind))
            };
            let runs: Vec<Metrics> = place.runs.iter().filter_map(one).collect();
            if !runs.is_empty() {
                cells.add(&place.series, &place.x, &runs);
                if matches!(place.kind, PlaceKind::Replayed { curve: true, .. }) {
                    curve(place, &runs, &mut cells);
                }
                if place.kind == (PlaceKind::Episode { over_time: true }) {
                    over_time(place, &runs, &mut cells);
                }
            }
        }
        for ratio in &self.figure.ratios {
            summarise(ratio, &mut cells);
        }
        cells
    }
}

/// Metrics with what follows from them and their baseline.
fn derived(mut metrics: Metrics, base: Option<&Metrics>, kind: PlaceKind) -> Metrics {
    if let PlaceKind::Phase(kind) = kind {
        return trees::of_phase(&metrics, base, kind);
    }
    let Some(base) = base else { return metrics };
    match kind {
        PlaceKind::Beside => {
            if let (Some(own), Some(alone)) = (metrics.get("stream_mb_s"), base.get("stream_mb_s"))
            {
                metrics.insert("kept_percent".to_owned(), own / alone.max(1e-9) * 100.0);
            }
        }
        PlaceKind::Replayed { outer_mb_s, .. } => replayed(&mut metrics, base, outer_mb_s),
        PlaceKind::Episode { .. } => episodes::derive(&mut metrics, base),
        PlaceKind::Lent => lent::derive(&mut metrics, base),
        PlaceKind::Waits => cleaner::derive(&mut metrics, base),
        PlaceKind::Program => programs::derive(&mut metrics, base),
        PlaceKind::Alone | PlaceKind::Phase(_) => {}
    }
    metrics
}

/// Half of a histogram's unit stands for no latency at all.
const LEAST_US: f64 = 0.5;

fn replayed(metrics: &mut Metrics, base: &Metrics, outer_mb_s: f64) {
    let times = |percent: usize| {
        let name = percentile(percent);
        Some(base.get(&name)?.max(LEAST_US) / metrics.get(&name)?.max(LEAST_US))
    };
    let all: Vec<f64> = (1..100).filter_map(times).collect();
    if all.len() == 99 {
        let logs: f64 = all.iter().map(|ratio| ratio.ln()).sum();
        for (name, value) in [
            ("times_mean", all.iter().sum::<f64>() / 99.0),
            ("times_geomean", (logs / 99.0).exp()),
            ("times_least", all.iter().copied().fold(f64::INFINITY, f64::min)),
            ("times_p50", all[49]),
            ("times_p90", all[89]),
        ] {
            metrics.insert(name.to_owned(), value);
        }
        for (at, ratio) in all.iter().enumerate() {
            metrics.insert(format!("times_p{:02}", at + 1), *ratio);
        }
    }
    if let Some(table) = metrics.get("table_kib") {
        let ms = table * 1024.0 / 1e3 / outer_mb_s;
        metrics.insert("table_flush_ms".to_owned(), ms);
        metrics.insert("table_flush_8h_ms".to_owned(), ms * 8.0);
    }
    if let Some(seconds) = metrics.get("checkpoint_s") {
        metrics.insert("checkpoint_8h_s".to_owned(), seconds * 8.0);
    }
}

/// Latency and speed-up at each percentile, as places.
fn curve(place: &Place, runs: &[Metrics], cells: &mut Cells) {
    for percent in 1..100 {
        let of = |run: &Metrics| {
            let mut metrics = Metrics::new();
            if let Some(us) = run.get(&percentile(percent)) {
                metrics.insert("latency_ms".to_owned(), us / 1e3);
            }
            if let Some(times) = run.get(&format!("times_p{percent:02}")) {
                metrics.insert("times".to_owned(), *times);
            }
            metrics
        };
        let all: Vec<Metrics> = runs.iter().map(of).collect();
        cells.add(&place.series, &percent.to_string(), &all);
    }
}

/// What stores hold over time, as places.
fn over_time(place: &Place, runs: &[Metrics], cells: &mut Cells) {
    let mut minutes: BTreeMap<&String, Vec<Metrics>> = BTreeMap::new();
    for (name, mb) in runs.iter().flatten() {
        if name.starts_with(episodes::HELD_AT) {
            let held = Metrics::from([("held_mb".to_owned(), *mb)]);
            minutes.entry(name).or_default().push(held);
        }
    }
    for (name, held) in minutes {
        cells.add(&place.series, &episodes::minute(name), &held);
    }
}

fn summarise(ratio: &Ratio, cells: &mut Cells) {
    let mut found = Vec::new();
    let Some(over) = &ratio.over else {
        let all = cells.places(&ratio.series, &ratio.metric);
        let values: Vec<f64> = all.into_iter().map(|(_, value)| value).collect();
        return spread(&ratio.name, &values, cells);
    };
    for (series, over) in pairs(cells, &ratio.series, over) {
        for (x, own) in cells.places(&series, &ratio.metric) {
            if let Some(other) = cells.get(&over, x, &ratio.metric) {
                let (more, less) = if ratio.less_is_better { (other, own) } else { (own, other) };
                found.push(more / less.max(1e-9));
            }
        }
    }
    spread(&ratio.name, &found, cells);
}

/// Least, most and mean of `found`, as places of a series.
fn spread(name: &str, found: &[f64], cells: &mut Cells) {
    if found.is_empty() {
        return;
    }
    let min = found.iter().copied().fold(f64::INFINITY, f64::min);
    let max = found.iter().copied().fold(0.0, f64::max);
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    for (x, value) in [("min", min), ("max", max), ("mean", mean)] {
        cells.add(name, x, &[BTreeMap::from([("times".to_owned(), value)])]);
    }
}

/// Pairs of series whose names differ in the last part only: `read, manylogs` and `read, ordered`.
fn pairs(cells: &Cells, own: &str, over: &str) -> Vec<(String, String)> {
    let names: Vec<String> = cells.series().map(str::to_owned).collect();
    let ends = |name: &String, end: &str| name.strip_suffix(end).map(str::to_owned);
    let pair = |name: &String| {
        let other = format!("{}{over}", ends(name, own)?);
        let is_whole = name == own || name.ends_with(&format!(", {own}"));
        (is_whole && names.contains(&other)).then(|| (name.clone(), other))
    };
    names.iter().filter_map(pair).collect()
}
