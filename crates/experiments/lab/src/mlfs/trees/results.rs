//! Results, for the terminal and as JSON.

use serde::Serialize;

use super::case::TreesCase;
use crate::table::aligned;

/// All cases of one command.
#[derive(Clone, Debug, Serialize)]
pub struct TreesFigures {
    /// Version of this structure.
    pub format: u32,
    /// Command line that repeats the measurement.
    pub command: String,
    /// Whether the user interrupted the command, so that cases are missing.
    pub interrupted: bool,
    /// Measured cases.
    pub cases: Vec<TreesResult>,
}

impl TreesFigures {
    /// The figures of these cases.
    #[must_use]
    pub const fn new(command: String, interrupted: bool, cases: Vec<TreesResult>) -> Self {
        Self { format: 4, command, interrupted, cases }
    }
}

/// One phase: the work with a sync of all, the unmount, and what the drive cleans behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// Its name.
    pub phase: &'static str,
    /// What the mount before it took.
    pub mount_seconds: f64,
    /// What it took until all was durable.
    pub seconds: f64,
    /// What the unmount took, if it was not a power cut: then the mode has left everything where it
    /// leaves it.
    pub leave_seconds: f64,
    /// Bands that a shingled drive had to clean then.
    pub dirty_bands: u64,
    /// For how long it did so.
    pub clean_seconds: f64,
    /// How often the drive was asked to read, the unmount left out.
    pub reads: u64,
    /// For how many accesses the arm moved or the head changed, the unmount left out.
    pub seeks: u64,
    /// Appended to the log, the unmount left out.
    pub log_bytes: u64,
    /// Written home from the log, the unmount included: the kernel's `sync` brings it home.
    pub home_bytes: u64,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct TreesResult {
    /// The drive profile's name.
    pub drive: String,
    /// Whether the drive's write cache is on.
    pub drive_cache: bool,
    /// Mode of the journal.
    pub mode: &'static str,
    /// What metadata is read ahead: off, tables, all.
    pub read_ahead: &'static str,
    /// Size of ext4's own journal.
    pub journal_mib: u64,
    /// Number of directories of the tree.
    pub directories: u32,
    /// How many files are in them.
    pub files: u32,
    /// Whether directories of a level were made in a random order.
    pub shuffled: bool,
    /// Whether each phase ended with a power cut, and not with an unmount.
    pub cut: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// What was done to it.
    pub phases: Vec<PhaseFigures>,
}

impl TreesResult {
    pub(super) fn of(case: &TreesCase, phases: Vec<PhaseFigures>) -> Self {
        Self {
            drive: case.disk.drive.profile.name.clone(),
            drive_cache: case.disk.drive.write_cache,
            mode: case.disk.mode.name(),
            read_ahead: case.ahead.name(),
            journal_mib: case.disk.journal.bytes() >> 20,
            directories: case.directories,
            files: case.files,
            shuffled: case.shuffled,
            cut: case.cut,
            seed: case.disk.seed,
            phases,
        }
    }
}

const TITLES: [&str; 12] = [
    "drive",
    "mode",
    "ahead",
    "phase",
    "mount",
    "took",
    "unmount",
    "dirty bands",
    "cleaning",
    "reads",
    "logged",
    "home",
];
/// Number of leading columns that hold words.
const WORDS: usize = 4;

/// Formats the cases as a table.
#[must_use]
pub fn text(found: &TreesFigures) -> String {
    aligned(&TITLES, found.cases.iter().flat_map(rows), WORDS)
}

fn rows(case: &TreesResult) -> impl Iterator<Item = Vec<String>> {
    let seconds = |span: f64| format!("{span:.2} s");
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    case.phases.iter().map(move |phase| {
        vec![
            case.drive.clone(),
            case.mode.to_owned(),
            case.read_ahead.to_owned(),
            phase.phase.to_owned(),
            seconds(phase.mount_seconds),
            seconds(phase.seconds),
            seconds(phase.leave_seconds),
            phase.dirty_bands.to_string(),
            seconds(phase.clean_seconds),
            phase.reads.to_string(),
            mib(phase.log_bytes),
            mib(phase.home_bytes),
        ]
    })
}
