//! A sweep as a table for people, in Markdown.

use std::fmt::Write as _;

use super::row::{Ask, Row};
use crate::table::duration;

const TITLES: [&str; 13] = [
    "trace",
    "drive",
    "policy",
    "durable mean",
    "p50",
    "p90",
    "p99",
    "times as fast",
    "p50",
    "p90",
    "p99",
    "reads, times",
    "streams, times",
];

/// One line for each trace, drive and policy: means over the seeds, and the gain over the plain
/// drive with its minimum and maximum over the seeds. Of several plain drives, the one that makes
/// data durable soonest is the baseline. Combinations whose figures are not valid are left out of
/// the table, and named below it with the reason.
#[must_use]
pub fn summary(rows: &[Row]) -> String {
    let (left_out, rows): (Vec<Cell<'_>>, Vec<Cell<'_>>) =
        groups(rows).into_iter().partition(|cell| fault(cell).is_some());
    let rows: Vec<Row> = rows.into_iter().flatten().cloned().collect();
    let mut out = table(&rows);
    for cell in left_out {
        let Ask { trace, drive, policy, .. } = &cell[0].ask;
        let why = fault(&cell).unwrap_or_default();
        let _ = writeln!(out, "left out: {trace} on {drive}, {policy}: {why}");
    }
    out
}

/// Why the rows of a trace, drive and policy are not valid: the first reason found.
fn fault(cell: &Cell<'_>) -> Option<String> {
    cell.iter().find_map(|row| row.fault())
}

fn table(rows: &[Row]) -> String {
    let mut out = format!("| {} |\n|{}\n", TITLES.join(" | "), "---|".repeat(TITLES.len()));
    for cell in groups(rows) {
        let first = &cell[0].ask;
        let base = base(rows, cell[0]);
        let latency = |of: fn(&Row) -> Option<f64>| mean(&cell, of).map_or("-".into(), duration);
        let times = |of: fn(&Row) -> Option<f64>| {
            base.as_ref().and_then(|base| times(&cell, base, of)).unwrap_or("-".into())
        };
        let short = |of: fn(&Row) -> Option<f64>| {
            let ratio = base.as_ref().and_then(|base| Some(mean(base, of)? / mean(&cell, of)?));
            ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            first.trace,
            first.drive,
            first.policy,
            latency(|row| row.durable.mean),
            latency(|row| row.durable.p50),
            latency(|row| row.durable.p90),
            latency(|row| row.durable.p99),
            times(|row| row.durable.mean),
            short(|row| row.durable.p50),
            short(|row| row.durable.p90),
            short(|row| row.durable.p99),
            times(|row| row.reads.mean),
            times(|row| row.stream_mb_s.map(|mb_s| 1.0 / mb_s)),
        );
    }
    out
}

/// Rows of one trace, drive and policy.
type Cell<'a> = Vec<&'a Row>;

fn groups(rows: &[Row]) -> Vec<Cell<'_>> {
    let mut groups: Vec<Cell<'_>> = Vec::new();
    for row in rows {
        let same = |cell: &&mut Cell<'_>| {
            let ask = &cell[0].ask;
            (&ask.trace, &ask.drive, &ask.policy)
                == (&row.ask.trace, &row.ask.drive, &row.ask.policy)
        };
        match groups.iter_mut().find(same) {
            Some(cell) => cell.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The plain drive that `row` is compared with.
fn base<'a>(rows: &'a [Row], row: &Row) -> Option<Cell<'a>> {
    let plain = |cell: &Cell<'_>| {
        let ask = &cell[0].ask;
        let name = ask.policy.split(':').next();
        ask.trace == row.ask.trace && ask.drive == row.ask.drive && name == Some("nologging")
    };
    let worth = |cell: &Cell<'_>| mean(cell, |row| row.durable.mean.or(row.reads.mean));
    groups(rows)
        .into_iter()
        .filter(plain)
        .min_by(|a, b| worth(a).unwrap_or(f64::MAX).total_cmp(&worth(b).unwrap_or(f64::MAX)))
}

fn mean(cell: &Cell<'_>, of: fn(&Row) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = cell.iter().filter_map(|row| of(row)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The ratio of means, with the least and the most of the seeds.
fn times(cell: &Cell<'_>, base: &Cell<'_>, of: fn(&Row) -> Option<f64>) -> Option<String> {
    let pairs = cell.iter().filter_map(|row| {
        let base = base.iter().find(|base| base.ask.seed == row.ask.seed)?;
        Some(of(base)? / of(row)?)
    });
    let ratios: Vec<f64> = pairs.collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let estimate = mean(base, of)? / mean(cell, of)?;
    (!ratios.is_empty()).then(|| format!("{estimate:.2} ({low:.2} to {high:.2})"))
}
