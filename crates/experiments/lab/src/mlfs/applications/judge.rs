//! Each mode beside `manylogs+odur`, both with as many durable operations a second.
//!
//! Modes differ in how many operations they serve, and who serves more takes more of the drive. So
//! the faster one of two is measured again, and admits no more than the slower one served. If
//! `manylogs+odur` does not reach that rate when it is bounded, it is judged by what it had without
//! a bound, where it served more.

use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::super::disk::MlfsError;
use super::case::{ApplicationCase, MANYLOGS_ODUR};
use super::results::ApplicationResult;
use super::run::{ApplicationDisks, Measured, measure_one};
use super::table::program;
use crate::grid::Grid;
use crate::interfere::SyncMillis;
use crate::stats::round3;
use crate::table::aligned;

/// Rates that differ by less are the same.
const SAME_RATE: f64 = 0.01;
/// By so much no mode may be better than `manylogs+odur`.
const MARGIN: f64 = 0.02;

/// What one of the two had at their common rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AtRate {
    /// Throughput of the reader.
    pub stream_mb_s: f64,
    /// Share of the reader's throughput alone in the mode `ordered`.
    pub kept: f64,
    /// Mean latency of operations that make data durable, or of requests of a program that syncs
    /// nothing.
    pub latency_ms: f64,
    /// Such operations a second of all instances.
    pub carried_per_s: f64,
    /// How many of them were allowed; `None` for the slower of the two.
    pub carry_per_s: Option<f64>,
}

/// A mode beside `manylogs+odur`.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The drive profile's name.
    pub drive: String,
    /// The program.
    pub app: &'static str,
    /// Time from one flush of a database to the next.
    pub flush_every_ms: Option<f64>,
    /// Number of instances of the program.
    pub instances: u32,
    /// Requests that the reader has under way.
    pub stream_depth: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// The other mode.
    pub mode: &'static str,
    /// The other mode's figures.
    pub other: AtRate,
    /// Those of `manylogs+odur`.
    pub odur: AtRate,
    /// The other mode's throughput of the reader, divided by that of `manylogs+odur`.
    pub bandwidth_times: f64,
    /// Latency in `manylogs+odur`, divided by that in the other mode.
    pub latency_times: f64,
    /// Whether both carry as much.
    pub same_rate: bool,
    /// Whether `manylogs+odur` carries as much, or more, and the other mode is better by 2 % in
    /// neither.
    pub holds: bool,
}

/// A case that was measured as it is.
#[derive(Clone, Copy)]
struct Free<'a> {
    case: &'a ApplicationCase,
    found: &'a ApplicationResult,
}

/// Two modes of one cell.
struct Pair<'a> {
    other: Free<'a>,
    odur: Free<'a>,
}

impl Free<'_> {
    /// The case, allowed to serve no more than `slower` did; `None` if it serves as many.
    fn bounded_by(&self, slower: Self) -> Option<ApplicationCase> {
        let (mine, most) = (self.found.carried_per_s, slower.found.carried_per_s);
        let is_faster = mine > most * (1.0 + SAME_RATE) && most > 0.0;
        is_faster.then(|| ApplicationCase { carry_per_s: Some(most), ..self.case.clone() })
    }

    fn alone_mb_s(&self) -> f64 {
        self.found.stream_mb_s / self.found.kept.max(1e-9)
    }

    fn at_rate(&self) -> AtRate {
        let ApplicationResult { stream_mb_s, kept, flush_ms, request_ms, .. } = *self.found;
        AtRate {
            stream_mb_s,
            kept,
            latency_ms: latency(flush_ms, request_ms),
            carried_per_s: self.found.carried_per_s,
            carry_per_s: self.found.carry_per_s,
        }
    }
}

fn latency(flush: SyncMillis, request: SyncMillis) -> f64 {
    if flush.max > 0.0 { flush.mean } else { request.mean }
}

