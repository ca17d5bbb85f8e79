//! The runs of parts with updates of metadata that fill the journal, and with mounts after them:
//! every combination of their lists.

use manylogs_ext4::Cleaner;
use manylogs_mlfs::JournalMode;
use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, gigabytes, in_field};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::trees;
use super::work::{Work, put};
use crate::mlfs::DiskCase;
use crate::mlfs::cleaner::{
    BLOCK_BYTES_PER_INODE, CleanerCase, CleanerResult, MountsCase, MountsResult,
};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

/// Zipf updates of metadata that fill the journal several times over.
///
/// `series` and `x` are patterns: `{drive}`, `{cleaner}`, `{zipf}` and `{percent}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsCleaner {
    series: String,
    x: String,
    drives: Vec<String>,
    /// What is renewed: own, paper; `ordered` is that mode, in which nothing is.
    cleaners: Vec<String>,
    /// Exponents of Zipf's law.
    zipf: Vec<f64>,
    /// Blocks that are updated, per cent of the journal's.
    percent: Vec<u32>,
    /// Updates after which all is synced.
    per_sync: u32,
    /// Length of the file system, from the beginning of the drive: a short one is made in no time.
    pub(super) span_gb: Scaled,
    /// Size of ext4's journal, in MiB.
    pub(super) journal_mib: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// The mode of this name, and the cleaner in it.
fn named(name: &str) -> Result<(JournalMode, Cleaner), String> {
    match name {
        "ordered" => Ok((JournalMode::Ordered, Cleaner::Own)),
        "own" => Ok((JournalMode::Lazy, Cleaner::Own)),
        "paper" => Ok((JournalMode::Lazy, Cleaner::Paper)),
        _ => Err(format!("cleaners: unknown cleaner {name:?}")),
    }
}

/// A disk whose inodes have blocks of their own.
/// A disk whose inodes have blocks of their own.
fn disk(drive: &DriveSettings, journal_mib: u64, mode: JournalMode) -> DiskCase {
    let inode_bytes = BLOCK_BYTES_PER_INODE;
    DiskCase { inode_bytes, ..trees::disk(drive, journal_mib, mode) }
}

impl Planned {
    fn add_mounts(&mut self, case: MountsCase) -> RunKey {
        let MountsCase { disk, live, per_sync, saves } = &case;
        let DiskCase { drive, journal, seed, .. } = disk;
        let key = drive
            .add_to(KeyBuilder::new("fs mounts"))
            .with("load", format!("{journal:?} {live} {per_sync} {saves} {seed}"))
            .key();
        let name = format!("mounts, {live} live blocks, saved map: {saves}, on {}", drive.name());
        self.add_run(key, name, Work::Mounts(Box::new(case)))
    }

    fn add_cleaner(&mut self, case: CleanerCase) -> RunKey {
        let CleanerCase { disk, span, cleaner, exponent, percent, per_sync } = &case;
        let DiskCase { drive, journal, mode, seed, .. } = disk;
        let key = drive
            .add_to(KeyBuilder::new("fs cleaner"))
            .with("layout", format!("{mode} {cleaner:?} {journal:?} {span:?}"))
            .with("load", format!("{exponent} {percent} {per_sync} {seed}"))
            .key();
        let name = format!("Zipf {exponent}, {percent} %, {mode} {cleaner:?} on {}", drive.name());
        self.add_run(key, name, Work::Cleaner(Box::new(case)))
    }
}

pub(super) fn plan(part: &FsCleaner, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let drive = DriveSettings::new(drive(name).map_err(in_field("drives"))?, true);
        for (percent, exponent) in
            part.percent.iter().flat_map(|percent| part.zipf.iter().map(move |it| (percent, it)))
        {
            let case = |mode: JournalMode, cleaner: Cleaner| CleanerCase {
                disk: disk(&drive, scale.of(part.journal_mib), mode),
                span: gigabytes(scale.of(part.span_gb)),
                cleaner,
                exponent: *exponent,
                percent: *percent,
                per_sync: part.per_sync,
            };
            let base = planned.add_cleaner(case(JournalMode::Ordered, Cleaner::Own));
            for which in &part.cleaners {
                let (mode, cleaner) = named(which)?;
                let runs = vec![(planned.add_cleaner(case(mode, cleaner)), Some(base))];
                let (zipf, percent) = (exponent.to_string(), percent.to_string());
                let words = [
                    ("drive", &**name),
                    ("cleaner", which),
                    ("zipf", &zipf),
                    ("percent", &percent),
                ];
                let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
                planned.places.push(Place { series, x, runs, kind: PlaceKind::Waits });
            }
        }
    }
    Ok(())
}

pub(super) fn metrics(found: &CleanerResult) -> Metrics {
    let CleanerResult { renewed, home, longest_wait_ms, updates_per_s } = *found;
    let mut metrics = Metrics::new();
    put(&mut metrics, "renewed", renewed);
    put(&mut metrics, "home", home);
    put(&mut metrics, "wait_ms", longest_wait_ms);
    put(&mut metrics, "updates_per_s", updates_per_s);
    metrics
}

/// How many times as long as in the baseline somebody waits.
pub(super) fn derive(metrics: &mut Metrics, base: &Metrics) {
    if let (Some(own), Some(base)) = (metrics.get("wait_ms"), base.get("wait_ms")) {
        let times = own / base.max(1e-3);
        put(metrics, "wait_times", times);
    }
}

/// Mounts of a file system whose journal holds many live blocks.
///
/// `series` and `x` are patterns: `{drive}` and `{map}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsMounts {
    series: String,
    x: String,
    drives: Vec<String>,
    /// Whether the map of the journal is saved: `saved`, `none`.
    maps: Vec<String>,
    per_sync: u32,
    /// Size of ext4's journal, in MiB.
    pub(super) journal_mib: Scaled,
    /// Live blocks in it.
    pub(super) live: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

pub(super) fn plan_mounts(part: &FsMounts, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let drive = DriveSettings::new(drive(name).map_err(in_field("drives"))?, true);
        for map in &part.maps {
            let saves = match map.as_str() {
                "saved" => true,
                "none" => false,
                _ => return Err(format!("maps: expected saved or none, not {map:?}")),
            };
            let case = MountsCase {
                disk: disk(&drive, scale.of(part.journal_mib), JournalMode::Lazy),
                live: manylogs_block::narrow(scale.of(part.live)),
                per_sync: part.per_sync,
                saves,
            };
            let words = [("drive", &**name), ("map", map)];
            let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
            let run = planned.add_mounts(case);
            planned.add_place(series, x, run);
        }
    }
    Ok(())
}

pub(super) fn of_mounts(found: &MountsResult) -> Metrics {
    let mut metrics = Metrics::new();
    put(&mut metrics, "unmounted_s", found.unmounted_s);
    put(&mut metrics, "cut_s", found.cut_s);
    put(&mut metrics, "unmount_s", found.unmount_s);
    metrics
}
