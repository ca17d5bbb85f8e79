//! Results, in the form in which they are written as JSON.

use manylogs_mlfs::JournalMode;
use serde::Serialize;

use super::case::MlfsCase;
use super::run::Measured;
use crate::interfere::SyncMillis;
use crate::stats::round3;

/// All cases of one command.
#[derive(Clone, Debug, Serialize)]
pub struct MlfsFigures {
    /// Version of this structure.
    pub format: u32,
    /// Command line that repeats the measurement.
    pub command: String,
    /// Whether the user interrupted the command, so that cases are missing.
    pub interrupted: bool,
    /// Measured cases.
    pub cases: Vec<MlfsResult>,
    /// The mode manylogs compared with each other mode (the Manylogs paper, Table II).
    pub speedups: Vec<Speedup>,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct MlfsResult {
    /// The drive profile's name.
    pub drive: String,
    /// Whether the drive's write cache is on.
    pub drive_cache: bool,
    /// The drive's link to the host: `sata` or `sas`.
    pub drive_link: &'static str,
    /// Whether the host is told that the drive takes forced unit access while its cache is on.
    pub drive_fua: bool,
    /// Mode of the journal.
    pub mode: &'static str,
    /// What the stream does.
    pub stream: &'static str,
    /// Requested small writes a second.
    pub writes_asked: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Length of the measurement.
    pub seconds: f64,
    /// Throughput of the stream alone in the same mode.
    pub stream_mb_s_alone: f64,
    /// Throughput of the stream beside the small writes.
    pub stream_mb_s: f64,
    /// `stream_mb_s` divided by the throughput of the stream alone in the mode `ordered`.
    pub kept: f64,
    /// Latency of a sync of the file system.
    pub sync_ms: SyncMillis,
    /// Small writes a second that were made durable.
    pub writes_per_second: f64,
    /// Transactions of the journal.
    pub transactions: u64,
    /// Records of the logs near the head, or transactions of ext4's journal.
    pub records: u64,
    /// Flushes that transactions waited for.
    pub flushes: u64,
    /// Bytes appended to the logs or the journal.
    pub log_bytes: u64,
    /// Bytes written home from there.
    pub checkpoint_bytes: u64,
}

/// How much faster one mode is than another, over pairs of cases with the same drive, stream and
/// rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// The drive profile's name.
    pub drive: String,
    /// What the stream does.
    pub stream: &'static str,
    /// The mode to which manylogs is compared.
    pub over: &'static str,
    /// Ratio of the stream's throughputs.
    pub bandwidth: Spread,
    /// Ratio of the mean latencies of syncs.
    pub latency: Spread,
}

/// Least, largest and mean of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    fn of(figures: &[f64]) -> Self {
        let min = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let max = figures.iter().copied().fold(0.0, f64::max);
        let mean = figures.iter().sum::<f64>() / figures.len().max(1) as f64;
        Self { min: round3(min), max: round3(max), mean: round3(mean) }
    }
}

/// The result of a case. `own` is the stream alone in the case's mode, `base` in the mode
/// `ordered`.
pub(super) fn result(
    case: &MlfsCase,
    beside: &Measured,
    own: &Measured,
    base: &Measured,
) -> MlfsResult {
    let link = case.drive.options(case.seed).link;
    MlfsResult {
        drive: case.drive.name(),
        drive_cache: case.drive.write_cache,
        drive_link: link.kind.name(),
        drive_fua: link.fua,
        mode: case.mode.name(),
        stream: case.stream.name(),
        writes_asked: case.writes_per_second,
        seed: case.seed,
        seconds: case.span.as_secs_f64(),
        stream_mb_s_alone: round3(own.stream_mb_s),
        stream_mb_s: round3(beside.stream_mb_s),
        kept: round3(beside.stream_mb_s / base.stream_mb_s.max(1e-9)),
        sync_ms: beside.latencies.summary().into(),
        writes_per_second: round3(beside.writes_per_second),
        transactions: beside.journal.transactions,
        records: beside.journal.records,
        flushes: beside.journal.flushes,
        log_bytes: beside.journal.log_bytes,
        checkpoint_bytes: beside.journal.home_bytes,
    }
}

/// The mode manylogs compared with each other mode, for each drive and stream.
fn speedups(cases: &[MlfsResult]) -> Vec<Speedup> {
    let ours = JournalMode::Manylogs.name();
    let beside = |case: &&MlfsResult| case.writes_asked > 0.0;
    let mut found: Vec<Speedup> = Vec::new();
    for other in cases.iter().filter(beside).filter(|case| case.mode != ours) {
        let is_known = found.iter().any(|known| {
            (known.drive.as_str(), known.stream, known.over)
                == (other.drive.as_str(), other.stream, other.mode)
        });
        if is_known {
            continue;
        }
        let alike = |case: &&MlfsResult| case.drive == other.drive && case.stream == other.stream;
        let theirs = cases.iter().filter(beside).filter(alike).filter(|it| it.mode == other.mode);
        let pairs: Vec<(f64, f64)> = theirs
            .filter_map(|theirs| {
                let ours = cases.iter().filter(alike).find(|case| {
                    case.mode == ours && case.writes_asked.total_cmp(&theirs.writes_asked).is_eq()
                })?;
                let bandwidth = ours.stream_mb_s / theirs.stream_mb_s.max(1e-9);
                Some((bandwidth, theirs.sync_ms.mean / ours.sync_ms.mean.max(1e-9)))
            })
            .collect();
        if pairs.is_empty() {
            continue;
        }
        let (bandwidth, latency): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        found.push(Speedup {
            drive: other.drive.clone(),
            stream: other.stream,
            over: other.mode,
            bandwidth: Spread::of(&bandwidth),
            latency: Spread::of(&latency),
        });
    }
    found
}

impl MlfsFigures {
    /// The figures measured by `command`; incomplete if it was `interrupted`.
    #[must_use]
    pub fn new(command: String, interrupted: bool, cases: Vec<MlfsResult>) -> Self {
        Self { format: 1, command, interrupted, speedups: speedups(&cases), cases }
    }

    /// The results as indented JSON.
    ///
    /// # Errors
    /// If a figure has no JSON form, which none should.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
