//! The runs of a part with programs that write: every combination of its lists.

use std::sync::Arc;

use manylogs_block::narrow;
use manylogs_mlfs::JournalMode;
use manylogs_workload::programs::{CompileBench, Postmark, SourceTree};
use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, gigabytes, in_field};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::trees::disk;
use super::work::{Work, put};
use crate::mlfs::DiskCase;
use crate::mlfs::programs::{Program, ProgramCase, ProgramResult};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::sweep::drive;

/// A program that writes on a file system.
///
/// `series` and `x` are patterns: `{drive}` and `{mode}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsPrograms {
    series: String,
    x: String,
    /// What runs: postmark, build, compilebench.
    program: String,
    drives: Vec<String>,
    /// Modes of the journal: lazy, ordered.
    modes: Vec<String>,
    /// That which the others are compared with.
    base: String,
    /// Length of the file system, from the beginning of the drive.
    span_gb: u64,
    /// The persistent cache of a shingled drive is so many times as small as it is.
    #[serde(default = "whole")]
    cache_part: u32,
    /// Directories; of Compilebench, in each tree.
    directories: Scaled,
    /// Files that Postmark begins with; sources of a build, and of each tree of Compilebench.
    files: Scaled,
    /// Transactions of Postmark; how often Compilebench does something in a tree.
    #[serde(default)]
    transactions: Option<Scaled>,
    /// Trees of Compilebench.
    #[serde(default)]
    trees: Option<Scaled>,
    /// Size of ext4's journal, in MiB.
    journal_mib: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

const fn whole() -> u32 {
    1
}

impl FsPrograms {
    /// What grows with the scale.
    pub(super) fn scaled(&self) -> Vec<(&'static str, Scaled)> {
        let always = [
            ("directories", self.directories),
            ("files", self.files),
            ("journal-mib", self.journal_mib),
        ];
        let transactions = self.transactions.map(|it| ("transactions", it));
        let trees = self.trees.map(|it| ("trees", it));
        always.into_iter().chain(transactions).chain(trees).collect()
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

    fn program(&self, scale: Scale) -> Result<Program, String> {
        let count = |of: Scaled| narrow(scale.of(of));
        let given = |name: &str, of: Option<Scaled>| {
            of.map(count).ok_or_else(|| format!("{name}: {} needs some", self.program))
        };
        let (directories, files) = (count(self.directories), count(self.files));
        let tree = SourceTree { directories, sources: files };
        match &*self.program {
            "postmark" => {
                let transactions = given("transactions", self.transactions)?;
                let usual = Postmark::default();
                Ok(Program::Postmark(Postmark { directories, files, transactions, ..usual }))
            }
            "build" => Ok(Program::Build(tree)),
            "compilebench" => {
                let rounds = given("transactions", self.transactions)?;
                let trees = given("trees", self.trees)?;
                Ok(Program::CompileBench(CompileBench { tree, trees, rounds }))
            }
            other => Err(format!("program: unknown program {other:?}")),
        }
    }

    fn case(&self, name: &str, text: &str, scale: Scale) -> Result<ProgramCase, String> {
        let mode =
            JournalMode::named(text).ok_or_else(|| format!("modes: unknown mode {text:?}"))?;
        let disk = disk(&self.drive(name)?, scale.of(self.journal_mib), mode);
        let span = gigabytes(self.span_gb);
        Ok(ProgramCase { disk, span, program: self.program(scale)? })
    }
}

impl Planned {
    fn add_program(&mut self, case: ProgramCase) -> RunKey {
        let ProgramCase { disk, span, program } = &case;
        let DiskCase { drive, journal, mode, seed, .. } = disk;
        let key = drive
            .add_to(KeyBuilder::new("fs programs"))
            .with("layout", format!("{mode} {journal:?} {span:?}"))
            .with("load", format!("{program:?} {seed}"))
            .key();
        let name = format!("{}, {mode}, on {}", program.name(), drive.name());
        self.add_run(key, name, Work::Program(Box::new(case)))
    }
}

pub(super) fn plan(part: &FsPrograms, scale: Scale, planned: &mut Planned) -> Planning {
    for name in &part.drives {
        let base = planned.add_program(part.case(name, &part.base, scale)?);
        for mode in &part.modes {
            let run = planned.add_program(part.case(name, mode, scale)?);
            let words = [("drive", &**name), ("mode", mode)];
            let (series, x) = (filled(&part.series, &words), filled(&part.x, &words));
            let runs = vec![(run, Some(base))];
            planned.places.push(Place { series, x, runs, kind: PlaceKind::Program });
        }
    }
    Ok(())
}

pub(super) fn metrics(found: &ProgramResult) -> Metrics {
    let ProgramResult { fill_s, run_s, leave_s, written_mib, log_mib, home_mib, live_mib, .. } =
        *found;
    let all_mib = written_mib + log_mib + home_mib;
    let percent = |part: f64, of: f64| part / of.max(1e-9) * 100.0;
    let mut metrics = Metrics::new();
    for (name, value) in [
        ("fill_s", fill_s),
        ("run_s", run_s),
        ("leave_s", leave_s),
        ("all_s", fill_s + run_s + leave_s),
        ("operations_per_s", found.operations as f64 / run_s.max(1e-9)),
        ("dirty_bands", found.dirty_bands as f64),
        ("clean_s", found.clean_s),
        ("written_mib", written_mib),
        ("log_mib", log_mib),
        ("home_mib", home_mib),
        ("mib_s", all_mib / (fill_s + run_s).max(1e-9)),
        ("home_percent", percent(home_mib, all_mib)),
        ("live_percent", percent(live_mib, log_mib)),
        ("live_of_all_percent", percent(live_mib, all_mib)),
    ] {
        put(&mut metrics, name, value);
    }
    metrics
}

/// How many times as fast it is as the baseline, and what share of its cleaning it leaves.
pub(super) fn derive(metrics: &mut Metrics, base: &Metrics) {
    if let (Some(own), Some(base)) = (metrics.get("all_s"), base.get("all_s")) {
        let times = base / own.max(1e-9);
        put(metrics, "times", times);
    }
    if let (Some(own), Some(base)) = (metrics.get("operations_per_s"), base.get("operations_per_s"))
    {
        let times = own / base.max(1e-9);
        put(metrics, "operations_times", times);
    }
    if let (Some(own), Some(base)) = (metrics.get("clean_s"), base.get("clean_s"))
        && *base > 0.0
    {
        let share = own / base;
        put(metrics, "clean_share", share);
    }
}
