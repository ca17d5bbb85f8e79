//! Results of a replay, in the form in which the JSON holds them and the report shows them.
//!
//! Two runs with the same command line and input give the same bytes: the computing time is not
//! part of them.

use manylogs_workload::SourceCounts;
use serde::{Deserialize, Serialize};

use crate::smr::SmrFigures;
use crate::stats::{Gain, LatencySummary};

/// The version of [`Replay`]'s structure.
pub const FORMAT: u32 = 2;

/// A whole replay: one trace on one drive under several policies.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// The version of this structure.
    pub format: u32,
    /// Warnings that concern all figures.
    pub warnings: Vec<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of seeds from which each policy was replayed. Latencies and gains are from all seeds,
    /// all other figures from the first.
    pub seeds: u32,
    /// The drive profile's name.
    pub drive: String,
    /// The drive.
    pub drive_details: DriveDetails,
    /// The trace.
    pub trace: TraceDetails,
    /// When requests were handed to the device.
    #[serde(rename = "loop")]
    pub loop_mode: LoopDetails,
    /// Rate of arrivals.
    pub rate: RateDetails,
    /// When writes had to be durable.
    pub durability: DurabilityDetails,
    /// Writes up to this size count as small.
    pub small_write_max_bytes: u64,
    /// The command line that repeats this replay.
    pub command: String,
    /// The baseline of all gains: the replayed plain drive with the lower mean time until data is
    /// durable. `None` if no plain drive was replayed.
    pub baseline: Option<String>,
    /// Whether a replay was interrupted.
    pub interrupted: bool,
    /// The result of each policy ([`PolicyResult`]) by name, in the order given.
    pub policies: Policies,
}

/// Results by policy, in the order given.
#[derive(Clone, Debug, Default)]
pub struct Policies(pub Vec<PolicyResult>);

/// The drive of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct DriveDetails {
    /// Vendor and model.
    pub model: String,
    /// Capacity.
    pub capacity_bytes: u64,
    /// The link to the host: `sata` or `sas`.
    pub link: &'static str,
    /// Whether the host is told that the drive takes forced unit access while its cache is on.
    pub fua: bool,
}

/// When writes had to be durable.
#[derive(Clone, Debug, Serialize)]
pub struct DurabilityDetails {
    /// `all`, `recorded` or `sync-every=TIME`, as the command line takes it.
    pub mode: String,
    /// Whether the user gave the durability. Otherwise it follows from the trace.
    pub given: bool,
    /// The durability in words.
    pub text: String,
}

/// The trace of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct TraceDetails {
    /// The files as the user gave them.
    pub files: Vec<String>,
    /// Requests of all passes.
    pub requests: u64,
    /// Number of passes over the trace.
    pub passes: u64,
    /// Recorded duration of one pass.
    pub span_seconds: f64,
    /// Arriving requests per second of the replay.
    pub offered_requests_per_second: f64,
    /// Requested data per second of the replay, in units of 10^6 bytes.
    pub offered_mb_per_second: f64,
    /// Preparation of the trace, in words.
    pub transforms: Vec<String>,
    /// Counters of one pass.
    pub one_pass: TraceSummary,
}

/// When requests were handed to the device.
#[derive(Clone, Debug, Serialize)]
pub struct LoopDetails {
    /// `open` (by arrival times) or `closed` (a fixed number in flight).
    pub mode: &'static str,
    /// Largest number of requests inside the device.
    pub depth: u32,
}

/// How the recorded arrival times were changed.
#[derive(Clone, Debug, Serialize)]
pub struct RateDetails {
    /// Factor by which arrivals are faster than recorded.
    pub factor: f64,
    /// `as recorded`, `given`, or `auto`.
    pub chosen: &'static str,
    /// With `auto`: wanted utilisation of the drive without logging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilisation: Option<f64>,
    /// With `auto`: utilisation that was measured when the rate was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
}

