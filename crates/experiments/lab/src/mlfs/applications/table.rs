//! The cases as text with aligned columns.

use super::results::{ApplicationFigures, ApplicationResult};
use crate::interfere::SyncMillis;
use crate::table::aligned;

const TITLES: [&str; 12] = [
    "drive",
    "program",
    "mode",
    "instances",
    "reader depth",
    "MB/s",
    "kept",
    "flush mean",
    "p99",
    "request mean",
    "p99",
    "operations/s",
];
/// Number of leading columns that hold words.
const WORDS: usize = 3;

/// Formats the cases as a table.
#[must_use]
pub fn text(found: &ApplicationFigures) -> String {
    aligned(&TITLES, found.cases.iter().map(row), WORDS)
}

/// A program and its flush period.
pub(super) fn program(app: &str, flush_every_ms: Option<f64>) -> String {
    flush_every_ms.map_or_else(|| app.to_owned(), |ms| format!("{app}, {ms} ms"))
}

fn row(case: &ApplicationResult) -> Vec<String> {
    let ms = |ms: f64, all: &SyncMillis| {
        if all.max > 0.0 { format!("{ms:.1} ms") } else { "-".to_owned() }
    };
    let (flush, request) = (&case.flush_ms, &case.request_ms);
    vec![
        case.drive.clone(),
        program(case.app, case.flush_every_ms),
        case.mode.to_owned(),
        case.instances.to_string(),
        case.stream_depth.to_string(),
        format!("{:.1}", case.stream_mb_s),
        format!("{:.1} %", case.kept * 100.0),
        ms(flush.mean, flush),
        ms(flush.p99, flush),
        ms(request.mean, request),
        ms(request.p99, request),
        format!("{:.1}", case.operations_per_s),
    ]
}
