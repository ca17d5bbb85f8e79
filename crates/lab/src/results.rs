//! What a replay found, in the form in which it is written as JSON and shown in the report.
//!
//! Two runs with the same command line and input give the same bytes: how long the computer took
//! is not in here.

use serde::Serialize;

use crate::replay::TraceSummary;
use crate::stats::{Gain, LatencySummary};
use crate::verdict::Verdict;

/// The version of [`Replay`]'s structure.
pub const FORMAT: u32 = 2;

/// A whole replay: one trace on one drive under several policies.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// The version of this structure.
    pub format: u32,
    /// What the reader of any figure must know.
    pub warnings: Vec<String>,
    /// What follows from the figures.
    pub verdict: Verdict,
    /// Of all randomness.
    pub seed: u64,
    /// Each policy was replayed from so many seeds: latencies and gains are from all, what else
    /// there is from the first.
    pub seeds: u32,
    /// The drive profile's name.
    pub drive: String,
    /// What the drive is.
    pub drive_details: DriveDetails,
    /// What was replayed.
    pub trace: TraceDetails,
    /// How requests were let in.
    #[serde(rename = "loop")]
    pub loop_mode: LoopDetails,
    /// By how much arrivals were sped up.
    pub rate: RateDetails,
    /// When writes had to be durable.
    pub durability: DurabilityDetails,
    /// Writes up to this size count as small.
    pub small_write_max_bytes: u64,
    /// The command line that repeats this replay.
    pub command: String,
    /// The plain drive that gains are counted from: that one of those replayed which makes data
    /// durable sooner on average. `None` if none was replayed.
    pub baseline: Option<String>,
    /// Whether some policies were not replayed to the end.
    pub interrupted: bool,
    /// What each policy did ([`PolicyResult`]), by its name, in the order given.
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
    /// Size.
    pub capacity_bytes: u64,
}

/// When writes had to be durable.
#[derive(Clone, Debug, Serialize)]
pub struct DurabilityDetails {
    /// `all`, `recorded` or `sync-every=TIME`, as the command line takes it.
    pub mode: String,
    /// Whether that was given, or follows from the trace.
    pub given: bool,
    /// In words.
    pub text: String,
}

/// The trace of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct TraceDetails {
    /// The files, as given.
    pub files: Vec<String>,
    /// Requests of all passes.
    pub requests: u64,
    /// How often the trace was replayed.
    pub passes: u64,
    /// How long one pass took when it was recorded.
    pub span_seconds: f64,
    /// Requests arriving in a second of the replay.
    pub offered_requests_per_second: f64,
    /// Data asked for in a second of the replay, in units of 10^6 bytes.
    pub offered_mb_per_second: f64,
    /// What was done to the trace, in words.
    pub transforms: Vec<String>,
    /// One pass in figures.
    pub one_pass: TraceSummary,
}

/// How requests were let in.
#[derive(Clone, Debug, Serialize)]
pub struct LoopDetails {
    /// `open` (by arrival times) or `closed` (a fixed number in flight).
    pub mode: &'static str,
    /// Requests handed to the device at a time, at most.
    pub depth: u32,
}

/// How the recorded arrival times were changed.
#[derive(Clone, Debug, Serialize)]
pub struct RateDetails {
    /// Arrivals come this many times as fast as recorded.
    pub factor: f64,
    /// `as recorded`, `given`, or `auto`.
    pub chosen: &'static str,
    /// With `auto`: how busy the drive should be without logging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilisation: Option<f64>,
    /// With `auto`: how busy it was when the rate was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
}

