//! The paper's figure at block level: share of the stream that is kept against the latency of
//! syncs, one curve for each policy.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::results::{CaseResult, Interference};
use super::table;

/// Size of one picture and the borders around its axes, in pixels.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 14.0;
const ABOVE: f64 = 34.0;
const BELOW: f64 = 44.0;
const COLOURS: [&str; 7] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"];
/// Range of the logarithmic axis of latencies, in milliseconds.
const MS: (f64, f64) = (1.0, 10_000.0);

/// A self-contained page: one picture for each drive, stream and place, and the table of all cases.
#[must_use]
pub fn html(found: &Interference) -> String {
    let mut pictures: BTreeMap<String, Vec<&CaseResult>> = BTreeMap::new();
    // Without a stream there is nothing to keep.
    for case in found.cases.iter().filter(|case| case.kept.is_some()) {
        let title = format!("{}, {} at {}", case.drive, case.stream, case.at);
        pictures.entry(title).or_default().push(case);
    }
    let mut out = String::from(
        "<!doctype html><meta charset=\"utf-8\"><title>Interference</title>\
         <style>body{font:14px sans-serif;margin:2em}svg{margin:0 1em 1em 0}</style>\
         <h1>Small durable writes beside streams</h1>\
         <p>Across: what a sync takes. Up: the share that the stream keeps of what the plain \
         drive gives it alone. Upper left is better. Each point is a case; a policy's points are \
         joined in the order of the table.</p>",
    );
    for (title, cases) in &pictures {
        out.push_str(&picture(title, cases));
    }
    let _ = write!(out, "<pre>{}</pre>", escaped(&table::text(found)));
    let _ = write!(out, "<p>To repeat: <code>{}</code></p>", escaped(&found.command));
    out
}

fn picture(title: &str, cases: &[&CaseResult]) -> String {
    let mut curves: BTreeMap<&str, Vec<&CaseResult>> = BTreeMap::new();
    for case in cases {
        curves.entry(&case.policy).or_default().push(case);
    }
    let mut out = format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\
         <text x=\"{LEFT}\" y=\"14\" font-weight=\"bold\">{}</text>",
        escaped(title)
    );
    axes(&mut out);
    for (index, (policy, cases)) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<(f64, f64)> = cases.iter().map(|case| place(case)).collect();
        let line: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        let _ = write!(out, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\"/>");
        for ((x, y), case) in points.iter().zip(cases) {
            let _ = write!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{}</title>\
                 </circle>",
                escaped(&words(case))
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"28\" fill=\"{colour}\">{}</text>",
            LEFT + 110.0 * index as f64,
            escaped(policy)
        );
    }
    out + "</svg>"
}

fn axes(out: &mut String) {
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = height(share);
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{} %</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            share * 100.0
        );
    }
    for ms in [1.0, 10.0, 100.0, 1_000.0, 10_000.0] {
        let x = across(ms);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{ABOVE}\" y2=\"{}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{ms} ms</text>",
            HEIGHT - BELOW,
            HEIGHT - BELOW + 16.0
        );
    }
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">mean latency of a sync</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0
    );
}

fn place(case: &CaseResult) -> (f64, f64) {
    (across(case.sync_ms.mean), height(case.kept.unwrap_or_default()))
}

fn across(ms: f64) -> f64 {
    let share = (ms.clamp(MS.0, MS.1) / MS.0).log10() / (MS.1 / MS.0).log10();
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn height(share: f64) -> f64 {
    HEIGHT - BELOW - share.clamp(0.0, 1.05) * (HEIGHT - ABOVE - BELOW)
}

fn words(case: &CaseResult) -> String {
    format!(
        "{}: depth {}, {} bytes, {} of {} syncs/s ({}), age limit {} ms: {:.1} MB/s, {:.1} ms",
        case.policy,
        case.stream_depth,
        case.stream_size_bytes,
        case.syncs_per_second,
        case.syncs_text(),
        case.sync_mode,
        case.age_limit_ms,
        case.stream_mb_s,
        case.sync_ms.mean
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
