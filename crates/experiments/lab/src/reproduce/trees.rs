//! The runs of a part with trees of directories: every combination of its lists, each with all that
//! is done to a tree.

use manylogs_block::{Sectors, narrow};
use manylogs_ext4::ReadAhead;
use manylogs_mlfs::JournalMode;
use manylogs_mlfs::adopt::LogLayout;
use serde::Deserialize;

use super::cells::Metrics;
use super::part::Scaled;
use super::parts::{Planning, filled, in_field};
use super::plan::{Place, PlaceKind, Planned, Scale};
use super::work::Work;
use crate::mlfs::trees::{BYTES_PER_INODE, PhaseKind, TreesCase, TreesResult};
use crate::mlfs::{DiskCase, INODE_BYTES};
use crate::replay::DriveSettings;
use crate::runs::{KeyBuilder, RunKey};
use crate::stats::round3;
use crate::sweep::drive;

/// Trees of directories on a file system: what `manylogs fs trees` does.
///
/// `series` and `x` are patterns: `{drive}`, `{mode}`, `{ahead}` and `{phase}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsTrees {
    /// What the runs are called.
    pub series: String,
    #[serde(default = "phase")]
    x: String,
    drives: Vec<String>,
    /// Modes of the journal, and what is read ahead: `lazy`, `ordered`, `ordered tables`.
    modes: Vec<String>,
    /// That which the others are compared with.
    base: String,
    /// All, if not given.
    #[serde(default)]
    phases: Vec<String>,
    directories: Scaled,
    /// None, if not given.
    #[serde(default)]
    files: Option<Scaled>,
    /// Size of ext4's journal, in MiB.
    journal_mib: Scaled,
    #[serde(default)]
    shuffled: bool,
    seeds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

fn phase() -> String {
    "{phase}".to_owned()
}

/// A mode of the journal, and what is read ahead; all, if it does not say.
fn mode(text: &str) -> Result<(JournalMode, ReadAhead), String> {
    let (name, ahead) = text.split_once(' ').unwrap_or((text, ReadAhead::All.name()));
    let found = JournalMode::named(name).zip(ReadAhead::named(ahead));
    found.ok_or_else(|| format!("modes: unknown mode {text:?}"))
}

/// A disk of a figure about metadata, with the seed 1.
pub(super) fn disk(drive: &DriveSettings, journal_mib: u64, mode: JournalMode) -> DiskCase {
    DiskCase {
        drive: drive.clone(),
        spacing: LogLayout::default().spacing,
        threshold: None,
        journal: Sectors(journal_mib << 11),
        bytes_per_inode: BYTES_PER_INODE,
        inode_bytes: INODE_BYTES,
        mode,
        seed: 1,
    }
}

impl FsTrees {
    /// What grows with the scale.
    pub(super) fn scaled(&self) -> Vec<(&'static str, Scaled)> {
        let files = self.files.map(|files| ("files", files));
        let always = [
            ("directories", self.directories),
            ("journal-mib", self.journal_mib),
            ("seeds", self.seeds),
        ];
        always.into_iter().chain(files).collect()
    }

    fn phases(&self) -> Result<Vec<PhaseKind>, String> {
        let is_due = |kind: &PhaseKind| kind.is_due(self.files.is_some(), false);
        if self.phases.is_empty() {
            return Ok(PhaseKind::ALL.into_iter().filter(is_due).collect());
        }
        let named = |name: &String| {
            let mut all = PhaseKind::ALL.into_iter().filter(is_due);
            let found = all.find(|kind| kind.name() == name);
            found.ok_or_else(|| format!("phases: {name:?} is none, or needs files"))
        };
        self.phases.iter().map(named).collect()
    }