/// Result of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyResult {
    /// The policy as the user wrote it.
    #[serde(skip)]
    pub name: String,
    /// The policy with all its parameters.
    pub parameters: String,
    /// Whether the drive's write cache was on.
    pub drive_write_cache: bool,
    /// Requests replayed from the first seed.
    pub requests: u64,
    /// Latencies by class of request.
    pub latency_us: LatencyByKind,
    /// Throughput of streams in units of 10^6 bytes per second, counted over the time during which
    /// their requests were in flight. `None` if the trace has no stream.
    pub stream_mb_s: Option<f64>,
    /// Speed-up over `baseline`; `None` if no plain drive was replayed.
    pub gain: Option<Gain>,
    /// Number of writes that went to a log.
    pub logged_writes: u64,
    /// Size of these writes.
    pub logged_bytes: u64,
    /// Size of the records that hold them, headers and padding included.
    pub record_bytes: u64,
    /// `record_bytes` over `logged_bytes`; `None` if nothing was logged.
    pub write_amplification: Option<f64>,
    /// Number of writes that went home.
    pub bypassed_writes: u64,
    /// Number of records, each of one or more writes.
    pub log_records: u64,
    /// Exchanges of a full log near the head for an empty one elsewhere.
    pub log_swaps: u64,
    /// Largest size of the mapping table.
    pub mapping_table_bytes_max: u64,
    /// Share of time during which the drive worked.
    pub drive_busy_percent: f64,
    /// Data moved, in units of 10^6 bytes per simulated second.
    pub carried_mb_per_second: f64,
    /// Discards left out because the drive does not support them.
    pub discards_skipped: u64,
    /// Whether the trace asked for more than the drive could do.
    pub overload: Overload,
    /// Checkpoint that empties the logs after the replay.
    pub checkpoint: Option<Checkpoint>,
    /// From the first arrival to the last answer.
    pub simulated_seconds: f64,
    /// Latency of all reads and writes at the percentiles 1 to 99, as the paper compares them. For
    /// writes answered from memory, the time of that answer counts.
    pub all_at_percentiles_us: Vec<f64>,
    /// The cumulative distribution of the time until data was durable.
    pub durable_cdf: Cdf,
    /// The cumulative distribution of the latency of reads.
    pub reads_cdf: Cdf,
    /// Latency over the time of arrival.
    pub latency_over_time: OverTime,
    /// Positions of the head: a sample of the commands.
    pub head: HeadSample,
    /// Occupancy of the logs at the end, over the disk.
    pub log_occupancy: Occupancy,
    /// The run second by second, and the activity of a shingled drive. `None` for a conventional
    /// drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smr: Option<SmrFigures>,
}

/// Latencies by class of request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyByKind {
    /// Time until data was durable: FUA writes, and each flush together with the writes that it
    /// covers, counted while one of them was in flight.
    pub durable: LatencySummary,
    /// Durable writes up to `small_write_max_bytes`.
    pub durable_small_writes: LatencySummary,
    /// Larger durable writes.
    pub durable_large_writes: LatencySummary,
    /// Flushes with the writes that they cover.
    pub syncs: LatencySummary,
    /// Reads.
    pub reads: LatencySummary,
    /// Writes that may be answered from memory, before their data is durable.
    pub cached_writes: LatencySummary,
}

/// Signs that the trace outran the drive.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Overload {
    /// Whether latency measures backlog rather than the policy: the drive fell further and further
    /// behind, or most requests waited more than a second.
    pub overloaded: bool,
    /// Whether for a while more requests arrived than may be in the device at a time.
    pub bursts: bool,
    /// From the last arrival to the last answer.
    pub backlog_seconds_at_end: f64,
    /// Requests that arrived while as many as allowed were in the device.
    pub held_requests: u64,
    /// The longest wait of such a request before it was handed over.
    pub held_seconds_max: f64,
    /// Whether the replay was ended because of overload.
    pub stopped: bool,
}

