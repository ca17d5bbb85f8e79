//! Whether claims hold.

use super::cells::Cells;
use super::file::{Claim, Over};
use super::plan::Scale;

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It holds.
    Held,
    /// It does not.
    Failed,
    /// It was not tested.
    NotTestable,
}

impl Standing {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "failed",
            Self::NotTestable => "not testable here",
        }
    }
}

/// A claim that was looked at.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    /// The claim.
    pub claim: String,
    /// How it stands.
    pub standing: Standing,
    /// What decides, or why it was not tested.
    pub because: String,
    /// Whether the figure's file says that it holds.
    pub expected: bool,
    /// Why it does not hold, as the figure's file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Verdict {
    /// Whether it should hold, and does not.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.expected && self.standing == Standing::Failed
    }

    pub(super) fn not_tested(claim: &Claim, because: &str) -> Self {
        Self::new(claim, Standing::NotTestable, because.to_owned())
    }

    fn new(claim: &Claim, standing: Standing, because: String) -> Self {
        let why = (standing == Standing::Failed).then(|| claim.why.clone()).flatten();
        Self { claim: claim.text.clone(), standing, because, expected: claim.holds, why }
    }
}

/// Looks at a claim.
pub(super) fn look(claim: &Claim, cells: &Cells, scale: Scale) -> Verdict {
    if scale.number() < claim.from_scale {
        let because = format!("means something from scale {} on", claim.from_scale);
        return Verdict::not_tested(claim, &because);
    }
    if claim.order.is_empty() { band(claim, cells) } else { order(claim, cells) }
}

/// Places of the claim at which `series` has the metric.
fn places<'a>(claim: &'a Claim, cells: &'a Cells, series: &str) -> Vec<(&'a str, f64)> {
    let all = cells.places(series, &claim.metric);
    all.into_iter()
        .filter(|(x, _)| claim.x.is_empty() || claim.x.iter().any(|wanted| wanted == x))
        .collect()
}

fn missing(claim: &Claim, cells: &Cells, names: &[String]) -> Option<Verdict> {
    let wanted = claim.x.len().max(1);
    let lacks = |name: &&String| places(claim, cells, name).len() < wanted;
    let name = names.iter().find(lacks)?;
    let because = format!("{name} has no {} (at all places)", claim.metric);
    Some(Verdict::not_tested(claim, &because))
}

fn order(claim: &Claim, cells: &Cells) -> Verdict {
    if let Some(verdict) = missing(claim, cells, &claim.order) {
        return verdict;
    }
    if let Some(over) = claim.over {
        return order_together(claim, over, cells);
    }
    let mut closest: Option<(f64, String)> = None;
    for pair in claim.order.windows(2) {
        let (first, second) = (&pair[0], &pair[1]);
        for (x, value) in places(claim, cells, first) {
            let Some(other) = cells.get(second, x, &claim.metric) else { continue };
            let (more, less) = if claim.ascending { (other, value) } else { (value, other) };
            let said = format!("{first} {value:.2}, {second} {other:.2} at {x}");
            if more < less || (!claim.or_equal && more <= less) {
                return Verdict::new(claim, Standing::Failed, said);
            }
            let ratio = more / less.max(1e-9);
            if closest.as_ref().is_none_or(|(least, _)| ratio < *least) {
                closest = Some((ratio, said));
            }
        }
    }
    match closest {
        Some((_, said)) => Verdict::new(claim, Standing::Held, format!("closest: {said}")),
        None => Verdict::not_tested(claim, "the series have no place in common"),
    }
}

