//! The table of policies that the terminal and the report show, and figures as text.

use crate::results::{PolicyResult, Replay};
use crate::stats::Interval;

/// Columns.
const COLUMNS: usize = 10;

/// The column titles.
pub const TITLES: [&str; COLUMNS] = [
    "policy",
    "durable mean",
    "p50",
    "p90",
    "p99",
    "times as fast",
    "reads mean",
    "times as fast",
    "streams",
    "disk busy",
];

/// The rows: one policy each, in the order of the replay.
#[must_use]
pub fn rows(replay: &Replay) -> Vec<[String; COLUMNS]> {
    replay.policies.0.iter().map(|policy| row(replay, policy)).collect()
}

fn row(replay: &Replay, policy: &PolicyResult) -> [String; COLUMNS] {
    let (durable, reads) = (&policy.latency_us.durable, &policy.latency_us.reads);
    let gain = policy.gain.filter(|_| replay.baseline.as_ref() != Some(&policy.name));
    let gain = gain.unwrap_or_default();
    let latency = |count: u64, us: f64| if count == 0 { none() } else { duration(us) };
    let gained = |interval: Option<Interval>| interval.as_ref().map_or_else(none, span);
    [
        policy.name.clone(),
        latency(durable.requests, durable.mean),
        latency(durable.requests, durable.p50),
        latency(durable.requests, durable.p90),
        latency(durable.requests, durable.p99),
        gained(gain.durable_mean),
        latency(reads.requests, reads.mean),
        gained(gain.reads_mean),
        policy.stream_mb_s.map_or_else(none, |mb_s| format!("{} MB/s", three_figures(mb_s))),
        format!("{:.1} %", policy.drive_busy_percent),
    ]
}

fn none() -> String {
    "-".to_owned()
}

/// The table as text with aligned columns.
#[must_use]
pub fn text(replay: &Replay) -> String {
    aligned(&TITLES, rows(replay).into_iter(), 1)
}

/// A table with its titles above it. The first `words` columns are aligned at the left, the others
/// at the right.
pub(crate) fn aligned<R: AsRef<[String]>>(
    titles: &[&str],
    rows: impl Iterator<Item = R>,
    words: usize,
) -> String {
    let mut lines = vec![titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows.map(|row| row.as_ref().to_vec()));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let cell = if column < words {
                format!("{gap}{cell:<width$}")
            } else {
                format!("{gap}{cell:>width$}")
            };
            out.push_str(&cell);
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// A latency in microseconds with three figures and a unit that suits it.
#[must_use]
pub fn duration(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", three_figures(us)),
        us if us < 1e6 => format!("{} ms", three_figures(us / 1e3)),
        us if us < 120e6 => format!("{} s", three_figures(us / 1e6)),
        us if us < 7200e6 => format!("{} min", three_figures(us / 60e6)),
        us => format!("{} h", three_figures(us / 3600e6)),
    }
}

/// How many times as fast, with its interval: `2.10 (2.05 to 2.16)`.
#[must_use]
pub fn span(interval: &Interval) -> String {
    let Interval { estimate, low, high } = interval;
    let [estimate, low, high] = [estimate, low, high].map(|factor| three_figures(*factor));
    format!("{estimate} ({low} to {high})")
}

/// The interval in words.
#[must_use]
pub fn factor(interval: &Interval) -> String {
    let Interval { estimate, low, high } = interval;
    let [estimate, low, high] = [estimate, low, high].map(|factor| three_figures(*factor));
    format!("{estimate} times as fast, between {low} and {high}")
}

/// A size with a unit that suits it.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b < 1e3 => format!("{bytes} B"),
        b if b < 1e6 => format!("{} kB", three_figures(b / 1e3)),
        b if b < 1e9 => format!("{} MB", three_figures(b / 1e6)),
        b if b < 1e12 => format!("{} GB", three_figures(b / 1e9)),
        b => format!("{} TB", three_figures(b / 1e12)),
    }
}

fn three_figures(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_a_unit_that_suits_them() {
        assert_eq!(duration(0.0), "0.00 us");
        assert_eq!(duration(999.4), "999 us");
        assert_eq!(duration(12_345.0), "12.3 ms");
        assert_eq!(duration(1_234_000.0), "1.23 s");
        assert_eq!(duration(3_031e6), "50.5 min");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000), "1.50 MB");
        let interval = Interval { estimate: 1.904, low: 1.8, high: 20.04 };
        assert_eq!(span(&interval), "1.90 (1.80 to 20.0)");
        assert_eq!(factor(&interval), "1.90 times as fast, between 1.80 and 20.0");
    }
}
