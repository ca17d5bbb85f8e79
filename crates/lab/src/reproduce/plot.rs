//! One plot as SVG: our lines, and the paper's points over them.

use std::fmt::Write as _;

use super::file::Plot;
use super::judged::JudgedFigure;
use super::text::number;

/// Size of a plot and the borders around its axes, in pixels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 14.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 44.0;
/// Height of a line of the legend.
const LEGEND: f64 = 16.0;
const COLOURS: [&str; 8] =
    ["#7f7f7f", "#1f77b4", "#2ca02c", "#d62728", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"];
const TICKS: u32 = 5;

struct Axes {
    /// Places, where they are not numbers.
    places: Vec<String>,
    numeric: Option<(f64, f64)>,
    /// Logarithms, if `logarithmic`.
    y: (f64, f64),
    logarithmic: bool,
}

impl Axes {
    fn of(judged: &JudgedFigure, plot: &Plot, series: &[String]) -> Self {
        let places = judged.places_of(series, &plot.metric);
        let mut values: Vec<f64> = series
            .iter()
            .flat_map(|name| judged.cells.places(name, &plot.metric))
            .map(|(_, value)| value)
            .collect();
        let points = judged.beside.iter().filter(|point| point.metric == plot.metric);
        values.extend(points.map(|point| point.paper));
        let most = values.iter().copied().fold(0.0, f64::max).max(1e-9);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min).min(most);
        let y = match plot.logarithmic {
            true => ((least * 0.8).log10(), (most * 1.25).log10()),
            false => (0.0, most * 1.05),
        };
        let numbers: Vec<f64> = places.iter().filter_map(|place| place.parse().ok()).collect();
        let numeric =
            (plot.numeric && numbers.len() == places.len() && numbers.len() > 1).then(|| {
                let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                (low, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            });
        Self { places, numeric, y, logarithmic: plot.logarithmic }
    }

    fn x(&self, place: &str) -> Option<f64> {
        let width = WIDTH - LEFT - RIGHT;
        if let Some((low, high)) = self.numeric {
            let value: f64 = place.parse().ok()?;
            return Some(LEFT + width * (value - low) / (high - low).max(1e-9));
        }
        let at = self.places.iter().position(|other| other == place)?;
        Some(LEFT + width * (at as f64 + 0.5) / self.places.len() as f64)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-9).log10() } else { value };
        let share = (value - self.y.0) / (self.y.1 - self.y.0).max(1e-9);
        HEIGHT - BELOW - (HEIGHT - ABOVE - BELOW) * share.clamp(0.0, 1.0)
    }

    fn draw(&self, plot: &Plot, out: &mut String) {
        let (right, below) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for tick in 0..=TICKS {
            let share = f64::from(tick) / f64::from(TICKS);
            let value = self.y.0 + (self.y.1 - self.y.0) * share;
            let value = if self.logarithmic { 10f64.powf(value) } else { value };
            let y = self.y(value);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                number(value)
            );
        }
        let every = self.places.len().div_ceil(10).max(1);
        for place in self.places.iter().step_by(every) {
            if let Some(x) = self.x(place) {
                let _ = write!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    below + 15.0,
                    escaped(place)
                );
            }
        }
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{below}\" y2=\"{below}\" stroke=\"#000\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            below + 33.0,
            escaped(&plot.x_title)
        );
    }
}

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
        let colour = COLOURS[index % COLOURS.len()];
        let all = judged.cells.places(name, &plot.metric);
        let at: Vec<(f64, f64)> =
            all.iter().filter_map(|(x, value)| Some((axes.x(x)?, axes.y(*value)))).collect();
        line(&at, colour, &mut out);
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
            "<circle cx=\"{}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y:.1}\">{}</text>",
            LEFT + 5.0,
            y - 4.0,
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

fn line(at: &[(f64, f64)], colour: &str, out: &mut String) {
    let points: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
        points.join(" ")
    );
    if at.len() <= 20 {
        for (x, y) in at {
            let _ =
                write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
