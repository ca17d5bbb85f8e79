//! Results, in the form in which they are written as JSON.

use serde::Serialize;

use super::case::ApplicationCase;
use super::judge::Judgement;
use super::run::Measured;
use crate::interfere::SyncMillis;
use crate::stats::round3;

/// All cases of one command.
#[derive(Clone, Debug, Serialize)]
pub struct ApplicationFigures {
    /// Version of this structure.
    pub format: u32,
    /// Command line that repeats the measurement.
    pub command: String,
    /// Whether the user interrupted the command, so that cases are missing.
    pub interrupted: bool,
    /// Measured cases.
    pub cases: Vec<ApplicationResult>,
    /// Each mode beside `manylogs+odur`, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub judged: Vec<Judgement>,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct ApplicationResult {
    /// The drive profile's name.
    pub drive: String,
    /// Whether the drive's write cache is on.
    pub drive_cache: bool,
    /// The program.
    pub app: &'static str,
    /// Time from one flush of a database to the next.
    pub flush_every_ms: Option<f64>,
    /// Mode of the journal; `manylogs+odur` if the program's logs are durable-only.
    pub mode: &'static str,
    /// Number of instances of the program.
    pub instances: u32,
    /// Requests that the reader has under way.
    pub stream_depth: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Length of the measurement.
    pub seconds: f64,
    /// Throughput of the reader.
    pub stream_mb_s: f64,
    /// `stream_mb_s` divided by the reader's throughput alone in the mode `ordered`.
    pub kept: f64,
    /// Latency of the program's operations that make data durable.
    pub flush_ms: SyncMillis,
    /// Latency of the operations that its users wait for.
    pub request_ms: SyncMillis,
    /// Operations a second of all instances.
    pub operations_per_s: f64,
    /// Operations a second of all instances that make data durable; requests of programs that sync
    /// nothing.
    pub carried_per_s: f64,
    /// How many of these were allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carry_per_s: Option<f64>,
    /// Records of the logs near the head, or transactions of ext4's journal.
    pub records: u64,
    /// Flushes of the drive that transactions waited for.
    pub drive_flushes: u64,
    /// Bytes appended to the logs or the journal.
    pub log_bytes: u64,
    /// Bytes of the program's durable-only logs that were written home all the same; `None` if its
    /// logs are ordinary files.
    pub o_dur_home_bytes: Option<u64>,
}

/// The result of a case; `base` is the reader alone in the mode `ordered`.
pub(super) fn result(
    case: &ApplicationCase,
    beside: &Measured,
    base: &Measured,
) -> ApplicationResult {
    ApplicationResult {
        drive: case.disk.drive.profile.name.clone(),
        drive_cache: case.disk.drive.write_cache,
        app: case.program.name(),
        flush_every_ms: case.flush_every_ms(),
        mode: case.mode_name(),
        instances: case.instances,
        stream_depth: case.stream_depth,
        seed: case.disk.seed,
        seconds: case.span.as_secs_f64(),
        stream_mb_s: beside.stream_mb_s,
        kept: round3(beside.stream_mb_s / base.stream_mb_s.max(1e-9)),
        flush_ms: beside.flush_ms,
        request_ms: beside.request_ms,
        operations_per_s: beside.operations_per_s,
        carried_per_s: beside.carried_per_s,
        carry_per_s: case.carry_per_s,
        records: beside.journal.records,
        drive_flushes: beside.journal.flushes,
        log_bytes: beside.journal.log_bytes,
        o_dur_home_bytes: case.odur.then_some(beside.o_dur_home_bytes),
    }
}

impl ApplicationFigures {
    /// The figures measured by `command`; incomplete if it was `interrupted`.
    #[must_use]
    pub fn new(command: String, interrupted: bool, cases: Vec<ApplicationResult>) -> Self {
        Self { format: 1, command, interrupted, cases, judged: Vec::new() }
    }

    /// The results as indented JSON.
    ///
    /// # Errors
    /// If a figure has no JSON form, which none should.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