/// Judges all cases of other modes than `manylogs+odur` beside that of the same cell, which `cases`
/// has; `results` has one result for each case. Measures what is missing on up to `threads`
/// threads, and leaves out what has not begun when `stop` is set.
///
/// # Errors
/// The first failure.
pub fn judge_all(
    cases: &[ApplicationCase],
    results: &[ApplicationResult],
    disks: &ApplicationDisks,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<Judgement>, MlfsError> {
    let all: Vec<Free<'_>> =
        cases.iter().zip(results).map(|(case, found)| Free { case, found }).collect();
    let pairs = pairs(&all);
    let bounded = pairs.iter().flat_map(Pair::bounded).flatten();
    let found = Grid::of(bounded, ApplicationCase::key)
        .run(threads, stop, |case| measure_one(case, disks))?;
    Ok(pairs.iter().filter_map(|pair| pair.judged(|case| found.of(case).copied())).collect())
}

fn pairs<'a>(all: &[Free<'a>]) -> Vec<Pair<'a>> {
    let odur_of = |other: &Free<'a>| {
        let cell = other.case.cell_key();
        all.iter().find(|free| free.case.odur && free.case.cell_key() == cell).copied()
    };
    let others = all.iter().filter(|free| !free.case.odur);
    others.filter_map(|other| Some(Pair { other: *other, odur: odur_of(other)? })).collect()
}

impl Pair<'_> {
    /// The other mode and `manylogs+odur`, as they are to be measured again.
    fn bounded(&self) -> [Option<ApplicationCase>; 2] {
        [self.other.bounded_by(self.odur), self.odur.bounded_by(self.other)]
    }

    fn judged(&self, of: impl Fn(&ApplicationCase) -> Option<Measured>) -> Option<Judgement> {
        let [other, odur] = self.bounded();
        let at_rate = |free: Free<'_>, bounded: Option<ApplicationCase>| match bounded {
            None => Some(free.at_rate()),
            Some(case) => Some(AtRate::bounded(&of(&case)?, &case, free.alone_mb_s())),
        };
        let bounded =
            Judgement::of(self.other.found, at_rate(self.other, other)?, at_rate(self.odur, odur)?);
        let free = Judgement::of(self.other.found, self.other.at_rate(), self.odur.at_rate());
        Some(if bounded.same_rate || !free.serves_more() { bounded } else { free })
    }
}

impl AtRate {
    fn bounded(found: &Measured, case: &ApplicationCase, alone_mb_s: f64) -> Self {
        Self {
            stream_mb_s: found.stream_mb_s,
            kept: round3(found.stream_mb_s / alone_mb_s.max(1e-9)),
            latency_ms: latency(found.flush_ms, found.request_ms),
            carried_per_s: found.carried_per_s,
            carry_per_s: case.carry_per_s,
        }
    }
}

impl Judgement {
    fn of(found: &ApplicationResult, other: AtRate, odur: AtRate) -> Self {
        let bandwidth_times = round3(other.stream_mb_s / odur.stream_mb_s.max(1e-9));
        let latency_times = round3(odur.latency_ms / other.latency_ms.max(1e-9));
        let apart = (other.carried_per_s - odur.carried_per_s).abs();
        let same_rate = apart <= MARGIN * other.carried_per_s.max(odur.carried_per_s);
        let judged = Self {
            drive: found.drive.clone(),
            app: found.app,
            flush_every_ms: found.flush_every_ms,
            instances: found.instances,
            stream_depth: found.stream_depth,
            seed: found.seed,
            mode: found.mode,
            other,
            odur,
            bandwidth_times,
            latency_times,
            same_rate,
            holds: false,
        };
        let holds = (same_rate || judged.serves_more()) && judged.is_no_worse();
        Self { holds, ..judged }
    }

    /// Whether `manylogs+odur` serves more. If the other mode is not better even so, then it is not
    /// at the smaller rate either.
    fn serves_more(&self) -> bool {
        self.odur.carried_per_s >= self.other.carried_per_s
    }

