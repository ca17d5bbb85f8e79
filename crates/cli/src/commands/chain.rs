//! `manylogs chain`: the gates of a chain of drives, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_lab::chain::{
    ChainFailure, Gate, GateGroup, GateResult, SleepCase, SleepMeasured, gates, run_gates,
    run_sleep, sleep_text, text,
};
use manylogs_lab::replay::DriveSettings;
use serde_json::json;

use super::command_line;
use super::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::args::chain::{ChainArgs, Gates};
use crate::failure::Failure;
use crate::output::{Output, print};

pub(crate) fn run(args: &ChainArgs) -> Result<(), Failure> {
    let sets = sets(args)?;
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let mut results = Vec::new();
    for set in sets {
        let found = run_gates(&set, threads, &stop).map_err(|error| failure(&error))?;
        results.extend(found);
    }
    let slept = run_sleep(&sleeping(args)?, threads, &stop).map_err(|error| failure(&error))?;
    let interrupted = stop.load(Ordering::Relaxed);
    if !results.is_empty() {
        print(&text(&results))?;
    }
    print(&sleep_text(&slept))?;
    write_figures(json, || Ok(all(&results, &slept, interrupted)? + "\n"))?;
    ended(interrupted)
}

fn all(
    results: &[GateResult],
    slept: &[SleepMeasured],
    interrupted: bool,
) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&json!({
        "format": 1,
        "command": command_line(std::env::args()),
        "interrupted": interrupted,
        "gates": results,
        "sleep": slept,
    }))
}

/// Every combination of the lists; the gates of one group are adjacent.
fn sets(args: &ChainArgs) -> Result<Vec<Vec<Gate>>, Failure> {
    let mut sets = Vec::new();
    for name in &args.drive {
        let profile = super::drive(name)?.fitted(args.capacity).map_err(Failure::input)?;
        let profile = Arc::new(profile);
        for &write_cache in &args.drive_cache {
            let drive = DriveSettings::new(Arc::clone(&profile), write_cache);
            for &seed in &args.seed {
                let of_group = |group: &Gates| {
                    let group = group_of(*group)?;
                    Some(gates(group, &drive, args.segment, args.span, args.cache, seed))
                };
                sets.extend(args.gates.iter().filter_map(of_group));
                if !args.only.is_empty() {
                    sets.iter_mut().for_each(|set| keep_only(set, &args.only));
                }
            }
        }
    }
    let cases = sets.iter_mut().flatten().map(|gate| &mut gate.case);
    cases.for_each(|case| case.summaries = args.summaries);
    Ok(sets)
}

/// Drops gates whose names lack `words`, in sets where no gate is measured against another.
fn keep_only(set: &mut Vec<Gate>, words: &str) {
    if set.iter().all(|gate| gate.beside.is_none()) {
        set.retain(|gate| gate.name.contains(words));
    }
}

/// The cases of halves that sleep, if their gate is asked for.
fn sleeping(args: &ChainArgs) -> Result<Vec<SleepCase>, Failure> {
    let mut cases = Vec::new();
    for name in args.drive.iter().filter(|_| args.gates.contains(&Gates::Sleep)) {
        let profile = super::drive(name)?.fitted(args.capacity).map_err(Failure::input)?;
        let profile = Arc::new(profile);
        for (&write_cache, &seed) in
            args.drive_cache.iter().flat_map(|cache| args.seed.iter().map(move |s| (cache, s)))
        {
            let drive = DriveSettings::new(Arc::clone(&profile), write_cache);
            let (segment, span) = (args.segment, args.span);
            let case =
                |&cleaning| SleepCase { drive: drive.clone(), segment, cleaning, span, seed };
            cases.extend(args.cleaning.iter().map(case));
        }
    }
    Ok(cases)
}

/// The group; `None` for halves that sleep, which are measured apart.
const fn group_of(gates: Gates) -> Option<GateGroup> {
    Some(match gates {
        Gates::Fresh => GateGroup::Fresh,
        Gates::Readers => GateGroup::Readers,
        Gates::Tail => GateGroup::Tail,
        Gates::Steady => GateGroup::Steady,
        Gates::Leaving => GateGroup::Leaving,
        Gates::Cleaning => GateGroup::Cleaning,
        Gates::Sleep => return None,
    })
}

fn failure(error: &ChainFailure) -> Failure {
    match error {
        ChainFailure::Chain { .. } => Failure::input(error),
        other => Failure::failed(other),
    }
}
