//! Results, for the terminal and as JSON.

use manylogs::VolumeStats;
use serde::Serialize;

use super::gate::Gate;
use super::run::{KeepingCase, LOG_BYTES, Sums};
use crate::table::aligned;

/// All cases of one command.
#[derive(Clone, Debug, Serialize)]
pub struct KeepingFigures {
    /// Version of this structure.
    pub format: u32,
    /// Command line that repeats the measurement.
    pub command: String,
    /// Whether the user interrupted the command, so that cases are missing.
    pub interrupted: bool,
    /// Measured cases.
    pub cases: Vec<KeepingResult>,
}

impl KeepingFigures {
    /// The figures of these cases.
    #[must_use]
    pub const fn new(command: String, interrupted: bool, cases: Vec<KeepingResult>) -> Self {
        Self { format: 1, command, interrupted, cases }
    }

    /// Whether all promises hold.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.cases.iter().all(|case| case.misses.is_empty())
    }
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct KeepingResult {
    /// The drive profile's name.
    pub drive: String,
    /// Name of the gate.
    pub gate: &'static str,
    /// Bytes of all logs.
    pub log_space_bytes: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Bytes written to durable-only files, without zeroes.
    pub written_bytes: u64,
    /// Durable-only bytes in the logs at the end.
    pub live_bytes: u64,
    /// Durable-only bytes written home, by the volume's counters.
    pub home_bytes: u64,
    /// Durable-only bytes outside the logs at the end, found on the drive.
    pub home_on_drive_bytes: u64,
    /// Durable-only bytes moved from log to log.
    pub moved_bytes: u64,
    /// Bytes of the logs reserved for durable-only content.
    pub pinned_bytes: u64,
    /// Writes that waited for room.
    pub waits: u64,
    /// Checkpoints that ran.
    pub checkpoints: u64,
    /// Logs whose content was moved to another log in idle time.
    pub swaps: u64,
    /// Time of a checkpoint, divided by its time without durable-only files in the logs.
    pub pass_ratio: Option<f64>,
    /// Of the user who has less than his share: bytes found on the drive outside the logs.
    pub others_home_bytes: Option<u64>,
    /// Of the other one: bytes not at home between those that are, in the order of writing.
    pub out_of_order_bytes: Option<u64>,
    /// Speed at which what was appended beside a stream is read from the logs, divided by that from
    /// home.
    pub read_ratio: Option<f64>,
    /// That speed, in MB/s.
    pub read_mb_per_s: Option<f64>,
    /// The same, appended beside two readers at random places.
    pub read_scattered_mb_per_s: Option<f64>,
    /// Promises that do not hold.
    pub misses: Vec<&'static str>,
}

/// Most bytes that may be moved, as a share of the written ones.
const MOVED_MOST: f64 = 0.02;
/// Reserved logs may have this many times the live bytes, plus two logs.
const PINNED_MOST: f64 = 1.5;
/// Least `read_ratio`, and least speed after two readers at random places, in MB/s.
const READ_LEAST: f64 = 0.7;
const SCATTERED_LEAST: f64 = 22.0;
/// Largest `pass_ratio` allowed.
const PASS_MOST: f64 = 1.05;

impl KeepingResult {
    pub(super) fn of(
        case: &KeepingCase,
        written_bytes: u64,
        home_on_drive_bytes: u64,
        intact: bool,
        stats: &VolumeStats,
        sums: Sums,
    ) -> Self {
        let misses = if intact { Vec::new() } else { vec!["content was lost"] };
        Self {
            drive: case.drive.profile.name.clone(),
            gate: case.gate.name(),
            log_space_bytes: case.logs,
            seed: case.seed,
            written_bytes,
            live_bytes: stats.o_dur_live_bytes,
            home_bytes: sums.home_bytes,
            home_on_drive_bytes,
            moved_bytes: sums.moved_bytes,
            pinned_bytes: stats.o_dur_pinned_bytes,
            waits: sums.waits,
            checkpoints: sums.checkpoints,
            swaps: sums.swaps,
            pass_ratio: None,
            others_home_bytes: None,
            out_of_order_bytes: None,
            read_ratio: None,
            read_mb_per_s: None,
            read_scattered_mb_per_s: None,
            misses,
        }
    }

    /// Adds the gate's promises that do not hold.
    #[must_use]
    pub(super) fn judged(mut self, gate: Gate) -> Self {
        let mut must = |holds: bool, miss| {
            if !holds {
                self.misses.push(miss);
            }
        };
        let is_none = self.home_bytes == 0 && self.home_on_drive_bytes == 0;
        let may_go = matches!(gate, Gate::Owners | Gate::Read);
        must(is_none || may_go, "bytes went home");
        match gate {
            Gate::Appended | Gate::Ring | Gate::Segments => {
                let most = self.written_bytes as f64 * MOVED_MOST;
                must(self.moved_bytes as f64 <= most, "more than 2 % was moved");
                must(self.waits == 0 || gate == Gate::Appended, "writers waited for room");
            }
            Gate::Spread => {
                let most = self.live_bytes as f64 * PINNED_MOST + 2.0 * LOG_BYTES as f64;
                must(self.pinned_bytes as f64 <= most, "logs are kept for more than that");
            }
            Gate::Owners => {
                let most = self.log_space_bytes / 2;
                must(self.live_bytes <= most && self.home_bytes > 0, "more than the budget stays");
                must(self.others_home_bytes == Some(0), "another's content went home");
                must(self.out_of_order_bytes == Some(0), "newer content went home first");
            }
            Gate::Read => {
                let beside_stream = self.read_ratio.is_some_and(|ratio| ratio >= READ_LEAST);
                must(beside_stream, "read back at less than 0.7 of home's speed");
                let scattered = self.read_scattered_mb_per_s;
                let is_fast = scattered.is_some_and(|speed| speed >= SCATTERED_LEAST);
                must(is_fast, "read back at less than 22 MB/s");
            }
            Gate::Pass => {
                let holds = self.pass_ratio.is_some_and(|ratio| ratio <= PASS_MOST);
                must(holds, "a checkpoint takes more than 1.05 times as long");
            }
        }
        self
    }
}

const TITLES: [&str; 15] = [
    "drive",
    "gate",
    "written",
    "live",
    "home",
    "on drive",
    "moved",
    "pinned",
    "waits",
    "passes",
    "swaps",
    "pass ratio",
    "read ratio",
    "MB/s",
    "scattered",
];

/// Number of leading columns that hold words.
const WORDS: usize = 2;

/// The results as a table, in MiB, and the promises that do not hold.
#[must_use]
pub fn text(found: &KeepingFigures) -> String {
    let mut said = aligned(&TITLES, found.cases.iter().map(row), WORDS);
    for case in &found.cases {
        for miss in &case.misses {
            said += &format!("{}: {miss}\n", case.gate);
        }
    }
    said
}

/// A figure with this many digits behind the point; nothing if it was not measured.
fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
}

fn row(case: &KeepingResult) -> Vec<String> {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    vec![
        case.drive.clone(),
        case.gate.to_owned(),
        mib(case.written_bytes),
        mib(case.live_bytes),
        mib(case.home_bytes),
        mib(case.home_on_drive_bytes),
        mib(case.moved_bytes),
        mib(case.pinned_bytes),
        case.waits.to_string(),
        case.checkpoints.to_string(),
        case.swaps.to_string(),
        figure(case.pass_ratio, 2),
        figure(case.read_ratio, 2),
        figure(case.read_mb_per_s, 1),
        figure(case.read_scattered_mb_per_s, 1),
    ]
}