    /// Whether the other mode is better by 2 % in neither.
    fn is_no_worse(&self) -> bool {
        self.bandwidth_times.max(self.latency_times) <= 1.0 + MARGIN
    }

    fn verdict(&self) -> String {
        if !self.same_rate && !self.serves_more() {
            return "not at one rate".to_owned();
        }
        let better = [(self.bandwidth_times, "bandwidth"), (self.latency_times, "latency")];
        let lost = better.iter().filter(|(times, _)| *times > 1.0 + MARGIN);
        let lost: Vec<String> =
            lost.map(|(times, what)| format!("{times:.2} times in {what}")).collect();
        if lost.is_empty() { "held".to_owned() } else { lost.join(", ") }
    }
}

const TITLES: [&str; 12] = [
    "drive",
    "program",
    "mode",
    "instances",
    "reader depth",
    "at a rate of",
    "kept",
    "latency",
    MANYLOGS_ODUR,
    "kept",
    "latency",
    "no better by 2 %",
];
/// Number of leading columns that hold words.
const WORDS: usize = 3;

/// Formats judgements as a table.
#[must_use]
pub fn judged_text(judged: &[Judgement]) -> String {
    aligned(&TITLES, judged.iter().map(row), WORDS)
}

fn row(judged: &Judgement) -> Vec<String> {
    let of = |figures: &AtRate| {
        [
            format!("{:.1}/s", figures.carried_per_s),
            format!("{:.1} %", figures.kept * 100.0),
            format!("{:.1} ms", figures.latency_ms),
        ]
    };
    let cell = [
        judged.drive.clone(),
        program(judged.app, judged.flush_every_ms),
        judged.mode.to_owned(),
        judged.instances.to_string(),
        judged.stream_depth.to_string(),
    ];
    let both = of(&judged.other).into_iter().chain(of(&judged.odur));
    cell.into_iter().chain(both).chain([judged.verdict()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stream_mb_s: f64, latency_ms: f64, carried_per_s: f64) -> AtRate {
        AtRate { stream_mb_s, kept: 0.5, latency_ms, carried_per_s, carry_per_s: None }
    }

    fn judged(other: AtRate) -> (bool, String) {
        let no = SyncMillis::default();
        let found = ApplicationResult {
            drive: String::new(),
            drive_cache: false,
            app: "mongodb",
            flush_every_ms: None,
            mode: "ordered",
            instances: 1,
            stream_depth: 1,
            seed: 1,
            seconds: 60.0,
            stream_mb_s: 0.0,
            kept: 0.0,
            flush_ms: no,
            request_ms: no,
            operations_per_s: 0.0,
            carried_per_s: 0.0,
            carry_per_s: None,
            records: 0,
            drive_flushes: 0,
            log_bytes: 0,
            o_dur_home_bytes: None,
        };
        let judged = Judgement::of(&found, other, at(100.0, 10.0, 20.0));
        (judged.holds, judged.verdict())
    }

    #[test]
    fn a_mode_that_is_better_by_more_than_two_percent_is_named() {
        let of = |holds: bool, words: &str| (holds, words.to_owned());
        assert_eq!(judged(at(102.0, 9.81, 20.0)), of(true, "held"));
        assert_eq!(judged(at(103.0, 20.0, 20.0)), of(false, "1.03 times in bandwidth"));
        assert_eq!(judged(at(50.0, 9.0, 20.0)), of(false, "1.11 times in latency"));
        let both = "1.10 times in bandwidth, 2.00 times in latency";
        assert_eq!(judged(at(110.0, 5.0, 20.2)), of(false, both));
        assert_eq!(judged(at(50.0, 20.0, 22.0)), of(false, "not at one rate"));
        assert_eq!(judged(at(50.0, 20.0, 15.0)), of(true, "held"), "it serves more");
        assert_eq!(judged(at(103.0, 20.0, 15.0)), of(false, "1.03 times in bandwidth"));
    }
}
