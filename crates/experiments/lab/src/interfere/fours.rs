//! The plain drive and a volume, each with the drive's write cache on and off: four figures side by
//! side, where all were measured.

use super::results::{CaseResult, Interference};
use super::table;
use crate::table::aligned;

const TITLES: [&str; 8] = [
    "drive",
    "link",
    "policy",
    "load",
    "plain, cache on",
    "plain, off",
    "policy, cache on",
    "policy, off",
];
/// Number of leading columns that hold words.
const WORDS: usize = 4;
/// The policy without a volume.
const PLAIN: &str = "nologging";

/// The table; empty if no load was measured with both settings of the cache. Each figure is the
/// mean latency of a sync and the share of the stream that is kept.
pub(super) fn text(found: &Interference) -> String {
    let cases = &found.cases;
    let mut rows: Vec<[String; TITLES.len()]> = Vec::new();
    for case in cases.iter().filter(|case| case.drive_cache && case.policy != PLAIN) {
        let figure = |policy: &str, cache: bool| {
            let same = |other: &&CaseResult| {
                other.policy == policy && other.drive_cache == cache && is_beside(case, other)
            };
            cases.iter().find(same).map(figure_of)
        };
        let figures = [(PLAIN, true), (PLAIN, false), (&case.policy, true), (&case.policy, false)];
        let figures = figures.map(|(policy, cache)| figure(policy, cache));
        let [Some(plain_on), Some(plain_off), Some(on), Some(off)] = figures else { continue };
        let fua = if case.drive_fua { "+fua" } else { "" };
        rows.push([
            case.drive.clone(),
            format!("{}{fua}", case.drive_link),
            case.policy.clone(),
            table::load(case),
            plain_on,
            plain_off,
            on,
            off,
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = "\nMean of a sync and share of the stream that is kept, with the drive's write \
                cache on and off:\n\n";
    format!("{head}{}", aligned(&TITLES, rows.into_iter(), WORDS))
}

fn figure_of(case: &CaseResult) -> String {
    let kept = case.kept_text();
    match case.sync_ms.max {
        // No sync that began within the measurement has an answer.
        max if max <= 0.0 => format!("none ended, {kept}"),
        _ => format!("{:.1} ms, {kept}", case.sync_ms.mean),
    }
}

/// Whether two cases differ only in policy and cache. FUA is ignored without a cache, where it has
/// no effect.
fn is_beside(case: &CaseResult, other: &CaseResult) -> bool {
    let fua = !other.drive_cache || other.drive_fua == case.drive_fua;
    fua && (&case.drive, case.drive_link, case.queue, case.priority, case.seed)
        == (&other.drive, other.drive_link, other.queue, other.priority, other.seed)
        && (case.sync_clients, case.writes_per_sync) == (other.sync_clients, other.writes_per_sync)
        && table::load(case) == table::load(other)
}
