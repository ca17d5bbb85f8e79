//! A small campaign, and the number of events that it needs to prove anything.

use manylogs_torture::{Campaign, Fault, Progress, System, run_seed};

/// Number of states that a test run must see at least.
const STATES: u64 = 20_000;

fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn campaign(states: u64, jobs: usize) -> Campaign {
    let (seeds, states) = (1..=u64::MAX - 1, Some(states));
    let (system, faults, trouble) = (System::Volume, true, false);
    Campaign { system, seeds, states, jobs, faults, trouble, array: None, ext4: None }
}

#[test]
fn nothing_acknowledged_is_lost_in_any_crash() {
    let summary = campaign(STATES, jobs()).run(&Progress::default());
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    assert!(summary.tally.phases.total() >= STATES);
    // One history in a hundred has a refused opening; the campaign of trouble below counts these.
    let mut neglected = summary.tally.neglected();
    neglected.retain(|what| what != "0 refused_openings");
    assert_eq!(neglected, Vec::<String>::new());
    for (fault, count) in Fault::ALL.iter().zip(&summary.tally.faults) {
        assert!(count.detected >= 10, "{fault:?}: {count:?}");
    }
}

/// Number of histories with a failing device that a test run must see at least.
const TROUBLED: u64 = 500;

#[test]
fn every_request_is_answered_and_nothing_is_lost_whatever_fails() {
    let trouble = Campaign {
        trouble: true,
        array: None,
        faults: false,
        seeds: 1..=TROUBLED,
        states: None,
        ..campaign(1, jobs())
    };
    let summary = trouble.run(&Progress::default());
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert_eq!((tally.histories, tally.troubled), (TROUBLED, TROUBLED));
    for count in [tally.transient_errors, tally.refused_openings, tally.troubled_openings] {
        assert!(count >= 10, "{tally:#?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    assert_eq!(run_seed(3, false), run_seed(3, false));
    assert_ne!(run_seed(3, false).unwrap().states, run_seed(4, false).unwrap().states);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let run = |jobs| campaign(1500, jobs).run(&Progress::default());
    assert_eq!(run(1), run(3));
}
