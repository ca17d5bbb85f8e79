//! The gates: what a chain should reach, and what it reaches.

use std::sync::atomic::AtomicBool;

use manylogs_block::{Nanos, Sectors};
use manylogs_gecko::{Cleaning, export_limit};
use serde::Serialize;

use super::case::{ChainCase, Durability, Fill, Layout, Pattern};
use super::measure::{ChainFailure, ChainMeasured, measure};
use crate::parallel::in_parallel;
use crate::replay::DriveSettings;

/// Gates that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateGroup {
    /// Random writes on an empty chain.
    Fresh,
    /// The same beside readers of what other drives hold.
    Readers,
    /// Random writes beside reads of what was written last.
    Tail,
    /// After the raw capacity was written three times.
    Steady,
    /// Random writes while a full drive leaves the chain.
    Leaving,
    /// Random writes while a full drive is cleaned of which half is valid, against a log over
    /// RAID-0.
    Cleaning,
}

impl GateGroup {
    /// Every group, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Fresh, Self::Readers, Self::Tail, Self::Steady, Self::Leaving, Self::Cleaning];

    /// Name in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Readers => "readers",
            Self::Tail => "tail",
            Self::Steady => "steady",
            Self::Leaving => "leaving",
            Self::Cleaning => "cleaning",
        }
    }
}

/// What should be reached in a case.
#[derive(Clone, Debug)]
pub struct Gate {
    /// In words.
    pub name: String,
    /// Least share of the drive's sequential bandwidth, or with readers of that without them.
    pub least: f64,
    /// The case.
    pub case: ChainCase,
    /// Most bytes in records for a client's byte.
    pub appended_most: Option<f64>,
    /// Which gate the share is of, by its number; the drive's own bandwidth when not given.
    pub beside: Option<usize>,
}

/// What was reached.
#[derive(Clone, Debug, Serialize)]
pub struct GateResult {
    /// The drive profile's name.
    pub drive: String,
    /// Whether the drive's cache was on.
    pub write_cache: bool,
    /// The gate in words.
    pub gate: String,
    /// Decides everything random.
    pub seed: u64,
    /// Least share.
    pub least: f64,
    /// The share that was reached.
    pub reached: f64,
    /// Most bytes in records for a client's byte.
    pub appended_most: Option<f64>,
    /// 99th percentile of the latency of a write, as a multiple of that without readers.
    pub p99_times: Option<f64>,
    /// Whether that is enough.
    pub holds: bool,
    /// All figures.
    pub figures: ChainMeasured,
}

/// p99 of a write beside readers may be this many times that without.
const P99_TIMES: f64 = 1.1;

/// The gates of a group, on drives of this profile. Where it is of use, the tail cache takes
/// `cache` of memory.
#[must_use]
pub fn gates(
    group: GateGroup,
    drive: &DriveSettings,
    segment: Sectors,
    span: Nanos,
    cache: Sectors,
    seed: u64,
) -> Vec<Gate> {
    let fresh = ChainCase {
        drive: drive.clone(),
        layout: Layout::Chain,
        links: 3,
        mirrored: false,
        segment,
        export: None,
        cleaning: Cleaning::MoveToTail,
        durability: Durability::Each,
        pattern: Pattern::Uniform,
        in_flight: 64,
        streams: 0,
        readers: 0,
        tail_reads_s: 0,
        leaves: false,
        cache: Sectors(0),
        summaries: false,
        fill: Fill::Nothing,
        span,
        seed,
    };
    let gate = |name: &str, least, case| {
        let (name, appended_most, beside) = (name.to_owned(), None, None);
        Gate { name, least, case, appended_most, beside }
    };
    match group {
        GateGroup::Fresh => {
            let flushed = ChainCase { durability: Durability::FlushEachSecond, ..fresh.clone() };
            let deep = ChainCase { in_flight: 256, ..fresh.clone() };
            vec![
                gate("random writes, a flush each second", 0.95, flushed),
                gate("durable random writes, 256 in flight", 0.90, deep),
                gate("durable random writes, 64 in flight", 0.70, fresh),
            ]
        }
        GateGroup::Readers => {
            let case = ChainCase { fill: Fill::FirstDrive, ..fresh };
            let mut all = vec![gate("durable random writes, the first drive full", 0.70, case)];
            for readers in [1, 4, 16, 32] {
                let case = ChainCase { readers, ..all[0].case.clone() };
                let name = format!("the same beside {readers} readers");
                let (least, appended_most, beside) = (0.98, None, Some(0));
                all.push(Gate { name, least, case, appended_most, beside });
            }
            all
        }
        GateGroup::Tail => tail_gates(&fresh, cache),
        GateGroup::Steady => steady_gates(&fresh),
        GateGroup::Leaving => leaving_gates(&fresh),
        GateGroup::Cleaning => cleaning_gates(&fresh),
    }
}

