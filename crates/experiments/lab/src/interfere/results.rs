//! Results, in the form in which they are written as JSON.

use serde::Serialize;

use super::case::Case;
use super::drive_did::DriveDid;
use super::run::Measured;
use crate::stats::{LatencySummary, round3};

/// All cases of one `interfere` command.
#[derive(Clone, Debug, Serialize)]
pub struct Interference {
    /// Version of this structure.
    pub format: u32,
    /// Command line that repeats the measurement.
    pub command: String,
    /// Whether the user interrupted the command, so that cases are missing.
    pub interrupted: bool,
    /// Measured cases.
    pub cases: Vec<CaseResult>,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// The drive profile's name.
    pub drive: String,
    /// Policy as the user wrote it.
    pub policy: String,
    /// Policy with all its parameters.
    pub parameters: String,
    /// Whether the drive's write cache is on.
    pub drive_cache: bool,
    /// The drive's link to the host: `sata` or `sas`.
    pub drive_link: &'static str,
    /// Whether the host is told that the drive takes forced unit access while its cache is on.
    pub drive_fua: bool,
    /// Age limit of the drive's queue: an older command is served first.
    pub age_limit_ms: f64,
    /// Scheduling policy of the drive's queue.
    pub queue: &'static str,
    /// Whether the drive serves commands of high priority first.
    pub priority: bool,
    /// Access pattern of the streams.
    pub stream: &'static str,
    /// Number of streams.
    pub streams: u32,
    /// Requests that each stream keeps in flight.
    pub stream_depth: u32,
    /// Size of one request.
    pub stream_size_bytes: u64,
    /// Bytes that each stream asks for in a second; zero if it always goes on.
    pub stream_rate_bytes: u64,
    /// Length of a burst; zero if the stream always goes on.
    pub stream_burst_bytes: u64,
    /// Part of the disk in which the streams run.
    pub at: &'static str,
    /// Syncs per second that the clients ask for, all clients together; null in a closed loop.
    pub syncs_asked: Option<f64>,
    /// Number of clients that sync.
    pub sync_clients: u32,
    /// Random 4 KiB writes in one sync.
    pub writes_per_sync: u32,
    /// Requests that make up a sync.
    pub sync_mode: &'static str,
    /// Seed of all random choices.
    pub seed: u64,
    /// Length of the measurement.
    pub seconds: f64,
    /// Throughput of all streams together under the same policy, without syncs.
    pub stream_mb_s_alone: f64,
    /// Throughput of all streams together beside the syncs.
    pub stream_mb_s: f64,
    /// Throughput of each stream beside the syncs.
    pub each_mb_s: Vec<f64>,
    /// `stream_mb_s` divided by the throughput of the streams alone under `nologging`; null without
    /// a stream.
    pub kept: Option<f64>,
    /// Latency of the streams' requests beside the syncs, from the moment at which each was due.
    pub stream_ms: SyncMillis,
    /// Latency of a sync, from its first write to its last answer.
    pub sync_ms: SyncMillis,
    /// Syncs per second that began and ended within the measurement.
    pub syncs_per_second: f64,
    /// Activity of the drive.
    pub drive_did: DriveDid,
    /// The checkpoint that followed, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointPrice>,
}

/// What it cost to bring home what the syncs had logged, with nothing beside it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CheckpointPrice {
    /// Time that it took.
    pub seconds: f64,
    /// Writes that went home.
    pub home_writes: u64,
    /// Writes that had been logged.
    pub logged_writes: u64,
    /// Syncs per second if the time of the checkpoint counts as well.
    pub syncs_per_second: f64,
}

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SyncMillis {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl From<LatencySummary> for SyncMillis {
    fn from(us: LatencySummary) -> Self {
        let [mean, p50, p99, max] = [us.mean, us.p50, us.p99, us.max].map(|us| round3(us / 1e3));
        Self { mean, p50, p99, max }
    }
}

/// The result of a case. `own` is the stream alone under the case's policy, `base` under
/// `nologging`.
pub(super) fn result(
    case: &Case,
    beside: &Measured,
    own: &Measured,
    base: &Measured,
) -> CaseResult {
    let Case { policy, stream, syncs, .. } = case;
    let drive = case.drive.under(policy);
    let options = drive.options(case.seed);
    let mut drive_did = beside.drive;
    let syncs_done = beside.syncs_per_second * case.span.as_secs_f64();
    if syncs_done > 0.0 && own.stream_mb_s > 0.0 {
        let stream = own.drive.revolutions_waited * beside.stream_mb_s / own.stream_mb_s;
        let lost = (beside.drive.revolutions_waited - stream) / syncs_done;
        drive_did.revolutions_lost_per_sync = round3(lost);
    }
    CaseResult {
        drive: drive.name(),
        policy: policy.name.clone(),
        parameters: policy.policy.to_string(),
        drive_cache: drive.write_cache,
        drive_link: options.link.kind.name(),
        drive_fua: options.link.fua,
        age_limit_ms: options.age_limit.as_secs_f64() * 1e3,
        queue: options.policy.name(),
        priority: options.priority,
        stream: stream.kind.name(),
        streams: stream.streams,
        stream_depth: stream.depth,
        stream_size_bytes: stream.size.bytes(),
        stream_rate_bytes: stream.bursts.map_or(0, |it| it.bytes_per_second),
        stream_burst_bytes: stream.bursts.map_or(0, |it| it.burst.bytes()),
        at: stream.at.name(),
        syncs_asked: syncs.rate.per_second(),
        sync_clients: syncs.clients,
        writes_per_sync: syncs.writes,
        sync_mode: syncs.mode.name(),
        seed: case.seed,
        seconds: case.span.as_secs_f64(),
        stream_mb_s_alone: round3(own.stream_mb_s),
        stream_mb_s: round3(beside.stream_mb_s),
        each_mb_s: beside.each_mb_s.iter().copied().map(round3).collect(),
        kept: (stream.streams > 0).then(|| share(beside.stream_mb_s, base.stream_mb_s)),
        stream_ms: beside.stream_latencies.summary().into(),
        sync_ms: beside.latencies.summary().into(),
        syncs_per_second: round3(beside.syncs_per_second),
        drive_did,
        checkpoint: beside.checkpoint,
    }
}

fn share(part: f64, whole: f64) -> f64 {
    (part / whole.max(1e-9) * 1e4).round() / 1e4
}

impl CaseResult {
    /// The load that the clients ask for in a word: syncs per second, or a closed loop.
    #[must_use]
    pub fn syncs_text(&self) -> String {
        self.syncs_asked.map_or_else(|| "closed".to_owned(), |rate| rate.to_string())
    }

    /// The share of the stream that is kept, in percent; a dash without a stream.
    #[must_use]
    pub fn kept_text(&self) -> String {
        self.kept.map_or_else(|| "-".to_owned(), |kept| format!("{:.1} %", kept * 100.0))
    }
}

impl Interference {
    /// The results as indented JSON.
    ///
    /// # Errors
    /// If a figure has no JSON form, which none should.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
