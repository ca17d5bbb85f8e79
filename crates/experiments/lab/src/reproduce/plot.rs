//! One plot as SVG: our lines, and the paper's points over them.

use std::fmt::Write as _;

use super::axes::{Axes, HEIGHT, LEFT, WIDTH};
use super::file::Plot;
use super::judged::JudgedFigure;
use super::text::number;

/// Height of a line of the legend.
const LEGEND: f64 = 16.0;
const COLOURS: [&str; 8] =
    ["#7f7f7f", "#1f77b4", "#2ca02c", "#d62728", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"];

/// The plot; empty if no series has its metric.
pub(super) fn svg(judged: &JudgedFigure, plot: &Plot) -> String {
    let series = judged.series_of(plot);
    if series.is_empty() {
        return String::new();
    }
    let axes = Axes::of(judged, plot, &series);
    let height = HEIGHT + LEGEND * (series.len() as f64 + 1.0);
    let mut out = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\
         <text x=\"{LEFT}\" y=\"16\" font-weight=\"bold\">{}</text>",
        escaped(&plot.title)
    );
    axes.draw(plot, &mut out);
    for (index, name) in series.iter().enumerate() {
        let look = Look::of(index);
        let colour = look.colour;
        let all = judged.cells.places(name, &plot.metric);
        let at: Vec<(f64, f64)> =
            all.iter().filter_map(|(x, value)| Some((axes.x(x)?, axes.y(*value)))).collect();
        line(&at, look, axes.is_scale(), &mut out);
        for point in
            judged.beside.iter().filter(|it| it.metric == plot.metric && it.series == *name)
        {
            if let Some(x) = axes.x(&point.x) {
                let y = axes.y(point.paper);
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"none\" \
                     stroke=\"{colour}\" stroke-width=\"2\"><title>the paper: {} at {}: {}</title>\
                     </rect>",
                    x - 5.0,
                    y - 5.0,
                    escaped(name),
                    escaped(&point.x),
                    number(point.paper)
                );
            }
        }
        let y = HEIGHT + LEGEND * index as f64;
        let _ = write!(
            out,
            "<circle cx=\"{}\" cy=\"{:.1}\" r=\"4\" {}/>\
             <text x=\"{}\" y=\"{y:.1}\">{}</text>",
            LEFT + 5.0,
            y - 4.0,
            look.dot(),
            LEFT + 15.0,
            escaped(name)
        );
    }
    let y = HEIGHT + LEGEND * series.len() as f64;
    let _ = write!(
        out,
        "<rect x=\"{}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"none\" stroke=\"#000\" \
         stroke-width=\"2\"/><text x=\"{}\" y=\"{y:.1}\">squares: what the paper published</text>\
         </svg>",
        LEFT + 1.0,
        y - 8.0,
        LEFT + 15.0
    );
    out
}

/// How a series looks: with more series than colours a colour comes again, hollow and dashed.
#[derive(Clone, Copy)]
struct Look {
    colour: &'static str,
    hollow: bool,
}

impl Look {
    const fn of(index: usize) -> Self {
        let (turn, at) = (index / COLOURS.len(), index % COLOURS.len());
        Self { colour: COLOURS[at], hollow: turn % 2 == 1 }
    }

    fn dot(self) -> String {
        let fill = if self.hollow { "#fff" } else { self.colour };
        format!("fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.5\"", self.colour)
    }
}

/// Dots, and a line through them if they are `joined`.
fn line(at: &[(f64, f64)], look: Look, joined: bool, out: &mut String) {
    if joined {
        let points: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{}/>",
            points.join(" "),
            look.colour,
            if look.hollow { " stroke-dasharray=\"6 3\"" } else { "" }
        );
    }
    if at.len() <= 20 || !joined {
        for (x, y) in at {
            let dot = look.dot();
            let _ = write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" {dot}/>");
        }
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
