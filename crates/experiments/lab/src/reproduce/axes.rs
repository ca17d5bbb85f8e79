//! The axes of a plot: places from left to right, a metric upwards, and round numbers at ticks.

use std::fmt::Write as _;

use super::file::Plot;
use super::judged::JudgedFigure;
use super::plot::escaped;

/// Size of a plot and the borders around its axes, in pixels.
pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 320.0;
pub(super) const LEFT: f64 = 60.0;
const RIGHT: f64 = 14.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 44.0;
/// A linear axis has about so many ticks.
const TICKS: f64 = 5.0;
/// A logarithmic axis over more decades has ticks at powers of ten alone.
const DECADES_FINE: f64 = 2.5;

/// Where values of a plot lie in it.
pub(super) struct Axes {
    /// Places, where they are not numbers.
    places: Vec<String>,
    numeric: Option<(f64, f64)>,
    /// From the lowest to the highest.
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axes {
    /// Those of a plot of these series.
    pub(super) fn of(judged: &JudgedFigure, plot: &Plot, series: &[String]) -> Self {
        let places = judged.places_of(series, &plot.metric);
        let mut values: Vec<f64> = series
            .iter()
            .flat_map(|name| judged.cells.places(name, &plot.metric))
            .map(|(_, value)| value)
            .collect();
        let shown = |metric: &str, name: &String| metric == plot.metric && series.contains(name);
        let points = judged.beside.iter().filter(|point| shown(&point.metric, &point.series));
        values.extend(points.map(|point| point.paper));
        let most = values.iter().copied().fold(0.0, f64::max).max(1e-9);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min).min(most);
        let ticks = if plot.logarithmic { logarithmic(least, most) } else { linear(most) };
        let numbers: Vec<f64> = places.iter().filter_map(|place| place.parse().ok()).collect();
        let numeric =
            (plot.numeric && numbers.len() == places.len() && numbers.len() > 1).then(|| {
                let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                (low, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            });
        Self { places, numeric, ticks, logarithmic: plot.logarithmic }
    }

    /// Whether a place is one of many along a scale, so that a line between two means something.
    pub(super) fn is_scale(&self) -> bool {
        self.places.iter().all(|place| place.parse::<f64>().is_ok())
    }

    /// Pixels from the left; `None` of a place that the plot does not have.
    pub(super) fn x(&self, place: &str) -> Option<f64> {
        let width = WIDTH - LEFT - RIGHT;
        if let Some((low, high)) = self.numeric {
            let value: f64 = place.parse().ok()?;
            return Some(LEFT + width * (value - low) / (high - low).max(1e-9));
        }
        let at = self.places.iter().position(|other| other == place)?;
        Some(LEFT + width * (at as f64 + 0.5) / self.places.len() as f64)
    }

    /// Pixels from above.
    pub(super) fn y(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.logarithmic { value.max(1e-9).log10() } else { value };
        let [low, high] = [self.ticks.first(), self.ticks.last()]
            .map(|tick| scaled(tick.copied().unwrap_or_default()));
        let share = (scaled(value) - low) / (high - low).max(1e-9);
        HEIGHT - BELOW - (HEIGHT - ABOVE - BELOW) * share.clamp(0.0, 1.0)
    }

    /// Draws them.
    pub(super) fn draw(&self, plot: &Plot, out: &mut String) {
        let (right, below) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for tick in &self.ticks {
            let y = self.y(*tick);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                round(*tick)
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

/// The least of 1, 2, 2.5, 5 times a power of ten that is not below `value`.
fn round_up(value: f64, steps: &[f64]) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let fits = |step: &&f64| **step * power >= value * (1.0 - 1e-9);
    steps.iter().find(fits).map_or(10.0 * power, |step| step * power)
}

/// From zero to at least `most`.
fn linear(most: f64) -> Vec<f64> {
    let step = round_up(most / TICKS, &[1.0, 2.0, 2.5, 5.0]);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < most * (1.0 - 1e-9)) {
        ticks.push(ticks.len() as f64 * step);
    }
    ticks
}

/// From at most `least` to at least `most`.
fn logarithmic(least: f64, most: f64) -> Vec<f64> {
    let steps: &[f64] =
        if (most / least).log10() > DECADES_FINE { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let mut power = 10f64.powf(least.log10().floor());
    let mut ticks: Vec<f64> = Vec::new();
    while ticks.last().is_none_or(|last| *last < most * (1.0 - 1e-9)) || ticks.len() < 2 {
        for step in steps {
            let (tick, last) = (step * power, ticks.last().copied().unwrap_or(0.0));
            if tick <= least * (1.0 + 1e-9) {
                ticks = vec![tick];
            } else if last < most * (1.0 - 1e-9) || ticks.len() < 2 {
                ticks.push(tick);
            }
        }
        power *= 10.0;
    }
    ticks
}

/// A number at a tick: no digit more than it has.
fn round(tick: f64) -> String {
    let digits = (0..9).find(|digits| {
        let unit = 10f64.powi(*digits);
        ((tick * unit).round() / unit - tick).abs() <= tick.abs() * 1e-6
    });
    format!("{tick:.*}", manylogs_block::to_usize(digits.unwrap_or(9).unsigned_abs().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_all_values() {
        let said = |ticks: Vec<f64>| ticks.into_iter().map(round).collect::<Vec<_>>().join(" ");
        assert_eq!(said(linear(99.26)), "0 20 40 60 80 100");
        assert_eq!(said(linear(47.59)), "0 10 20 30 40 50");
        assert_eq!(said(linear(100.0)), "0 20 40 60 80 100");
        assert_eq!(said(linear(1.13)), "0 0.25 0.5 0.75 1 1.25");
        assert_eq!(said(linear(0.0042)), "0 0.001 0.002 0.003 0.004 0.005");
        assert_eq!(said(logarithmic(3.98, 189.3)), "2 5 10 20 50 100 200");
        assert_eq!(said(logarithmic(0.7, 11_264.0)), "0.1 1 10 100 1000 10000 100000");
        assert_eq!(said(logarithmic(10.0, 10.0)), "10 20");
    }
}
