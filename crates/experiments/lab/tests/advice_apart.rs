//! Advice whose replays are done elsewhere equals the advice of one process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::Arc;

use manylogs_disk::LinkSettings;
use manylogs_disk::profile::find;
use manylogs_lab::advise::{Advised, Apart, Ask, Asked, Next, advise, fitted_policies};
use manylogs_lab::load::{Load, LoadOptions, LoadRate};
use manylogs_lab::prepare::TraceSpec;
use manylogs_lab::replay::{Durability, Progress};
use manylogs_workload::OpenOptions;

fn options(rate: LoadRate) -> LoadOptions {
    let traces = TraceSpec {
        files: vec!["synthetic".into()],
        open: OpenOptions::default(),
        opens: Vec::new(),
        window: None,
        windows: Vec::new(),
        read: Vec::new(),
        limit: Some(700),
        seed: 1,
    };
    let (link, durability) = (LinkSettings::default(), Some(Durability::All));
    let (smr_cache, fit, repeat, seeds) = (None, true, 1, 2);
    LoadOptions { traces, link, array: None, smr_cache, fit, rate, repeat, durability, seeds }
}

/// Does the wanted replays until the advice is complete; returns it with the number of steps and
/// replays.
fn apart(load: &Load, summed: Load, guesses: bool) -> (Advised, usize, usize) {
    let ours = fitted_policies().unwrap();
    let (plan, progress) = (load.plan(&ours), Arc::<Progress>::default());
    let apart = Apart::new(summed, ours);
    let (mut known, mut steps) = (HashMap::new(), 0);
    loop {
        match apart.next(&known, guesses).unwrap() {
            Next::Done(advised) => return (*advised, steps, known.len()),
            Next::Wanted(asks, _) => {
                assert!(!asks.is_empty(), "it waits for nothing");
                for ask in asks {
                    let parsed: Ask = ask.parse().unwrap();
                    assert_eq!(parsed.to_string(), ask);
                    let brief = parsed.done(&plan, &progress).unwrap();
                    let text = serde_json::to_string(&brief).unwrap();
                    known.insert(ask, serde_json::from_str(&text).unwrap());
                }
            }
        }
        steps += 1;
    }
}

#[test]
fn replays_done_elsewhere_come_to_the_same_advice() {
    let profile = |name: &str| find(name).unwrap().unwrap();
    for (drive, rate) in [
        ("exos-x20", LoadRate::Busy(0.5)),
        // More than the drive can do.
        ("constellation-es3", LoadRate::Factor(60.0)),
    ] {
        let options = options(rate);
        let ours = fitted_policies().unwrap();
        let load = Load::read(profile(drive), &options, &ours).unwrap();
        let progress = Arc::<Progress>::default();
        let mut plan = load.plan(&ours);
        let rate = load.choose_rate(&mut plan, &progress).unwrap();
        let (device, command) = (String::new(), String::new());
        let asked = Asked { load: &load, plan, rate, device, command, threads: 2 };
        let whole = advise(asked, &progress, |_| ()).unwrap().unwrap().advice;
        let mut steps_of = Vec::new();
        for guesses in [false, true] {
            let summary = *load.workload.summary();
            let summed = Load::of_summary(profile(drive), &options, summary);
            let (found, steps, replays) = apart(&load, summed, guesses);
            let found = found.advice;
            assert_eq!(found.sentence(), whole.sentence());
            assert_eq!(found.decision, whole.decision);
            assert_eq!(found.tried, whole.tried);
            assert_eq!(found.too_much, whole.too_much);
            assert_eq!(found.gain.durable_mean, whole.gain.durable_mean);
            assert_eq!(found.gain.reads_mean, whole.gain.reads_mean);
            assert_eq!(found.gain.stream_mb_s, whole.gain.stream_mb_s);
            steps_of.push(steps);
            assert!(replays > whole.tried.len(), "{replays}");
        }
        println!("{drive}: steps without guesses and with them: {steps_of:?}");
        assert!(steps_of[1] + 3 < steps_of[0], "guesses make fewer steps: {steps_of:?}");
    }
}

#[test]
fn what_is_no_ask_is_refused() {
    for text in ["", "mlb", "mlb 1 1.0 0.0 0", "what 1 1.0 0.0 0 1", "mlb 1 -1.0 0.0 0 1"] {
        assert!(text.parse::<Ask>().is_err(), "{text}");
    }
}
