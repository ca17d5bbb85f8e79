//! Figures with what they gave, beside what the papers have.

use serde::Serialize;

use super::cells::{Cells, Metrics};
use super::claims::{Standing, Verdict, look};
use super::file::{Figure, Paper, Point};
use super::plan::{Planned, Scale};
use crate::runs::RunKey;
use crate::stats::round3;

/// Version of `claims.json`.
const FORMAT: u32 = 1;
/// A figure that is further off is named.
const FAR: f64 = 2.0;

/// A figure that was looked at.
#[derive(Clone, Debug)]
pub struct JudgedFigure {
    /// The figure.
    pub figure: Figure,
    /// What it gave.
    pub cells: Cells,
    /// The paper's points beside ours.
    pub beside: Vec<Beside>,
    /// Its claims.
    pub verdicts: Vec<Verdict>,
    /// What could not run.
    pub left_out: Vec<String>,
    /// The paper's traces that were used.
    pub traces: Vec<String>,
}

/// One published point.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The series.
    pub series: String,
    /// The place.
    pub x: String,
    /// The metric.
    pub metric: String,
    /// What the paper has.
    pub paper: f64,
    /// Where it has it.
    pub source: String,
    /// What came out here.
    pub ours: Option<f64>,
    /// Ours over the paper's.
    pub ratio: Option<f64>,
}

/// All claims of a command, as JSON has them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub format: u32,
    /// The scale.
    pub scale: u32,
    /// Claims that hold.
    pub held: usize,
    /// Claims that do not.
    pub failed: usize,
    /// Claims that were not tested.
    pub not_testable: usize,
    /// Figures in the papers' order.
    pub figures: Vec<FigureReport>,
}

/// One figure in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct FigureReport {
    /// Name of the paper.
    pub paper: String,
    /// Name of the figure.
    pub figure: String,
    /// Where the paper has it.
    pub source: String,
    /// What stands in for the paper's input.
    pub stand_in: Option<String>,
    /// Why it is not tested at all.
    pub not_testable: Option<String>,
    /// What could not run.
    pub left_out: Vec<String>,
    /// The paper's points beside ours.
    pub points: Vec<Beside>,
    /// Its claims.
    pub claims: Vec<Verdict>,
}

/// Judges a figure by the runs that are done.
#[must_use]
pub fn judge(
    planned: &Planned,
    scale: Scale,
    done: &dyn Fn(RunKey) -> Option<Metrics>,
) -> JudgedFigure {
    let figure = planned.figure.clone();
    let cells = planned.cells(done);
    let gaps = planned.gaps(done);
    let verdicts = figure.claims.iter().map(|claim| match &figure.not_testable {
        Some(because) => Verdict::not_tested(claim, because),
        None => look(claim, &cells, &gaps, scale),
    });
    let verdicts = verdicts.collect();
    let beside = figure.points.iter().map(|point| beside(point, &cells)).collect();
    let left_out = planned.left_out.iter().map(ToString::to_string).collect();
    JudgedFigure { figure, cells, beside, verdicts, left_out, traces: planned.traces.clone() }
}

fn beside(point: &Point, cells: &Cells) -> Beside {
    let ours = cells.get(&point.series, &point.x, &point.metric);
    Beside {
        series: point.series.clone(),
        x: point.x.clone(),
        metric: point.metric.clone(),
        paper: point.value,
        source: point.source.clone(),
        ours,
        ratio: ours.filter(|_| point.value > 0.0).map(|ours| round3(ours / point.value)),
    }
}

impl Beside {
    /// Whether ours is more than twice the paper's, or less than half.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.ratio.is_some_and(|ratio| !(1.0 / FAR..=FAR).contains(&ratio))
    }
}

impl JudgedFigure {
    /// The sentence that stands below it.
    #[must_use]
    pub fn caption(&self) -> String {
        let mut caption = self.figure.about.trim().to_owned();
        match (&self.figure.stand_in, self.traces.is_empty()) {
            (Some(stand_in), true) => caption += &format!(" {}", stand_in.trim()),
            (Some(stand_in), false) => {
                let used = self.traces.join(", ");
                caption += &format!(
                    " Traces that were given: {used}. For all others: {}",
                    stand_in.trim()
                );
            }
            _ => {}
        }
        caption
    }
}

impl Report {
    /// Of these figures, each with the name of its paper.
    #[must_use]
    pub fn of(all: &[(&Paper, Vec<JudgedFigure>)], scale: Scale) -> Self {
        let count = |standing: Standing| {
            let verdicts = all.iter().flat_map(|(_, of)| of).flat_map(|figure| &figure.verdicts);
            verdicts.filter(|verdict| verdict.standing == standing).count()
        };
        let figures = all.iter().flat_map(|(paper, figures)| {
            figures.iter().map(|judged| FigureReport {
                paper: paper.name.clone(),
                figure: judged.figure.name.clone(),
                source: judged.figure.source.clone(),
                stand_in: judged.figure.stand_in.clone(),
                not_testable: judged.figure.not_testable.clone(),
                left_out: judged.left_out.clone(),
                points: judged.beside.clone(),
                claims: judged.verdicts.clone(),
            })
        });
        Self {
            format: FORMAT,
            scale: scale.number(),
            held: count(Standing::Held),
            failed: count(Standing::Failed),
            not_testable: count(Standing::NotTestable),
            figures: figures.collect(),
        }
    }

    /// As indented JSON.
    ///
    /// # Errors
    /// If a figure has no JSON form, which none should.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