/// Reads a second that miss the tail cache, and such as it answers.
const TAIL_MISSES_S: u32 = 20;
const TAIL_HITS_S: u32 = 1000;

fn tail_gates(fresh: &ChainCase, cache: Sectors) -> Vec<Gate> {
    let alone = ChainCase { durability: Durability::FlushEachSecond, ..fresh.clone() };
    let missing = ChainCase { tail_reads_s: TAIL_MISSES_S, ..alone.clone() };
    let cached = ChainCase { tail_reads_s: TAIL_HITS_S, cache, ..alone.clone() };
    let gate =
        |name: String, least, case, beside| Gate { name, least, case, appended_most: None, beside };
    let misses = format!("{TAIL_MISSES_S} reads a second that miss the cache");
    let hits = format!("{TAIL_HITS_S} reads a second beside a cache");
    vec![
        gate("random writes, a flush each second".to_owned(), 0.95, alone, None),
        gate(misses, 0.70, missing, None),
        gate(hits, 0.98, cached, Some(0)),
    ]
}

/// What is exported, by links and the cleaning; the least shares and the most bytes appended for a
/// client's byte, with uniform writes and with 90/10.
type Steady = (usize, f64, Cleaning, [(f64, Option<f64>); 2]);
const STEADY: [Steady; 5] = [
    (3, 0.48, Cleaning::MoveToTail, [(0.45, None), (0.33, None)]),
    (3, 0.36, Cleaning::Auto, [(0.90, None), (0.90, None)]),
    (3, 0.48, Cleaning::Auto, [(0.85, Some(1.4)), (0.85, Some(1.4))]),
    (3, 0.60, Cleaning::Auto, [(0.65, Some(1.75)), (0.65, Some(1.6))]),
    (4, 0.70, Cleaning::Auto, [(0.0, Some(2.4)), (0.0, Some(2.0))]),
];

fn steady_gates(fresh: &ChainCase) -> Vec<Gate> {
    let of_pattern = |(links, export, cleaning, gates): Steady| {
        let export = bearable(fresh, links, export);
        Pattern::ALL.into_iter().zip(gates).map(move |(pattern, (least, appended_most))| {
            let percent = 100.0 * export;
            let name = format!("{links} links, {percent:.1} %, {cleaning}, {}", pattern.name());
            let case = ChainCase {
                links,
                export: Some(export),
                cleaning,
                pattern,
                fill: Fill::Raw(3),
                durability: Durability::FlushEachSecond,
                ..fresh.clone()
            };
            Gate { name, least, case, appended_most, beside: None }
        })
    };
    STEADY.into_iter().flat_map(of_pattern).collect()
}

/// Share that is exported while a drive leaves: three drives must bear what four export.
const EXPORTED_BY_FOUR: f64 = 0.45;

/// What a removal costs: no share of it was promised.
fn leaving_gates(fresh: &ChainCase) -> Vec<Gate> {
    let (links, limit) = (4, bearable(fresh, 3, 1.0) * 3.0 / 4.0);
    let export = Some(EXPORTED_BY_FOUR.min(limit));
    let (cleaning, fill) = (Cleaning::Auto, Fill::FirstDrive);
    let alone = ChainCase { links, export, cleaning, fill, ..fresh.clone() };
    let leaves = ChainCase { leaves: true, ..alone.clone() };
    let gate = |name: &str, case, beside| Gate {
        name: name.to_owned(),
        least: 0.0,
        case,
        appended_most: None,
        beside,
    };
    vec![
        gate("durable random writes, the first of 4 full", alone, None),
        gate("the same while that drive leaves", leaves, Some(0)),
    ]
}

