//! What runs gave, as one value for each series, place and metric.

use std::collections::BTreeMap;

use crate::stats::round3;

/// Metrics of one run by name.
pub type Metrics = BTreeMap<String, f64>;

/// The measures of a figure: series, each with places, each with metrics. Both keep the order in
/// which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells(Vec<(String, Vec<(String, Metrics)>)>);

impl Cells {
    /// Adds what the runs of a series gave at a place: means over its seeds.
    pub(super) fn add(&mut self, series: &str, x: &str, runs: &[Metrics]) {
        let mut sums: BTreeMap<&String, (f64, f64)> = BTreeMap::new();
        for (name, value) in runs.iter().flatten() {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + value, sum.1 + 1.0);
        }
        let means = sums.into_iter().map(|(name, (sum, n))| (name.clone(), round3(sum / n)));
        let at = match self.0.iter().position(|(name, _)| name == series) {
            Some(at) => at,
            None => {
                self.0.push((series.to_owned(), Vec::new()));
                self.0.len() - 1
            }
        };
        let places = &mut self.0[at].1;
        match places.iter_mut().find(|(place, _)| place == x) {
            Some((_, metrics)) => metrics.extend(means),
            None => places.push((x.to_owned(), means.collect())),
        }
    }

    /// Names of the series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Places of a series at which it has the metric.
    pub fn places<'a>(&'a self, series: &str, metric: &'a str) -> Vec<(&'a str, f64)> {
        let found = self.0.iter().find(|(name, _)| name == series);
        let places = found.map_or(&[][..], |(_, places)| places);
        places.iter().filter_map(|(x, all)| Some((x.as_str(), *all.get(metric)?))).collect()
    }

    /// One value.
    #[must_use]
    pub fn get(&self, series: &str, x: &str, metric: &str) -> Option<f64> {
        self.places(series, metric).into_iter().find(|(place, _)| *place == x).map(|(_, it)| it)
    }

    /// All of them: series, place, metric, value.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &str, f64)> {
        self.0.iter().flat_map(|(series, places)| {
            places.iter().flat_map(move |(x, metrics)| {
                metrics
                    .iter()
                    .map(move |(name, value)| (series.as_str(), x.as_str(), name.as_str(), *value))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_the_mean_of_its_runs() {
        let run = |value: f64| Metrics::from([("kept".to_owned(), value)]);
        let mut cells = Cells::default();
        cells.add("b", "40", &[run(1.0), run(2.0)]);
        cells.add("a", "40", &[run(5.0)]);
        cells.add("b", "80", &[run(7.0)]);
        assert_eq!(cells.series().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(cells.places("b", "kept"), [("40", 1.5), ("80", 7.0)]);
        assert_eq!((cells.get("a", "40", "kept"), cells.get("a", "80", "kept")), (Some(5.0), None));
    }
}
