//! The table of policies that the terminal and the report show.

use crate::results::{PolicyResult, Replay};

/// The column titles.
pub const TITLES: [&str; 10] = [
    "policy",
    "mean",
    "p50",
    "p90",
    "p99",
    "max latency",
    "speed-up",
    "log swaps",
    "table",
    "disk busy",
];

/// The rows: one policy each, in the order of the replay.
#[must_use]
pub fn rows(replay: &Replay) -> Vec<[String; 10]> {
    replay.policies.0.iter().map(row).collect()
}

fn row(policy: &PolicyResult) -> [String; 10] {
    let latency = &policy.latency_us;
    let speedup = policy.speedup_over_nologging.as_ref();
    [
        policy.name.clone(),
        duration(latency.mean),
        duration(latency.p50),
        duration(latency.p90),
        duration(latency.p99),
        duration(latency.max),
        speedup.map_or_else(|| "-".to_owned(), |s| times(s.mean_over_percentiles)),
        policy.log_swaps.to_string(),
        bytes(policy.mapping_table_bytes_max),
        format!("{:.1} %", policy.drive_busy_percent),
    ]
}

/// The table as text with aligned columns.
#[must_use]
pub fn text(replay: &Replay) -> String {
    let mut lines = vec![TITLES.map(str::to_owned)];
    lines.extend(rows(replay));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 10] = std::array::from_fn(width);
    let mut out = String::new();
    for line in &lines {
        let mut cells = line.iter().zip(widths);
        if let Some((policy, width)) = cells.next() {
            out.push_str(&format!("{policy:<width$}"));
        }
        cells.for_each(|(cell, width)| out.push_str(&format!("  {cell:>width$}")));
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
        us => format!("{} s", three_figures(us / 1e6)),
    }
}

/// A factor with three figures.
#[must_use]
pub fn times(factor: f64) -> String {
    format!("{} x", three_figures(factor))
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
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000), "1.50 MB");
        assert_eq!(times(1.904), "1.90 x");
    }
}
