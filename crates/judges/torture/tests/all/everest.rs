//! Everest's store and its clients, crashed by the campaign.

use std::ops::RangeInclusive;

use manylogs_torture::{Campaign, EverestPlan, Progress, Summary, System, run_everest};

/// Histories of one run.
const HISTORIES: u64 = 50;

fn run(seeds: RangeInclusive<u64>, trouble: bool) -> Summary {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let system = System::Everest;
    let campaign = Campaign {
        system,
        seeds,
        states: None,
        jobs,
        faults: false,
        trouble,
        array: None,
        ext4: None,
    };
    let summary = campaign.run(&Progress::default());
    assert_eq!(summary.failure, None);
    summary
}

/// Logs go out of use, a write of the root fails, or reads fail as the store opens.
#[test]
fn a_store_on_devices_that_fail_goes_on() {
    let tally = run(1..=60, true).tally;
    println!("{} requests failed, {} at openings", tally.failed_requests, tally.troubled_openings);
    assert!(tally.failed_requests > 60 && tally.troubled_openings > 10, "too few requests failed");
}

#[test]
fn what_was_off_loaded_survives_every_crash() {
    let summary = run(1..=HISTORIES, false);
    let states = summary.tally.phases.total();
    println!("{states} crash states of {HISTORIES} histories");
    assert!(states >= 2000, "{states} crash states are too few");
    let of_each = summary.tally.phases.iter().filter(|(_, states)| *states > 0).count();
    assert_eq!(of_each, 4, "formats, records, homes and recoveries are crashed");
    let tally = summary.tally;
    assert!(tally.closed >= 20, "{} stores closed in order", tally.closed);
    let (open, closed) = (tally.forgotten_stores, tally.forgotten_by_closed);
    println!("stores forgotten: {open}, by closed volumes {closed}, {} noted", tally.noted_losses);
    assert!(open > 0 && closed > 0 && tally.noted_losses > 0, "stores go for good");
    let (emptied, moved) = (tally.emptied_stores, tally.moved_ranges);
    println!("stores evacuated: {emptied}, {moved} ranges went to others");
    assert!(emptied > 100, "stores are evacuated");
}

/// In this history another store gets a newer version of what a note says a store that goes for good
/// has alone. It is named as lost, and is there.
#[test]
fn what_another_store_got_since_a_note_is_there() {
    let tally = run(93..=93, false).tally;
    assert!(tally.noted_losses > 0, "notes say what is lost");
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use crate::common::Hunt;
    use manylogs_plant::{Bug, EVEREST, LENDERS};

    // Too rare for so few histories: `crates/systems/everest/tests/all/far.rs` has them.
    let rare = [
        Bug::ListedAfterWrite,
        Bug::OldSessionServed,
        Bug::ClosedBeforeTasksEnd,
        Bug::CallDoneTwice,
        Bug::VoidForgotten,
    ];
    // Bugs of the engine, of opening, of bounds, and of stores that are gone for good or evacuated,
    // that these histories show, too.
    let others = [
        Bug::OldTableBelieved,
        Bug::OpenedSetLate,
        Bug::ClientUnbounded,
        Bug::LossAfterDrop,
        Bug::LossNotBelieved,
        Bug::LossKept,
        Bug::LossOutlived,
        Bug::EvacuationForgotten,
    ];
    let bugs = EVEREST.iter().chain(LENDERS).filter(|bug| !rare.contains(bug)).chain(&others);
    let bugs: Vec<Bug> = bugs.copied().collect();
    let hunt = Hunt { histories: "everest", bugs: &bugs, patience: 400 };
    hunt.run(|| (), |_, seed, ()| run_everest(&EverestPlan::of_seed(seed)));
}

/// The same seed gives the same history.
#[test]
fn a_history_repeats_itself() {
    let run = || run_everest(&EverestPlan::of_seed(3));
    assert_eq!(run(), run());
}
