//! Figures in the terminal.

use std::fmt::Write as _;

use super::claims::Standing;
use super::judged::JudgedFigure;
use super::library::Chosen;
use crate::table::aligned;

const BESIDE: [&str; 7] = ["metric", "series", "at", "paper", "ours", "ratio", "source"];
const FIGURES: [&str; 4] = ["figure", "source", "cost", "what"];
/// Number of leading columns that hold words.
const WORDS: usize = 3;

/// A number as tables have it.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        some if some >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The paper's points beside ours, then the claims.
#[must_use]
pub fn figure_text(judged: &JudgedFigure) -> String {
    let figure = &judged.figure;
    let mut out = format!("{}: {} ({})\n", figure.name, figure.title, figure.source);
    if let Some(why) = &figure.not_testable {
        let _ = writeln!(out, "not testable here: {}\n", why.trim());
        return out;
    }
    if let Some(stand_in) = &figure.stand_in {
        let _ = writeln!(out, "{}", stand_in.trim());
    }
    judged.left_out.iter().for_each(|why| _ = writeln!(out, "not run: {why}"));
    let rows = judged.beside.iter().map(|point| {
        let some = |value: Option<f64>| value.map_or("-".to_owned(), number);
        [
            point.metric.clone(),
            point.series.clone(),
            point.x.clone(),
            number(point.paper),
            some(point.ours),
            some(point.ratio),
            point.source.clone(),
        ]
    });
    if !judged.beside.is_empty() {
        out.push_str(&aligned(&BESIDE, rows, WORDS));
    }
    for verdict in &judged.verdicts {
        let _ = writeln!(
            out,
            "{:<17} {} ({})",
            verdict.standing.text().to_uppercase(),
            verdict.claim,
            verdict.because
        );
        if let (Standing::Failed, Some(why)) = (verdict.standing, &verdict.why) {
            let _ = writeln!(out, "{:<17} why: {}", "", why.trim());
        }
    }
    out.push('\n');
    out
}

/// What there is, what it takes, and what is not reproduced.
#[must_use]
pub fn listing(all: &[Chosen]) -> String {
    let mut out = String::new();
    for Chosen { paper, figures } in all {
        let _ = writeln!(out, "{}: {}\n{}\n", paper.name, paper.citation, paper.about.trim());
        let rows = figures.iter().map(|figure| {
            let cost = match figure.not_testable {
                Some(_) => "-".to_owned(),
                None => format!("{} s, {} MB", figure.cost.seconds, figure.cost.memory_mb),
            };
            [figure.name.clone(), figure.source.clone(), cost, figure.title.clone()]
        });
        out.push_str(&aligned(&FIGURES, rows, FIGURES.len()));
        out.push('\n');
        for figure in figures {
            if let Some(why) = &figure.not_testable {
                let _ = writeln!(out, "{} is not testable here: {}", figure.name, why.trim());
            }
        }
        for left_out in &paper.left_out {
            let _ = writeln!(out, "not reproduced: {}: {}", left_out.what, left_out.why.trim());
        }
        out.push('\n');
    }
    out
}
