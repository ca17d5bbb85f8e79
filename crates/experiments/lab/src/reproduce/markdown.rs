//! The document of a paper's figures.

use std::fmt::Write as _;

use super::claims::Standing;
use super::file::{Paper, Plot};
use super::judged::JudgedFigure;
use super::plan::Scale;
use super::text::number;

/// A table has no more columns.
const PLACES_MAX: usize = 20;

/// All figures, with tables of what came out.
#[must_use]
pub fn markdown(paper: &Paper, figures: &[JudgedFigure], scale: Scale, command: &str) -> String {
    let mut out = format!(
        "# Figures of the paper `{}`\n\nWritten by `{command}`, at scale {} of 10; nothing here is \
         edited by hand.\n\n{}\n\n{}\n\n",
        paper.name,
        scale.number(),
        paper.citation.trim(),
        paper.about.trim()
    );
    let count = |standing: Standing| {
        let all = figures.iter().flat_map(|figure| &figure.verdicts);
        all.filter(|verdict| verdict.standing == standing).count()
    };
    let _ = writeln!(
        out,
        "Claims: {} held, {} failed, {} not testable here.\n",
        count(Standing::Held),
        count(Standing::Failed),
        count(Standing::NotTestable)
    );
    figures.iter().for_each(|judged| out += &figure(paper, judged));
    if !paper.left_out.is_empty() {
        out += "## Not reproduced\n\n";
        for left_out in &paper.left_out {
            let _ = writeln!(out, "* {}: {}", left_out.what, left_out.why.trim());
        }
    }
    out.trim_end().to_owned() + "\n"
}

/// One figure's section.
pub(super) fn figure(paper: &Paper, judged: &JudgedFigure) -> String {
    let figure = &judged.figure;
    let mut out = format!("## {}: {}\n\n", figure.source, figure.title);
    let _ = writeln!(out, "`manylogs reproduce {} --only {}`\n", paper.name, figure.name);
    if let Some(why) = &figure.not_testable {
        let _ = writeln!(out, "Not testable here: {}\n", why.trim());
    }
    let _ = writeln!(out, "{}\n", judged.caption());
    judged.left_out.iter().for_each(|why| _ = writeln!(out, "* not run: {why}"));
    figure.plots.iter().for_each(|plot| out += &table(judged, plot));
    if judged.beside.iter().any(|point| point.ours.is_some()) {
        out += "| the paper beside ours | series | at | paper | ours | ratio | source |\n";
        out += "|---|---|---|---|---|---|---|\n";
        for point in judged.beside.iter().filter(|point| point.ours.is_some()) {
            let some = |value: Option<f64>| value.map_or("-".to_owned(), number);
            let far = if point.is_far() { " (far off)" } else { "" };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {}{far} | {} |",
                point.metric,
                point.series,
                point.x,
                number(point.paper),
                some(point.ours),
                some(point.ratio),
                point.source
            );
        }
        out.push('\n');
    }
    for verdict in &judged.verdicts {
        let why = verdict.why.as_ref().map_or(String::new(), |why| format!(" {}", why.trim()));
        let _ = writeln!(
            out,
            "* **{}**: {} ({}).{why}",
            verdict.standing.text(),
            verdict.claim,
            verdict.because
        );
    }
    if !judged.verdicts.is_empty() {
        out.push('\n');
    }
    out
}

fn table(judged: &JudgedFigure, plot: &Plot) -> String {
    let series = judged.series_of(plot);
    let places = judged.places_of(&series, &plot.metric);
    // A curve is for the page.
    if series.is_empty() || plot.numeric || places.len() > PLACES_MAX {
        return String::new();
    }
    let mut out = format!("| {} | {} |\n", plot.title, places.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(places.len()));
    for name in &series {
        let cell =
            |x: &String| judged.cells.get(name, x, &plot.metric).map_or(String::new(), number);
        let cells: Vec<String> = places.iter().map(cell).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
    out + "\n"
}