fn order_together(claim: &Claim, over: Over, cells: &Cells) -> Verdict {
    let value = |name: &String| {
        let all: Vec<(&String, &str, f64)> =
            places(claim, cells, name).into_iter().map(|(x, value)| (name, x, value)).collect();
        together(over, &all).1
    };
    let values: Vec<f64> = claim.order.iter().map(value).collect();
    let said: Vec<String> =
        claim.order.iter().zip(&values).map(|(name, value)| format!("{name} {value:.2}")).collect();
    let is_kept = |pair: &[f64]| {
        let (more, less) = if claim.ascending { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
        more > less || (claim.or_equal && more >= less)
    };
    let held = values.windows(2).all(is_kept);
    let standing = if held { Standing::Held } else { Standing::Failed };
    Verdict::new(claim, standing, said.join(", "))
}

fn band(claim: &Claim, cells: &Cells) -> Verdict {
    if let Some(verdict) = missing(claim, cells, &claim.series) {
        return verdict;
    }
    let all: Vec<(&String, &str, f64)> = claim
        .series
        .iter()
        .flat_map(|name| places(claim, cells, name).into_iter().map(move |(x, v)| (name, x, v)))
        .collect();
    let values: Vec<(String, f64)> = match claim.over {
        None => all.iter().map(|(name, x, value)| (format!("{name} at {x}"), *value)).collect(),
        Some(over) => vec![together(over, &all)],
    };
    let (least, most) = (claim.least.unwrap_or(f64::MIN), claim.most.unwrap_or(f64::MAX));
    let outside = values.iter().find(|(_, value)| !(least..=most).contains(value));
    if let Some((what, value)) = outside {
        return Verdict::new(claim, Standing::Failed, format!("{what}: {value:.2}"));
    }
    let low = values.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let high = values.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    let said =
        if values.len() == 1 { format!("{low:.2}") } else { format!("{low:.2} to {high:.2}") };
    Verdict::new(claim, Standing::Held, said)
}

fn together(over: Over, all: &[(&String, &str, f64)]) -> (String, f64) {
    let count = all.len() as f64;
    match over {
        Over::Mean => {
            let sum: f64 = all.iter().map(|(_, _, value)| value).sum();
            (format!("mean of {count}"), sum / count)
        }
        Over::GeometricMean => {
            let sum: f64 = all.iter().map(|(_, _, value)| value.max(1e-9).ln()).sum();
            (format!("geometric mean of {count}"), (sum / count).exp())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Metrics;

    fn cells() -> Cells {
        let mut cells = Cells::default();
        for (series, values) in [("a", [90.0, 50.0]), ("b", [80.0, 50.0])] {
            for (x, value) in ["40", "80"].iter().zip(values) {
                cells.add(series, x, &[Metrics::from([("kept".to_owned(), value)])]);
            }
        }
        cells
    }

    fn stands(text: &str) -> Verdict {
        let text = format!("text = 't'\nmetric = 'kept'\n{text}");
        look(&toml::from_str(&text).unwrap(), &cells(), Scale::FULL)
    }

    #[test]
    fn orders_and_bands_hold_or_do_not() {
        for (text, expected) in [
            ("order = ['a', 'b']\nholds = true", Standing::Failed),
            ("order = ['a', 'b']\nor-equal = true\nholds = true", Standing::Held),
            ("order = ['a', 'b']\nx = ['40']\nholds = true", Standing::Held),
            ("order = ['b', 'a']\nx = ['40']\nascending = true\nholds = true", Standing::Held),
            ("order = ['a', 'c']\nholds = true", Standing::NotTestable),
            ("order = ['a', 'b']\nx = ['90']\nholds = true", Standing::NotTestable),
            ("series = ['a', 'b']\nleast = 50\nmost = 90\nholds = true", Standing::Held),
            ("series = ['a']\nleast = 51\nholds = true", Standing::Failed),
            ("series = ['a']\nleast = 60\nover = 'mean'\nholds = true", Standing::Held),
            ("series = ['a']\nleast = 68\nover = 'geometric-mean'\nholds = true", Standing::Failed),
            ("series = ['a']\nleast = 1\nholds = true\nfrom-scale = 11", Standing::NotTestable),
        ] {
            let verdict = stands(text);
            assert_eq!(verdict.standing, expected, "{text}: {}", verdict.because);
            assert_eq!(verdict.is_broken(), expected == Standing::Failed);
        }
    }

    #[test]
    fn a_failure_that_is_known_is_not_broken() {
        let verdict = stands("series = ['a']\nleast = 51\nholds = false\nwhy = 'w'");
        assert!(!verdict.is_broken());
        assert_eq!(verdict.why.as_deref(), Some("w"));
    }
}
