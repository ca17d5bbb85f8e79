//! All that was measured, as rows.

use super::cells::Metrics;
use super::judged::JudgedFigure;
use super::plan::Planned;
use crate::runs::RunKey;
use crate::sweep::{Column, Columns};

/// Figure, series, place, seed, metric and value.
type RawRow<'a> = (&'a str, &'a str, &'a str, u64, String, f64);

/// One row for each run of each series and place, before anything is averaged, and each metric.
#[must_use]
pub fn raw(all: &[Planned], done: &dyn Fn(RunKey) -> Option<Metrics>) -> Columns {
    let mut rows: Vec<RawRow<'_>> = Vec::new();
    for planned in all {
        for place in &planned.places {
            for (seed, (key, _)) in (1..).zip(&place.runs) {
                let metrics = done(*key).unwrap_or_default();
                rows.extend(metrics.into_iter().map(|(metric, value)| {
                    (&*planned.figure.name, &*place.series, &*place.x, seed, metric, value)
                }));
            }
        }
    }
    let text = |of: fn(&RawRow<'_>) -> String| Column::Text(rows.iter().map(of).collect());
    let mut columns = Columns::default();
    columns.add("figure", text(|row| row.0.to_owned()));
    columns.add("series", text(|row| row.1.to_owned()));
    columns.add("place", text(|row| row.2.to_owned()));
    columns.add("seed", Column::Whole(rows.iter().map(|row| row.3).collect()));
    columns.add("metric", text(|row| row.4.clone()));
    columns.add("value", Column::Real(rows.iter().map(|row| Some(row.5)).collect()));
    columns
}

impl JudgedFigure {
    /// Series of a plot: those that it names, or all that have its metric.
    pub(super) fn series_of(&self, plot: &super::file::Plot) -> Vec<String> {
        let has = |name: &&str| !self.cells.places(name, &plot.metric).is_empty();
        match plot.series.is_empty() {
            true => self.cells.series().filter(has).map(str::to_owned).collect(),
            false => plot.series.iter().filter(|name| has(&name.as_str())).cloned().collect(),
        }
    }

    /// Places of these series, in order.
    pub(super) fn places_of(&self, series: &[String], metric: &str) -> Vec<String> {
        let mut places: Vec<String> = Vec::new();
        for name in series {
            for (x, _) in self.cells.places(name, metric) {
                if places.iter().all(|other| other != x) {
                    places.push(x.to_owned());
                }
            }
        }
        places
    }
}
