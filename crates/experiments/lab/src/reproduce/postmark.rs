//! The runs of a part with Postmark: every combination of its lists.

use std::sync::Arc;

use manylogs_block::{Nanos, narrow};
use manylogs_mlfs::JournalMode;
use manylogs_workload::programs::Postmark;
use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, gigabytes, in_field};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::trees::disk;
use super::work::{Work, put};
use crate::mlfs::DiskCase;
use crate::mlfs::postmark::{PostmarkCase, PostmarkResult};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

/// The mode `ordered` in which all goes home every 30 s: the time after which kernels write dirty
/// metadata home.
const AS_KERNELS: &str = "ordered, home after 30 s";
const KERNELS_SPAN: Nanos = Nanos::from_secs(30);

/// Postmark on a file system.
///
/// `series` and `x` are patterns: `{drive}` and `{mode}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsPostmark {
    series: String,
    x: String,
    drives: Vec<String>,
    /// Modes of the journal: lazy, ordered, or ordered with all brought home every 30 s.
    modes: Vec<String>,
    /// That which the others are compared with.
    base: String,
    /// Length of the file system, from the beginning of the drive.
    span_gb: u64,
    /// The persistent cache of a shingled drive is so many times as small as it is.
    cache_part: u32,
    directories: Scaled,
    files: Scaled,
    transactions: Scaled,
    /// Size of ext4's journal, in MiB.
    journal_mib: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

fn mode(text: &str) -> Result<(JournalMode, Option<Nanos>), String> {
    if text == AS_KERNELS {
        return Ok((JournalMode::Ordered, Some(KERNELS_SPAN)));
    }
    let found = JournalMode::named(text).ok_or_else(|| format!("modes: unknown mode {text:?}"))?;
    Ok((found, None))
}

impl FsPostmark {
    /// What grows with the scale.
    pub(super) fn scaled(&self) -> Vec<(&'static str, Scaled)> {
        vec![
            ("directories", self.directories),
            ("files", self.files),
            ("transactions", self.transactions),
            ("journal-mib", self.journal_mib),
        ]
    }

    fn drive(&self, name: &str) -> Result<DriveSettings, String> {
        let mut profile = drive(name).map_err(in_field("drives"))?;
        let part = self.cache_part.max(1);
        if let Some(shingled) = &mut Arc::make_mut(&mut profile).shingled {
            shingled.cache_sectors /= u64::from(part);
            shingled.cache_extents_max /= part;
        }
        Ok(DriveSettings::new(profile, true))
    }

    fn case(&self, name: &str, text: &str, scale: Scale) -> Result<PostmarkCase, String> {
        let (mode, home_every) = mode(text)?;
        let disk = disk(&self.drive(name)?, scale.of(self.journal_mib), mode);
        let program = Postmark {
            directories: narrow(scale.of(self.directories)),
            files: narrow(scale.of(self.files)),
            transactions: narrow(scale.of(self.transactions)),
            ..Postmark::default()
        };
        let span = gigabytes(self.span_gb);
        Ok(PostmarkCase { disk, span, program, home_every })
    }
}

impl Planned {
    fn add_postmark(&mut self, case: PostmarkCase) -> RunKey {
        let PostmarkCase { disk, span, program, home_every } = &case;
        let DiskCase { drive, journal, mode, seed, .. } = disk;
        let key = drive
            .add_to(KeyBuilder::new("fs postmark"))
            .with("layout", format!("{mode} {journal:?} {span:?} {home_every:?}"))
            .with("load", format!("{program:?} {seed}"))
            .key();
        let name = format!("Postmark, {mode}, home every {home_every:?}, on {}", drive.name());
        self.add_run(key, name, Work::Postmark(Box::new(case)))
    }
}

pub(super) fn plan(part: &FsPostmark, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let base = planned.add_postmark(part.case(name, &part.base, scale)?);
        for mode in &part.modes {
            let run = planned.add_postmark(part.case(name, mode, scale)?);
            let words = [("drive", &**name), ("mode", mode)];
            let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
            let runs = vec![(run, Some(base))];
            planned.places.push(Place { series, x, runs, kind: PlaceKind::Postmark });
        }
    }
    Ok(())
}

pub(super) fn metrics(found: &PostmarkResult) -> Metrics {
    let PostmarkResult { fill_s, transactions_s, leave_s, .. } = *found;
    let mut metrics = Metrics::new();
    put(&mut metrics, "fill_s", fill_s);
    put(&mut metrics, "transactions_s", transactions_s);
    put(&mut metrics, "leave_s", leave_s);
    put(&mut metrics, "all_s", fill_s + transactions_s + leave_s);
    put(&mut metrics, "dirty_bands", found.dirty_bands as f64);
    put(&mut metrics, "clean_s", found.clean_s);
    put(&mut metrics, "written_mib", found.written_mib);
    put(&mut metrics, "home_mib", found.home_mib);
    metrics
}

/// How many times as fast it is as the baseline, and what share of its cleaning it leaves.
pub(super) fn derive(metrics: &mut Metrics, base: &Metrics) {
    if let (Some(own), Some(base)) = (metrics.get("all_s"), base.get("all_s")) {
        let times = base / own.max(1e-9);
        put(metrics, "times", times);
    }
    if let (Some(own), Some(base)) = (metrics.get("clean_s"), base.get("clean_s"))
        && *base > 0.0
    {
        let share = own / base;
        put(metrics, "clean_share", share);
    }
}
