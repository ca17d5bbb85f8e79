//! What a figure's file says.

use serde::Deserialize;

use super::part::Part;
use super::part::Scaled;

/// A paper: `figures/<paper>/paper.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Paper {
    /// Name on the command line.
    pub name: String,
    /// Authors, title, venue and year.
    pub citation: String,
    /// What holds of all its figures.
    pub about: String,
    /// What is not reproduced.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

/// A part of a paper that is not reproduced.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Where the paper has it.
    pub what: String,
    /// Why it is not reproduced.
    pub why: String,
}

/// A figure or table: `figures/<paper>/<name>.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Name on the command line.
    pub name: String,
    /// Where the paper has it.
    pub source: String,
    /// What it shows.
    pub title: String,
    /// What is done, in a sentence or some.
    pub about: String,
    /// The sentence that its caption must carry where something stands in for the paper's input.
    #[serde(default)]
    pub stand_in: Option<String>,
    /// Why it cannot be tested here; then nothing runs.
    #[serde(default)]
    pub not_testable: Option<String>,
    /// What it takes at the full scale.
    #[serde(default)]
    pub cost: Cost,
    /// Figures whose parts are this one's as well.
    #[serde(default)]
    pub parts_of: Vec<String>,
    /// The file that it was read from, if the program does not bring it along.
    #[serde(skip)]
    pub file: Option<std::path::PathBuf>,
    /// What runs.
    #[serde(default, rename = "part")]
    pub parts: Vec<Part>,
    /// Ratios of two series, over all places.
    #[serde(default, rename = "ratio")]
    pub(super) ratios: Vec<Ratio>,
    /// What is drawn, and put into tables.
    #[serde(default, rename = "plot")]
    pub plots: Vec<Plot>,
    /// What the paper published.
    #[serde(default, rename = "point")]
    pub points: Vec<Point>,
    /// What is claimed.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// What a figure takes at the full scale, on one core.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// Processor time.
    pub seconds: u64,
    /// Memory of each run.
    pub memory_mb: u64,
}

/// How much more (or less) `series` has than `over`: least, most and mean over all places. Without
/// `over` they are of the metric itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Ratio {
    /// The name under which the page shows the ratio, as a series with the places `min`, `max` and
    /// `mean`.
    pub(super) name: String,
    pub(super) series: String,
    #[serde(default)]
    pub(super) over: Option<String>,
    pub(super) metric: String,
    /// Less is better: the ratio is that of `over` to `series`.
    #[serde(default)]
    pub(super) less_is_better: bool,
}

/// A metric of some series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plot {
    /// Name of the metric, and what it is.
    pub metric: String,
    /// What it is, with its unit.
    pub title: String,
    /// What stands below the axis.
    pub x_title: String,
    /// The series, in order; all that have the metric, if not given.
    #[serde(default)]
    pub series: Vec<String>,
    /// Places lie where their numbers are, and not evenly.
    #[serde(default)]
    pub numeric: bool,
    /// The metric's axis is logarithmic.
    #[serde(default)]
    pub logarithmic: bool,
}

/// A figure that the paper published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Point {
    /// The series.
    pub series: String,
    /// The place.
    pub x: String,
    /// The metric.
    pub metric: String,
    /// What the paper has.
    pub value: f64,
    /// Where.
    pub source: String,
}

/// What is claimed: an order of series, or a band in which a figure lies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// What is claimed, in words.
    pub text: String,
    /// What is compared.
    pub metric: String,
    /// Places; all that the series have, if not given.
    #[serde(default)]
    pub x: Vec<String>,
    /// Each of these has more than the next.
    #[serde(default)]
    pub order: Vec<String>,
    /// Each has at least as much, instead of more.
    #[serde(default)]
    pub or_equal: bool,
    /// Each has less than the next, instead.
    #[serde(default)]
    pub ascending: bool,
    /// Series that lie in the band.
    #[serde(default)]
    pub series: Vec<String>,
    /// A metric of which each of the series has less, at each place.
    #[serde(default)]
    pub more_than: Option<String>,
    /// Least of the band.
    #[serde(default)]
    pub least: Option<f64>,
    /// Most of the band.
    #[serde(default)]
    pub most: Option<f64>,
    /// `mean` or `geometric-mean`: over all places and series together, instead of each.
    #[serde(default)]
    pub over: Option<Over>,
    /// Whether it holds here: if not, `why` says why.
    pub holds: bool,
    /// Why it does not hold here.
    #[serde(default)]
    pub why: Option<String>,
    /// The least scale at which it means something.
    #[serde(default = "smallest")]
    pub from_scale: u32,
}