    /// The case of a drive and a mode, for each seed.
    fn cases(&self, name: &str, text: &str, scale: Scale) -> Result<Vec<TreesCase>, String> {
        let (mode, ahead) = mode(text)?;
        let drive = DriveSettings::new(drive(name).map_err(in_field("drives"))?, true);
        let usual = disk(&drive, scale.of(self.journal_mib), mode);
        let count = |of: Scaled| narrow(scale.of(of));
        let case = |seed| TreesCase {
            disk: DiskCase { seed, ..usual.clone() },
            ahead,
            directories: count(self.directories),
            files: self.files.map_or(0, count),
            shuffled: self.shuffled,
            arranged: false,
            cut: false,
        };
        Ok((1..=scale.of(self.seeds)).map(case).collect())
    }
}

impl Planned {
    fn add_trees(&mut self, case: TreesCase) -> RunKey {
        let TreesCase { disk, ahead, directories, files, shuffled, arranged: _, cut: _ } = &case;
        let DiskCase { drive, journal, bytes_per_inode, mode, seed, .. } = disk;
        let key = drive
            .add_to(KeyBuilder::new("fs trees"))
            .with("layout", format!("{mode} {ahead:?} {journal:?} {bytes_per_inode}"))
            .with("load", format!("{directories} {files} {shuffled} {seed}"))
            .key();
        let (drive, ahead) = (&drive.profile.name, ahead.name());
        let name = format!("{directories} directories, {mode}, read ahead: {ahead}, on {drive}");
        self.add_run(key, name, Work::Trees(Box::new(case)))
    }
}

pub(super) fn plan(part: &FsTrees, scale: Scale, planned: &mut Planned) -> Planning {
    let phases = part.phases()?;
    for name in &part.drives {
        let add = |text: &str, planned: &mut Planned| -> Result<Vec<RunKey>, String> {
            let cases = part.cases(name, text, scale)?.into_iter();
            Ok(cases.map(|case| planned.add_trees(case)).collect())
        };
        let base = add(&part.base, planned)?;
        for mode in &part.modes {
            let own = add(mode, planned)?;
            let runs: Vec<_> = own.into_iter().zip(base.iter().map(|key| Some(*key))).collect();
            for kind in &phases {
                let words = [("drive", &**name), ("mode", mode), ("phase", kind.name())];
                planned.places.push(Place {
                    series: filled(&part.series, &words),
                    x: filled(&part.x, &words),
                    runs: runs.clone(),
                    kind: PlaceKind::Phase(*kind),
                });
            }
        }
    }
    Ok(())
}

fn metric(phase: &str, name: &str) -> String {
    format!("{phase}: {name}")
}

/// The metrics of all phases.
pub(super) fn of_trees(found: &TreesResult) -> Metrics {
    let kib = |bytes: u64| bytes as f64 / 1024.0 / f64::from(found.directories);
    let mut metrics = Metrics::new();
    for phase in &found.phases {
        for (name, value) in [
            ("seconds", phase.seconds),
            ("leave_s", phase.leave_seconds),
            ("all_s", phase.seconds + phase.leave_seconds),
            ("dirty_bands", phase.dirty_bands as f64),
            ("clean_s", phase.clean_seconds),
            ("reads", phase.reads as f64 / f64::from(found.directories)),
            ("seeks", phase.seeks as f64 / f64::from(found.directories)),
            ("log_kib", kib(phase.log_bytes)),
            ("home_kib", kib(phase.home_bytes)),
        ] {
            metrics.insert(metric(phase.phase, name), round3(value));
        }
    }
    metrics
}

/// The metrics of one phase, and how many times as fast it is as its baseline: the work and the
/// unmount together, so that what one mode leaves to the unmount counts.
pub(super) fn of_phase(all: &Metrics, base: Option<&Metrics>, kind: PhaseKind) -> Metrics {
    let own = metric(kind.name(), "");
    let named =
        |(name, value): (&String, &f64)| Some((name.strip_prefix(&own)?.to_owned(), *value));
    let mut metrics: Metrics = all.iter().filter_map(named).collect();
    let took = |of: &Metrics| of.get(&metric(kind.name(), "all_s")).copied();
    if let Some((took, before)) = took(all).zip(base.and_then(took)) {
        metrics.insert("times".to_owned(), before / took.max(1e-9));
    }
    metrics
}
