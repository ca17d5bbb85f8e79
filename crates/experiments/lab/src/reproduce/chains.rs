//! The runs of a part with chains of drives, and of what they are compared with: every combination
//! of its lists.

use std::sync::Arc;

use manylogs_block::{Nanos, Sectors};
use manylogs_gecko::Cleaning;
use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, in_field, size};
use super::plan::{Planned, Scale};
use super::work::Work;
use crate::chain::{ChainCase, ChainMeasured, Durability, Fill, Layout, Pattern};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

/// Clients of a chain of drives, or of what it is compared with: `manylogs chain`.
///
/// `series` and `x` are patterns: `{system}`, `{drive}`, `{links}`, `{export}`, `{pattern}`,
/// `{streams}` and `{readers}` stand for what the run has of these.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chains {
    series: String,
    x: String,
    drives: Vec<String>,
    /// Size of each drive, made smaller with its zones in proportion.
    capacity: String,
    /// `chain:mtt`, `log:segment`, `in-place`: what the drives make, and how it is cleaned.
    systems: Vec<String>,
    /// Drives, or pairs.
    links: Vec<u16>,
    #[serde(default)]
    mirrored: bool,
    segment: String,
    /// Shares of the raw capacity; as much as can be exported, if not given.
    #[serde(default)]
    exports: Vec<f64>,
    #[serde(default = "uniform")]
    patterns: Vec<String>,
    /// Each write is durable when it is answered. If not, a flush follows each second.
    #[serde(default)]
    durable: bool,
    in_flight: u32,
    /// Sequential writers.
    #[serde(default = "none")]
    streams: Vec<u32>,
    /// Random readers.
    #[serde(default = "none")]
    readers: Vec<u32>,
    /// `nothing`, `first-drive`, `body` (all drives but the last), `trimmed:50` (so much of the
    /// first drive, in per cent), `raw:3` (times that the raw capacity was written).
    fill: String,
    #[serde(default)]
    drive_cache: bool,
    pub(super) seconds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

fn uniform() -> Vec<String> {
    vec![Pattern::Uniform.name().to_owned()]
}

fn none() -> Vec<u32> {
    vec![0]
}

fn fill(text: &str) -> Result<Fill, String> {
    let (name, number) = text.split_once(':').unwrap_or((text, ""));
    let number = number.parse::<u32>();
    match (name, number) {
        ("nothing", Err(_)) => Ok(Fill::Nothing),
        ("first-drive", Err(_)) => Ok(Fill::FirstDrive),
        ("body", Err(_)) => Ok(Fill::Body),
        ("trimmed", Ok(percent @ 0..=100)) => Ok(Fill::Trimmed(percent)),
        ("raw", Ok(times)) => Ok(Fill::Raw(times)),
        _ => Err(format!(
            "{text:?}: expected nothing, first-drive, body, trimmed:PERCENT or raw:TIMES"
        )),
    }
}

fn system(text: &str) -> Result<(Layout, Cleaning), String> {
    let (layout, cleaning) = match text.split_once(':') {
        Some((layout, cleaning)) => {
            let cleaning = cleaning.parse();
            (layout, cleaning.map_err(|error: manylogs_gecko::UnknownCleaning| error.to_string())?)
        }
        None => (text, Cleaning::default()),
    };
    let layout = Layout::named(layout).ok_or_else(|| {
        let names: Vec<&str> = Layout::ALL.iter().map(|layout| layout.name()).collect();
        format!("{layout:?} is none of {}", names.join(", "))
    })?;
    Ok((layout, cleaning))
}

impl Planned {
    fn add_chain(&mut self, case: ChainCase, system: &str) -> RunKey {
        let key = KeyBuilder::new("chain").with("case", format!("{case:?}")).key();
        let ChainCase { drive, links, streams, in_flight, readers, .. } = &case;
        let name = format!(
            "{system} of {links} times {}: {in_flight} writers, {streams} streams, {readers} \
             readers",
            drive.profile.name
        );
        self.add_run(key, name, Work::Chain(Box::new(case)))
    }
}

pub(super) fn plan(part: &Chains, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let profile = drive(name).map_err(in_field("drives"))?;
        let capacity = size(&part.capacity).map_err(in_field("capacity"))?;
        let fitted = profile.fitted(capacity);
        let profile = Arc::new(fitted.map_err(|error| in_field("capacity")(error.to_string()))?);
        let of_drive = ChainCase {
            drive: DriveSettings::new(profile, part.drive_cache),
            layout: Layout::Chain,
            links: 0,
            mirrored: part.mirrored,
            segment: size(&part.segment).map_err(in_field("segment"))?,
            export: None,
            cleaning: Cleaning::default(),
            durability: match part.durable {
                true => Durability::Each,
                false => Durability::FlushEachSecond,
            },
            pattern: Pattern::Uniform,
            in_flight: part.in_flight,
            streams: 0,
            readers: 0,
            tail_reads_s: 0,
            leaves: false,
            cache: Sectors(0),
            summaries: false,
            fill: fill(&part.fill).map_err(in_field("fill"))?,
            span: Nanos::from_secs(scale.of(part.seconds)),
            seed: 1,
        };
        for text in &part.systems {
            let (layout, cleaning) = system(text).map_err(in_field("systems"))?;
            of_system(
                part,
                name,
                text,
                &ChainCase { layout, cleaning, ..of_drive.clone() },
                planned,
            )?;
        }
    }
    Ok(())
}

