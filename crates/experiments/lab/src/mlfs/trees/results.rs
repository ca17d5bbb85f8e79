//! Results, for the terminal and as JSON.

use serde::Serialize;

use super::case::TreesCase;
use super::run::Phase;
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
        Self { format: 1, command, interrupted, cases }
    }
}

/// Result of one case. Each phase begins with cold caches; its seconds end when all is durable. The
/// unmount after it is timed separately.
#[derive(Clone, Debug, Serialize)]
pub struct TreesResult {
    /// The drive profile's name.
    pub drive: String,
    /// Whether the drive's write cache is on.
    pub drive_cache: bool,
    /// Mode of the journal.
    pub mode: &'static str,
    /// Size of ext4's own journal.
    pub journal_mib: u64,
    /// Number of directories of the tree.
    pub directories: u32,
    /// Whether directories of a level were made in a random order.
    pub shuffled: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Making the tree.
    pub make_s: f64,
    /// The unmount after it.
    pub make_leave_s: f64,
    /// Listing it with attributes.
    pub list_s: f64,
    /// Removing it.
    pub remove_s: f64,
    /// The unmount after that.
    pub remove_leave_s: f64,
    /// Bytes appended to the log in all phases, without the unmounts.
    pub log_bytes: u64,
    /// Bytes written home in all phases, without the unmounts.
    pub home_bytes: u64,
}

impl TreesResult {
    pub(super) fn of(case: &TreesCase, made: &Phase, listed: &Phase, removed: &Phase) -> Self {
        let all = [made, listed, removed];
        Self {
            drive: case.disk.drive.profile.name.clone(),
            drive_cache: case.disk.drive.write_cache,
            mode: case.disk.mode.name(),
            journal_mib: case.disk.journal.bytes() >> 20,
            directories: case.directories,
            shuffled: case.shuffled,
            seed: case.disk.seed,
            make_s: made.seconds,
            make_leave_s: made.leave_seconds,
            list_s: listed.seconds,
            remove_s: removed.seconds,
            remove_leave_s: removed.leave_seconds,
            log_bytes: all.iter().map(|phase| phase.journal.log_bytes).sum(),
            home_bytes: all.iter().map(|phase| phase.journal.home_bytes).sum(),
        }
    }
}

const TITLES: [&str; 10] = [
    "drive",
    "mode",
    "directories",
    "make",
    "unmount",
    "list",
    "remove",
    "unmount",
    "logged",
    "home",
];
/// Number of leading columns that hold words.
const WORDS: usize = 2;

/// Formats the cases as a table.
#[must_use]
pub fn text(found: &TreesFigures) -> String {
    aligned(&TITLES, found.cases.iter().map(row), WORDS)
}

fn row(case: &TreesResult) -> Vec<String> {
    let seconds = |span: f64| format!("{span:.2} s");
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    vec![
        case.drive.clone(),
        case.mode.to_owned(),
        case.directories.to_string(),
        seconds(case.make_s),
        seconds(case.make_leave_s),
        seconds(case.list_s),
        seconds(case.remove_s),
        seconds(case.remove_leave_s),
        mib(case.log_bytes),
        mib(case.home_bytes),
    ]
}
