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
///
/// `gaps` are places, with their series, whose runs did not all give something.
pub(super) fn look(claim: &Claim, cells: &Cells, gaps: &Gaps, scale: Scale) -> Verdict {
    if scale.number() < claim.from_scale {
        let because = format!("means something from scale {} on", claim.from_scale);
        return Verdict::not_tested(claim, &because);
    }
    if let Some((name, x)) = gaps.of(claim) {
        let because = format!("{name} is not complete at {x}: runs gave nothing");
        return Verdict::not_tested(claim, &because);
    }
    match &claim.more_than {
        Some(other) => more_than(claim, other, cells),
        None if claim.order.is_empty() => band(claim, cells),
        None => order(claim, cells),
    }
}

/// Places, with their series, whose runs did not all give something.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    pub(super) places: Vec<(String, String)>,
    /// Series that are made of others: name, and what these end with.
    pub(super) made_of: Vec<(String, Vec<String>)>,
}

impl Gaps {
    /// The first that the claim is about.
    fn of(&self, claim: &Claim) -> Option<(&str, &str)> {
        let concerns = |series: &str, x: &str, name: &String| {
            let is_wanted = claim.x.is_empty() || claim.x.iter().any(|wanted| wanted == x);
            let made_of = self.made_of.iter().find(|(made, _)| made == name);
            let is_part = |own: &String| series == own || series.ends_with(&format!(", {own}"));
            (series == name && is_wanted) || made_of.is_some_and(|(_, of)| of.iter().any(is_part))
        };
        let found = self.places.iter().find(|(series, x)| {
            claim.order.iter().chain(&claim.series).any(|name| concerns(series, x, name))
        });
        found.map(|(series, x)| (series.as_str(), x.as_str()))
    }
}

/// A place that one series has, and another has not.
fn only_one(claim: &Claim, cells: &Cells) -> Option<String> {
    let all: Vec<(&String, Vec<(&str, f64)>)> =
        claim.order.iter().map(|name| (name, places(claim, cells, name))).collect();
    all.iter().find_map(|(name, own)| {
        own.iter().find_map(|(x, _)| {
            let lacks = |(_, of): &&(&String, Vec<(&str, f64)>)| of.iter().all(|it| it.0 != *x);
            let (other, _) = all.iter().find(lacks)?;
            Some(format!("{name} has {} at {x}, and {other} has not", claim.metric))
        })
    })
}

/// Whether each series has more of the metric than of `other`, at each place.
fn more_than(claim: &Claim, other: &str, cells: &Cells) -> Verdict {
    if let Some(verdict) = missing(claim, cells, &claim.series) {
        return verdict;
    }
    let mut closest: Option<(f64, String)> = None;
    for name in &claim.series {
        for (x, value) in places(claim, cells, name) {
            let Some(less) = cells.get(name, x, other) else {
                return Verdict::not_tested(claim, &format!("{name} has no {other} at {x}"));
            };
            let said = format!("{name} at {x}: {value:.2} and {less:.2}");
            if value < less || (!claim.or_equal && value <= less) {
                return Verdict::new(claim, Standing::Failed, said);
            }
            let ratio = value / less.max(1e-9);
            if closest.as_ref().is_none_or(|(least, _)| ratio < *least) {
                closest = Some((ratio, said));
            }
        }
    }
    let said = closest.map_or(String::new(), |(_, said)| format!("closest: {said}"));
    Verdict::new(claim, Standing::Held, said)
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
    if let Some(because) = only_one(claim, cells) {
        return Verdict::not_tested(claim, &because);
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
        look(&toml::from_str(&text).unwrap(), &cells(), &Gaps::default(), Scale::FULL)
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
    fn a_claim_does_not_hold_on_some_of_its_places() {
        let mut cells = cells();
        let run = Metrics::from([("kept".to_owned(), 99.0), ("lost".to_owned(), 1.0)]);
        cells.add("a", "160", &[run]);
        let stands = |text: &str, gaps: &Gaps| {
            let text = format!("text = 't'\nmetric = 'kept'\nholds = true\n{text}");
            look(&toml::from_str(&text).unwrap(), &cells, gaps, Scale::FULL)
        };
        let none = Gaps::default();
        let order = "order = ['a', 'b']\nor-equal = true";
        let verdict = stands(order, &none);
        assert_eq!(verdict.standing, Standing::NotTestable);
        assert!(verdict.because.contains("at 160, and b has not"), "{}", verdict.because);
        let at = |x: &str| format!("{order}\nx = ['{x}']");
        assert_eq!(stands(&at("40"), &none).standing, Standing::Held);
        let gap = |series: &str, x: &str| Gaps {
            places: vec![(series.to_owned(), x.to_owned())],
            made_of: vec![("r".to_owned(), vec!["b".to_owned()])],
        };
        for (text, gaps, expected) in [
            (&*at("40"), gap("b", "40"), Standing::NotTestable),
            (&*at("40"), gap("b", "320"), Standing::Held),
            ("series = ['a']\nleast = 1", gap("a", "320"), Standing::NotTestable),
            ("series = ['a']\nleast = 1", gap("b", "320"), Standing::Held),
            ("series = ['r']\nleast = 1", gap("x, b", "320"), Standing::NotTestable),
            ("series = ['a']\nmore-than = 'lost'", none.clone(), Standing::NotTestable),
            ("series = ['a']\nx = ['160']\nmore-than = 'lost'", none.clone(), Standing::Held),
            ("series = ['a']\nmore-than = 'kept'", none.clone(), Standing::Failed),
        ] {
            let verdict = stands(text, &gaps);
            assert_eq!(verdict.standing, expected, "{text}: {}", verdict.because);
        }
    }

    #[test]
    fn a_failure_that_is_known_is_not_broken() {
        let verdict = stands("series = ['a']\nleast = 51\nholds = false\nwhy = 'w'");
        assert!(!verdict.is_broken());
        assert_eq!(verdict.why.as_deref(), Some("w"));
    }
}
