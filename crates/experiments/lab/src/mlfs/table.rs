//! The cases as text with aligned columns.

use super::results::{MlfsFigures, MlfsResult, Speedup, Spread};
use crate::table::aligned;

const TITLES: [&str; 12] = [
    "drive",
    "stream",
    "mode",
    "asked/s",
    "MB/s alone",
    "MB/s",
    "kept",
    "sync mean",
    "p99",
    "reached/s",
    "records",
    "flushes",
];
const SPEEDUPS: [&str; 5] = ["drive", "stream", "manylogs over", "bandwidth", "latency"];
/// Number of leading columns that hold words.
const WORDS: usize = 3;

/// Formats the cases as a table, and the speed-ups as another.
#[must_use]
pub fn text(found: &MlfsFigures) -> String {
    let mut out = aligned(&TITLES, found.cases.iter().map(row), WORDS);
    if !found.speedups.is_empty() {
        out.push('\n');
        out += &aligned(&SPEEDUPS, found.speedups.iter().map(speedup), WORDS);
    }
    out
}

fn row(case: &MlfsResult) -> Vec<String> {
    let ms = |ms: f64| if case.writes_asked > 0.0 { format!("{ms:.1} ms") } else { String::new() };
    vec![
        case.drive.clone(),
        case.stream.to_owned(),
        case.mode.to_owned(),
        format!("{}", case.writes_asked),
        format!("{:.1}", case.stream_mb_s_alone),
        format!("{:.1}", case.stream_mb_s),
        format!("{:.1} %", case.kept * 100.0),
        ms(case.sync_ms.mean),
        ms(case.sync_ms.p99),
        format!("{:.1}", case.writes_per_second),
        case.records.to_string(),
        case.flushes.to_string(),
    ]
}

fn speedup(found: &Speedup) -> Vec<String> {
    let text = |it: Spread| format!("{:.2} to {:.2} ({:.2})", it.min, it.max, it.mean);
    vec![
        found.drive.clone(),
        found.stream.to_owned(),
        found.over.to_owned(),
        text(found.bandwidth),
        text(found.latency),
    ]
}
