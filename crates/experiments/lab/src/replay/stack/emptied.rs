//! The cost of a checkpoint.

use manylogs::CheckpointReport;
use manylogs_block::Nanos;

use crate::results::Checkpoint;
use crate::stats::round3;

pub(super) fn checkpoint(report: &CheckpointReport, took: Nanos) -> Checkpoint {
    let saved = |before: u64, after: u64| {
        if before == 0 { 0.0 } else { round3((1.0 - after as f64 / before as f64) * 100.0) }
    };
    Checkpoint {
        simulated_seconds: round3(took.as_secs_f64()),
        logged_writes: report.logged_writes,
        home_writes: report.home_writes,
        writes_saved_percent: saved(report.logged_writes, report.home_writes),
        logged_sectors: report.logged_sectors.0,
        home_sectors: report.home_write_sectors.0,
        sectors_saved_percent: saved(report.logged_sectors.0, report.home_write_sectors.0),
        log_reads: report.log_reads,
        log_read_sectors: report.log_read_sectors.0,
        log_read_seconds: round3(report.log_read_time.as_secs_f64()),
        home_write_seconds: round3(report.home_write_time.as_secs_f64()),
    }
}