/// All cases of a system on a drive.
fn of_system(
    part: &Chains,
    drive: &str,
    system: &str,
    case: &ChainCase,
    planned: &mut Planned,
) -> Planning {
    let exports: Vec<Option<f64>> = match part.exports.is_empty() {
        true => vec![None],
        false => part.exports.iter().copied().map(Some).collect(),
    };
    for pattern_name in &part.patterns {
        let pattern: Pattern =
            pattern_name.parse().map_err(|error: crate::chain::UnknownPattern| {
                in_field("patterns")(error.to_string())
            })?;
        for (&export, &links) in
            exports.iter().flat_map(|export| part.links.iter().map(move |it| (export, it)))
        {
            for (&streams, &readers) in
                part.streams.iter().flat_map(|s| part.readers.iter().map(move |r| (s, r)))
            {
                let links_of = usize::from(links);
                let case = ChainCase {
                    links: links_of,
                    pattern,
                    export,
                    streams,
                    readers,
                    ..case.clone()
                };
                let run = planned.add_chain(case, system);
                let (links, streams) = (links.to_string(), streams.to_string());
                let readers = readers.to_string();
                let export = export.map_or(String::new(), |it| format!("{:.0}", it * 100.0));
                let words = [
                    ("system", system),
                    ("drive", drive),
                    ("links", &*links),
                    ("export", &*export),
                    ("pattern", &**pattern_name),
                    ("streams", &*streams),
                    ("readers", &*readers),
                ];
                let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                planned.add_place(series, x, run);
            }
        }
    }
    Ok(())
}

/// Metrics of a case.
pub(super) fn metrics(found: &ChainMeasured) -> Metrics {
    let total = found.write_mb_s + found.read_mb_s;
    [
        ("write_mb_s", found.write_mb_s),
        ("read_mb_s", found.read_mb_s),
        ("total_mb_s", total),
        ("share_percent", found.share * 100.0),
        ("appended_mb_s", found.appended_mb_s),
        ("appended_per_byte", found.appended_per_byte),
        ("cleaned_mb_s", found.cleaned_mb_s),
        ("write_p50_ms", found.write_p50_ms),
        ("write_p99_ms", found.write_p99_ms),
        ("write_max_ms", found.write_max_ms),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file::Figure;
    use super::super::folder::Folder;
    use super::super::plan::plan;
    use super::*;

    const FIGURE: &str = "
name = 'f'
source = 's'
title = 't'
about = 'a'
[[part]]
kind = 'chain'
series = '{system} {pattern}'
x = '{links} {export} {readers}'
drives = ['cheetah-15k5']
capacity = '1G'
systems = ['chain:mtt', 'log', 'in-place']
links = [2, 3]
segment = '16M'
exports = [0.36, 0.48]
patterns = ['uniform', '90/10']
in-flight = 64
readers = [0, 4]
fill = 'trimmed:50'
seconds = [1, 2]
";

    fn planned(text: &str) -> Result<Planned, String> {
        let figure = Figure::parse(text)?;
        plan(&figure, &[], Scale::FULL, &Folder::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_combination_is_one_run_and_one_place() {
        let all = planned(FIGURE).unwrap();
        assert_eq!((all.runs.len(), all.places.len()), (48, 48));
        let has = |series: &str, x: &str| {
            all.places.iter().any(|place| place.series == series && place.x == x)
        };
        assert!(has("chain:mtt 90/10", "3 48 4") && has("log uniform", "2 36 0"));
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_field() {
        for (from, to, words) in [
            ("'chain:mtt'", "'ring:mtt'", "systems: \"ring\" is none of chain, log, in-place"),
            ("'chain:mtt'", "'chain:all'", "systems: no way of cleaning is called \"all\""),
            ("'trimmed:50'", "'trimmed:101'", "fill: \"trimmed:101\": expected nothing"),
            ("'90/10'", "'80/20'", "patterns: no pattern is called \"80/20\""),
            ("'1G'", "'1'", "capacity: "),
            ("[1, 2]", "[2, 1]", "seconds = [2, 1]"),
        ] {
            let error = planned(&FIGURE.replace(from, to)).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
