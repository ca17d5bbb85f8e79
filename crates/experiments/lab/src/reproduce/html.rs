//! One page with all figures, which needs no other file.

use std::fmt::Write as _;

use super::claims::{Standing, Verdict};
use super::file::Paper;
use super::judged::JudgedFigure;
use super::plan::Scale;
use super::plot::{escaped, svg};
use super::text::number;

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:1200px}svg{margin:0 1em 1em 0}\
    table{border-collapse:collapse;margin:0 0 1em}td,th{border:1px solid #ccc;padding:2px 8px;\
    text-align:left}.held{color:#176317}.failed{color:#a11}.not-testable{color:#666}";

/// The page.
#[must_use]
pub fn page(all: &[(&Paper, Vec<JudgedFigure>)], scale: Scale, command: &str) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Figures of the papers\
         </title><style>{STYLE}</style>"
    );
    for (paper, figures) in all {
        let _ = write!(
            out,
            "<h1>Figures of the paper {}</h1><p>{}</p><p>{}</p><p>Scale {} of 10. To repeat: \
             <code>{}</code></p><p>Lines and dots are ours, squares are what the paper \
             published.</p>",
            escaped(&paper.name),
            escaped(&paper.citation),
            escaped(&paper.about),
            scale.number(),
            escaped(command)
        );
        figures.iter().for_each(|judged| out += &figure(judged));
        if !paper.left_out.is_empty() {
            out += "<h2>Not reproduced</h2><ul>";
            for it in &paper.left_out {
                let _ = write!(out, "<li>{}: {}</li>", escaped(&it.what), escaped(&it.why));
            }
            out += "</ul>";
        }
    }
    out + "</html>\n"
}

fn figure(judged: &JudgedFigure) -> String {
    let figure = &judged.figure;
    let mut out = format!(
        "<h2 id=\"{}\">{}: {}</h2>",
        figure.name,
        escaped(&figure.source),
        escaped(&figure.title)
    );
    if let Some(why) = &figure.not_testable {
        let _ = write!(out, "<p>Not testable here: {}</p>", escaped(why));
    }
    let _ = write!(out, "<p>{}</p>", escaped(&judged.caption()));
    for why in &judged.left_out {
        let _ = write!(out, "<p>Not run: {}</p>", escaped(why));
    }
    figure.plots.iter().for_each(|plot| out += &svg(judged, plot));
    out += &beside(judged);
    if !judged.verdicts.is_empty() {
        out += "<ul>";
        judged.verdicts.iter().for_each(|verdict| out += &item(verdict));
        out += "</ul>";
    }
    out
}

fn beside(judged: &JudgedFigure) -> String {
    if judged.beside.iter().all(|point| point.ours.is_none()) {
        return String::new();
    }
    let mut out = String::from(
        "<table><tr><th>metric<th>series<th>at<th>paper<th>ours<th>ratio<th>source</tr>",
    );
    for point in judged.beside.iter().filter(|point| point.ours.is_some()) {
        let some = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let class = if point.is_far() { " class=\"failed\"" } else { "" };
        let _ = write!(
            out,
            "<tr{class}><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(&point.metric),
            escaped(&point.series),
            escaped(&point.x),
            number(point.paper),
            some(point.ours),
            some(point.ratio),
            escaped(&point.source)
        );
    }
    out + "</table>"
}

fn item(verdict: &Verdict) -> String {
    let class = match verdict.standing {
        Standing::Held => "held",
        Standing::Failed => "failed",
        Standing::NotTestable => "not-testable",
    };
    let why = verdict.why.as_ref().map_or(String::new(), |why| format!(" {}", escaped(why)));
    format!(
        "<li><b class=\"{class}\">{}</b>: {} ({}).{why}</li>",
        verdict.standing.text(),
        escaped(&verdict.claim),
        escaped(&verdict.because)
    )
}
