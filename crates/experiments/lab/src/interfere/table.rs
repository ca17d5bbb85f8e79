//! The cases as text with aligned columns.

use manylogs_block::bytes_text;

use super::fours;
use super::results::{CaseResult, Interference};
use crate::table::aligned;

const TITLES: [&str; 17] = [
    "drive",
    "policy",
    "stream",
    "asks for",
    "depth",
    "size",
    "at",
    "age",
    "syncs",
    "MB/s alone",
    "MB/s",
    "kept",
    "request mean",
    "sync mean",
    "p50",
    "p99",
    "syncs/s",
];
/// Number of leading columns that hold words.
const WORDS: usize = 4;

/// Formats the cases as a table, and a second one where the drive's cache was on and off.
#[must_use]
pub fn text(found: &Interference) -> String {
    let cases = aligned(&TITLES, found.cases.iter().map(row), WORDS);
    cases + &found.cases.iter().filter_map(checkpoint).collect::<String>() + &fours::text(found)
}

/// The checkpoint that followed a case.
fn checkpoint(case: &CaseResult) -> Option<String> {
    let (done, asked) = (case.checkpoint?, load(case));
    Some(format!(
        "checkpoint of {} under {}, {asked}, seed {}: {:.1} s for {} logged writes as {} at home; \
         with it {:.1} syncs/s\n",
        case.drive,
        case.policy,
        case.seed,
        done.seconds,
        done.logged_writes,
        done.home_writes,
        done.syncs_per_second
    ))
}

/// The load of a case in a few words: the columns between its policy and its figures.
pub(super) fn load(case: &CaseResult) -> String {
    let figures = TITLES.iter().position(|title| *title == "MB/s alone");
    row(case)[WORDS - 1..figures.unwrap_or(TITLES.len())].join(" ")
}

fn row(case: &CaseResult) -> [String; TITLES.len()] {
    let ms = |ms: f64| format!("{ms:.1} ms");
    let streams = if case.streams > 1 { format!("{} x ", case.streams) } else { String::new() };
    let priority = if case.priority { "+prio" } else { "" };
    // Without a cache every link is the same.
    let fua = if case.drive_fua { "+fua" } else { "" };
    let link = if case.drive_cache { format!(" {}{fua}", case.drive_link) } else { String::new() };
    let of_stream = |figure: String| if case.streams > 0 { figure } else { "-".to_owned() };
    let asks = match case.stream_burst_bytes {
        0 => "all".to_owned(),
        burst => format!("{}/s by {}", bytes_text(case.stream_rate_bytes), bytes_text(burst)),
    };
    [
        format!("{}{link}{priority}", case.drive),
        case.policy.clone(),
        format!("{streams}{}", case.stream),
        of_stream(asks),
        of_stream(case.stream_depth.to_string()),
        of_stream(bytes_text(case.stream_size_bytes)),
        of_stream(case.at.to_owned()),
        format!("{} ms", case.age_limit_ms),
        format!("{} {}", case.syncs_text(), case.sync_mode),
        of_stream(format!("{:.1}", case.stream_mb_s_alone)),
        of_stream(format!("{:.1}", case.stream_mb_s)),
        case.kept_text(),
        of_stream(ms(case.stream_ms.mean)),
        ms(case.sync_ms.mean),
        ms(case.sync_ms.p50),
        ms(case.sync_ms.p99),
        format!("{:.1}", case.syncs_per_second),
    ]
}
