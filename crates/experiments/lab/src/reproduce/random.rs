//! The runs of a part with random writes on drives without a file system.

use std::sync::Arc;

use manylogs_block::Nanos;
use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, in_field};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::work::{Work, put};
use crate::exercise::{Exercise, LoadKind};
use crate::replay::{DriveSettings, NamedPolicy};
use crate::runs::{KeyBuilder, RunKey};
use crate::smr::SmrFigures;
use crate::sweep::drive;

/// Of so many parts of a run the first and the last are looked at.
const PARTS: usize = 10;

/// Writes of 4 KiB at random places: what `manylogs drive exercise` does.
///
/// `series` and `x` are patterns: `{drive}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RandomWrites {
    series: String,
    x: String,
    drives: Vec<String>,
    /// The persistent cache of a shingled drive is so many times as small as it is.
    cache_part: Scaled,
    seconds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

impl RandomWrites {
    /// What grows with the scale.
    pub(super) fn scaled(&self) -> Vec<(&'static str, Scaled)> {
        vec![("seconds", self.seconds)]
    }

    fn case(&self, name: &str, scale: Scale) -> Result<Exercise, String> {
        let mut profile = drive(name).map_err(in_field("drives"))?;
        let Scaled(smallest, full) = self.cache_part;
        // It is the other way round with what grows: the full scale has the largest cache.
        let part = if scale == Scale::FULL { full } else { smallest }.max(1);
        if let Some(shingled) = &mut Arc::make_mut(&mut profile).shingled {
            shingled.cache_sectors /= part;
            let part: u32 = manylogs_block::narrow(part);
            shingled.cache_extents_max /= part;
        }
        Ok(Exercise {
            drive: DriveSettings::new(profile, true),
            policy: NamedPolicy::nologging(),
            load: LoadKind::Random4k,
            span: Nanos::from_secs(scale.of(self.seconds)),
            seed: 1,
        })
    }
}

impl Planned {
    fn add_random(&mut self, case: Exercise) -> RunKey {
        let Exercise { drive, load, span, seed, .. } = &case;
        let key = drive
            .add_to(KeyBuilder::new("random writes"))
            .with("load", format!("{} {span:?} {seed}", load.name()))
            .key();
        let name = format!("random writes on {}", drive.name());
        self.add_run(key, name, Work::Random(Box::new(case)))
    }
}

pub(super) fn plan(part: &RandomWrites, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let run = planned.add_random(part.case(name, scale)?);
        let words = [("drive", &**name)];
        let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
        planned.places.push(Place { series, x, runs: vec![(run, None)], kind: PlaceKind::Alone });
    }
    Ok(())
}

/// Throughput when a run begins and when it ends.
pub(super) fn metrics(found: &SmrFigures) -> Metrics {
    let each = (found.mib_s.len() / PARTS).max(1);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / (of.len() as f64).max(1.0);
    let first = mean(&found.mib_s[..each.min(found.mib_s.len())]);
    let last = mean(&found.mib_s[found.mib_s.len().saturating_sub(each)..]);
    let mut metrics = Metrics::new();
    put(&mut metrics, "first_mib_s", first);
    put(&mut metrics, "last_mib_s", last);
    put(&mut metrics, "last_percent", last / first.max(1e-9) * 100.0);
    if let Some(second) = found.cache_full_second {
        put(&mut metrics, "cache_full_s", second as f64);
    }
    metrics
}
