//! Everest's store and its clients, crashed by the campaign.

use manylogs_torture::{Campaign, EverestPlan, Progress, System, run_everest};

/// Histories of one run.
const HISTORIES: u64 = 80;

#[test]
fn what_was_off_loaded_survives_every_crash() {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let campaign = Campaign {
        system: System::Everest,
        seeds: 1..=HISTORIES,
        states: None,
        jobs,
        faults: false,
        trouble: false,
        ext4: None,
    };
    let summary = campaign.run(&Progress::default());
    assert_eq!(summary.failure, None);
    let states = summary.tally.phases.total();
    println!("{states} crash states of {HISTORIES} histories");
    assert!(states > 10 * HISTORIES, "{states} crash states are too few");
    let of_each = summary.tally.phases.iter().filter(|(_, states)| *states > 0).count();
    assert_eq!(of_each, 4, "formats, records, homes and recoveries are crashed");
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, EVEREST, plant};
    for bug in EVEREST {
        plant(Some(*bug));
        // It takes two slow rounds that meet.
        let from = if *bug == Bug::ReclaimsOverlap { 85 } else { 1 };
        let noticed = (from..=400).find(|seed| run_everest(&EverestPlan::of_seed(*seed)).is_err());
        plant(None);
        assert!(noticed.is_some(), "{bug:?} is not noticed");
        println!("{bug:?}: seed {noticed:?}");
    }
}

/// The same seed is the same history.
#[test]
fn a_history_repeats_itself() {
    let run = || run_everest(&EverestPlan::of_seed(3));
    assert_eq!(run(), run());
}