/// What becomes of many figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Their mean.
    Mean,
    /// Their geometric mean.
    GeometricMean,
}

/// No length, in seconds, and no number of seeds is larger: 11 days.
const SCALED_MAX: u64 = 1_000_000;

const fn smallest() -> u32 {
    1
}

impl Figure {
    /// Reads a figure's file, and checks that it makes sense by itself.
    ///
    /// # Errors
    /// What is wrong, with the line where TOML is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let figure: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for claim in &figure.claims {
            let is_order = claim.order.len() >= 2 && claim.series.is_empty();
            let has_band =
                claim.least.is_some() || claim.most.is_some() || claim.more_than.is_some();
            let is_band = claim.order.is_empty() && !claim.series.is_empty() && has_band;
            if !is_order && !is_band {
                return Err(format!(
                    "claim {:?}: expected `order` of two series or more, or `series` with `least`, \
                     `most` or `more-than`",
                    claim.text
                ));
            }
            if !claim.holds && claim.why.is_none() {
                return Err(format!("claim {:?}: expected `why` it does not hold", claim.text));
            }
        }
        figure.check_scaled()?;
        let runs = !figure.parts.is_empty() || !figure.parts_of.is_empty();
        if runs == figure.not_testable.is_some() {
            return Err("expected parts, or `not-testable` with the reason".to_owned());
        }
        Ok(figure)
    }

    fn check_scaled(&self) -> Result<(), String> {
        let all = self.parts.iter().flat_map(|part| match part {
            Part::FsInterfere(part) => vec![("seconds", part.seconds)],
            Part::FsApplications(part) => vec![("seconds", part.seconds)],
            Part::Interfere(part) => vec![("seconds", part.seconds)],
            Part::FsTrees(part) => part.scaled(),
            Part::FsPrograms(part) => part.scaled(),
            Part::RandomWrites(part) => part.scaled(),
            Part::FsCleaner(part) => {
                vec![("journal-mib", part.journal_mib), ("span-gb", part.span_gb)]
            }
            Part::FsMounts(part) => {
                vec![("journal-mib", part.journal_mib), ("live", part.live)]
            }
            Part::Replay(part) => vec![("window-s", part.window_s), ("seeds", part.seeds)],
            Part::Episodes(part) => {
                vec![("share-percent", part.share_percent), ("seeds", part.seeds)]
            }
            Part::Lent(part) => {
                vec![("warm-s", part.warm_s), ("seconds", part.seconds), ("seeds", part.seeds)]
            }
            Part::Reclaim(part) => vec![("writes", part.writes)],
            Part::Recovery(part) => vec![("records", part.records)],
            Part::Chain(part) => vec![("seconds", part.seconds)],
        });
        for (field, Scaled(smallest, full)) in all {
            if !(1 <= smallest && smallest <= full && full <= SCALED_MAX) {
                return Err(format!(
                    "{field} = [{smallest}, {full}]: expected the smallest and the full scale, \
                     with 1 <= smallest <= full <= {SCALED_MAX}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_go_from_the_smallest_to_the_full() {
        let figure = include_str!("../../../../../figures/manylogs/fig7a.toml");
        assert!(figure.contains("window-s = [300, 3600]"));
        for (window, is_right) in [
            ("[300, 3600]", true),
            ("[1, 1]", true),
            ("[60, 30]", false),
            ("[0, 30]", false),
            ("[1, 18446744073709551615]", false),
        ] {
            let parsed = Figure::parse(&figure.replace("[300, 3600]", window));
            match is_right {
                true => assert!(parsed.is_ok(), "{window}"),
                false => assert!(parsed.unwrap_err().contains("window-s = ["), "{window}"),
            }
        }
        let seeds = figure.replace("[300, 3600]", "[300, 3600]\nseeds = [3, 1]");
        assert!(Figure::parse(&seeds).unwrap_err().contains("seeds = [3, 1]"));
    }
}