/// What one policy did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyResult {
    /// The name under which it was asked for.
    #[serde(skip)]
    pub name: String,
    /// The policy with all its parameters.
    pub parameters: String,
    /// Whether the drive's write cache was on under it.
    pub drive_write_cache: bool,
    /// Requests replayed from the first seed.
    pub requests: u64,
    /// Latencies by what was waited for.
    pub latency_us: LatencyByKind,
    /// Megabytes (10^6) a second of streams, of the time in which they had requests under way.
    /// `None` if the trace has no stream.
    pub stream_mb_s: Option<f64>,
    /// How many times as fast as `baseline`; `None` if no plain drive was replayed.
    pub gain: Option<Gain>,
    /// Small writes sent to a log.
    pub logged_writes: u64,
    /// Their size.
    pub logged_bytes: u64,
    /// Size of the records that hold them, headers and padding included.
    pub record_bytes: u64,
    /// `record_bytes` over `logged_bytes`; `None` if nothing was logged.
    pub write_amplification: Option<f64>,
    /// Writes sent home.
    pub bypassed_writes: u64,
    /// Appends, each of one or more writes.
    pub log_records: u64,
    /// Exchanges of a full log near the head for an empty one elsewhere.
    pub log_swaps: u64,
    /// Largest size of the mapping table.
    pub mapping_table_bytes_max: u64,
    /// Share of the time in which the drive worked.
    pub drive_busy_percent: f64,
    /// Data moved, in units of 10^6 bytes per simulated second.
    pub carried_mb_per_second: f64,
    /// Discards left out because the drive knows none.
    pub discards_skipped: u64,
    /// Whether the trace asked for more than the drive could do.
    pub overload: Overload,
    /// Emptying the logs after the replay.
    pub checkpoint: Option<Checkpoint>,
    /// From the first arrival to the last answer.
    pub simulated_seconds: f64,
    /// Latency of all reads and writes at the percentiles 1 to 99, as the paper compares them;
    /// writes answered from memory count with that.
    pub all_at_percentiles_us: Vec<f64>,
    /// The cumulative distribution of the time until data was durable.
    pub durable_cdf: Cdf,
    /// ... and of the latency of reads.
    pub reads_cdf: Cdf,
    /// Latency by time of arrival.
    pub latency_over_time: OverTime,
    /// Where the head was: a sample of the commands.
    pub head: HeadSample,
    /// What the logs held at the end, over the disk.
    pub log_occupancy: Occupancy,
}

/// Latencies by what was waited for.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyByKind {
    /// Until data was durable: writes with FUA, and each flush together with the writes that it
    /// covers, for as long as one of them was under way.
    pub durable: LatencySummary,
    /// Of these, writes up to `small_write_max_bytes`.
    pub durable_small_writes: LatencySummary,
    /// Larger writes.
    pub durable_large_writes: LatencySummary,
    /// Flushes with the writes that they cover.
    pub syncs: LatencySummary,
    /// Reads.
    pub reads: LatencySummary,
    /// Writes that may be answered from memory: their data is not durable then.
    pub cached_writes: LatencySummary,
}

/// How far the trace outran the drive.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Overload {
    /// Whether latency measures backlog rather than the policy: the drive ran ever further
    /// behind, or most requests waited more than a second.
    pub overloaded: bool,
    /// Whether more arrived for a while than the device may be handed at a time.
    pub bursts: bool,
    /// From the last arrival to the last answer.
    pub backlog_seconds_at_end: f64,
    /// Requests that arrived while the device was handed as many as it may have.
    pub held_requests: u64,
    /// The longest wait of such a request before it was handed over.
    pub held_seconds_max: f64,
    /// Whether the replay was ended because of it.
    pub stopped: bool,
}

/// Emptying the logs: reading them in order and writing the newest blocks home, merged.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checkpoint {
    /// Duration in simulated time.
    pub simulated_seconds: f64,
    /// Writes that were logged since the start: as many would have gone home at once.
    pub logged_writes: u64,
    /// Writes that it took.
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
    /// Sectors that these read.
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
    /// Where, in units of 10^9 bytes from the start of the disk.
    pub gigabytes: Vec<f64>,
    /// `r` read home, `R` read a log, `w` write home, `W` write a log; one letter a command.
    pub kind: String,
}

/// What the logs hold, in equal parts of the disk.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Occupancy {
    /// The middle of each part, in units of 10^9 bytes.
    pub gigabytes: Vec<f64>,
    /// How full its logs are.
    pub used_percent: Vec<f64>,
    /// How much of them is still the newest version.
    pub live_percent: Vec<f64>,
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
    /// The plain drive that gains are counted from.
    #[must_use]
    pub fn base(&self) -> Option<&PolicyResult> {
        self.policies.named(self.baseline.as_deref()?)
    }

    /// The whole as JSON.
    ///
    /// # Errors
    /// If a figure has no JSON form, which none should.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}