/// How many times what a log over RAID-0 gives that is cleaned block by block, while half of a
/// drive is valid: on fast drives of 15,000 rpm, and on others. First move-to-tail, then
/// compact-in-body.
const TIMES_FAST: [f64; 2] = [2.5, 5.0];
const TIMES: [f64; 2] = [6.0, 12.0];
const RPM_FAST: f64 = 12_500.0;

fn cleaning_gates(fresh: &ChainCase) -> Vec<Gate> {
    let is_fast = fresh.drive.profile.rpm() > RPM_FAST;
    let [of_mtt, of_cib] = if is_fast { TIMES_FAST } else { TIMES };
    let durability = Durability::FlushEachSecond;
    // With a third drive, which is empty, nothing is to be cleaned.
    let alone = ChainCase { fill: Fill::FirstDrive, durability, ..fresh.clone() };
    let half = ChainCase { links: 2, fill: Fill::Trimmed(50), ..alone.clone() };
    let log = ChainCase { layout: Layout::Blockwise, ..half.clone() };
    let mtt = ChainCase { cleaning: Cleaning::MoveToTail, ..half.clone() };
    let cib = ChainCase { cleaning: Cleaning::CompactInBody, ..half };
    let gate = |name: &str, least, case: &ChainCase, beside| Gate {
        name: name.to_owned(),
        least,
        case: case.clone(),
        appended_most: None,
        beside,
    };
    vec![
        gate("random writes, nothing is cleaned", 0.0, &alone, None),
        gate("log over RAID-0, half valid, by blocks", 0.0, &log, None),
        gate("half valid, mtt, against that log", of_mtt, &mtt, Some(1)),
        gate("half valid, cib, against that log", of_cib, &cib, Some(1)),
        gate("half valid, cib, against writes alone", 0.98, &cib, Some(0)),
    ]
}

/// The share, or what can be exported of drives that are made so small that it is less.
fn bearable(fresh: &ChainCase, links: usize, share: f64) -> f64 {
    let drive = fresh.drive.profile.capacity();
    let limit = export_limit(links, drive, fresh.segment);
    share.min(limit.0 as f64 / (drive.0 * links as u64).max(1) as f64)
}

/// Measures all gates, on up to `threads` threads. Those that have not begun when `stop` is set are
/// left out.
///
/// # Errors
/// The first failure.
pub fn run_gates(
    gates: &[Gate],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<GateResult>, ChainFailure> {
    let found = in_parallel(gates, threads, stop, |gate| measure(&gate.case))?;
    let result = |(gate, figures): (&Gate, &Option<ChainMeasured>)| {
        let figures = (*figures)?;
        let alone = match gate.beside {
            Some(other) => Some(found[other]?),
            None => None,
        };
        // A log that is cleaned by blocks has no latencies.
        let timed = alone.filter(|alone| alone.write_p99_ms > 0.0);
        let p99_times = timed.map(|alone| figures.write_p99_ms / alone.write_p99_ms);
        let reached = match alone {
            Some(alone) => figures.write_mb_s / alone.write_mb_s.max(1e-3),
            None => figures.share,
        };
        let few = gate.appended_most.is_none_or(|most| figures.appended_per_byte <= most);
        let slow = p99_times.is_some_and(|times| times > P99_TIMES);
        let holds = reached >= gate.least && few && !slow;
        Some(GateResult {
            drive: gate.case.drive.profile.name.clone(),
            write_cache: gate.case.drive.write_cache,
            gate: gate.name.clone(),
            seed: gate.case.seed,
            least: gate.least,
            reached: crate::stats::round3(reached),
            appended_most: gate.appended_most,
            p99_times: p99_times.map(crate::stats::round3),
            holds,
            figures,
        })
    };
    Ok(gates.iter().zip(&found).filter_map(result).collect())
}