/// Emptying the logs: reading them in order and writing the newest blocks home, merged.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checkpoint {
    /// Duration in simulated time.
    pub simulated_seconds: f64,
    /// Writes that were logged since the start; without logs as many would have gone home.
    pub logged_writes: u64,
    /// Writes home of the checkpoint.
    pub home_writes: u64,
    /// Writes saved by merging neighbours and dropping overwritten ones.
    pub writes_saved_percent: f64,
    /// Sectors that were logged.
    pub logged_sectors: u64,
    /// Sectors that were written home.
    pub home_sectors: u64,
    /// Sectors saved because a newer version replaced them in the log.
    pub sectors_saved_percent: f64,
    /// Reads of logs.
    pub log_reads: u64,
    /// Sectors that these reads covered.
    pub log_read_sectors: u64,
    /// Time spent reading logs (Fig. 7a).
    pub log_read_seconds: f64,
    /// Time spent writing home (Fig. 7a).
    pub home_write_seconds: f64,
}

/// A cumulative distribution, as columns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cdf {
    /// Latency.
    pub latency_us: Vec<f64>,
    /// The fraction of requests that took no longer.
    pub fraction: Vec<f64>,
}

/// Latency by time of arrival, as columns; a bin without requests is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OverTime {
    /// The start of each bin.
    pub seconds: Vec<f64>,
    /// Mean latency of the reads that arrived in it.
    pub read_mean_us: Vec<Option<f64>>,
    /// Longest.
    pub read_max_us: Vec<Option<f64>>,
    /// Mean time until data was durable, of the writes and syncs that arrived in it.
    pub durable_mean_us: Vec<Option<f64>>,
    /// Longest.
    pub durable_max_us: Vec<Option<f64>>,
}

/// A sample of the drive's commands, as columns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HeadSample {
    /// When the command was carried out.
    pub seconds: Vec<f64>,
    /// Its position, in units of 10^9 bytes from the start of the disk.
    pub gigabytes: Vec<f64>,
    /// `r` read home, `R` read a log, `w` write home, `W` write a log; one letter a command.
    pub kind: String,
}

/// Occupancy of the logs, in equal parts of the disk.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Occupancy {
    /// The middle of each part, in units of 10^9 bytes.
    pub gigabytes: Vec<f64>,
    /// How full its logs are.
    pub used_percent: Vec<f64>,
    /// How much of them is still the newest version.
    pub live_percent: Vec<f64>,
    /// How full the fullest single log is: swaps begin at the volume's threshold, 80 % by default.
    pub fullest_percent: f64,
}

impl Serialize for Policies {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|policy| (&policy.name, policy)))
    }
}

impl Policies {
    /// The policy of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&PolicyResult> {
        self.0.iter().find(|policy| policy.name == name)
    }
}

impl Replay {
    /// The plain drive that is the baseline of gains.
    #[must_use]
    pub fn base(&self) -> Option<&PolicyResult> {
        self.policies.named(self.baseline.as_deref()?)
    }

    /// The results as JSON.
    ///
    /// # Errors
    /// If a figure has no JSON form, which none should.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Recommendation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Use it: data becomes durable sooner, and reads and streams keep their speed.
    Use,
    /// The difference is too small, or too few requests were measured.
    #[default]
    NoDifference,
    /// Do not use it: durable writes, reads or streams become slower.
    DoNotUse,
}

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Recommendation for `policy`.
    pub decision: Decision,
    /// The best of the policies that `format` can make, by the mean time until data is durable.
    pub policy: Option<String>,
    /// The verdict in one sentence.
    pub text: String,
    /// Further findings, good and bad.
    pub points: Vec<String>,
}

/// Counters of a trace, from one pass over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceSummary {
    /// Number of requests of every kind.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes and write-zeroes.
    pub writes: u64,
    /// Writes with FUA, which are durable when answered.
    pub fua_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Arrival of the last request after the first.
    pub span_ns: u64,
    /// The first sector that no request reaches: the device must have at least this many.
    pub end_sector: u64,
    /// Requests that the reader dropped or changed.
    pub dropped: SourceCounts,
}
