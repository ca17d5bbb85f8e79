//! The file system with its journal near the head, crashed by the campaign.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use manylogs::Phase;
use manylogs_torture::ext4::{Templates, has_program};
use manylogs_torture::{Campaign, Ext4Campaign, Progress, System, Tally};

/// Number of crash states that a test run must see at least.
const STATES: u64 = 2_000;

/// As [`STATES`], where metadata stays in the logs.
const LAZY_STATES: u64 = 1_000;
/// As [`STATES`], for a device that fails.
const TROUBLED_STATES: u64 = 1_000;

/// Crashes histories until there are `states` states; `None`, and a report, if a program is
/// missing.
fn tortured(system: System, states: u64, trouble: bool) -> Option<Tally> {
    if !["mkfs.ext4", "debugfs", "e2fsck"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4, debugfs and e2fsck");
        return None;
    }
    let images = Templates::make().unwrap();
    let campaign = Campaign {
        system,
        seeds: 1..=u64::MAX - 1,
        states: Some(states),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        faults: false,
        trouble,
        array: None,
        ext4: Some(Ext4Campaign { images, e2fsck_every: 40, mutate: false }),
    };
    let summary = campaign.run(&Progress::default());
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    assert!(summary.tally.phases.total() >= states);
    Some(summary.tally)
}

#[test]
fn what_was_synced_is_there_after_every_crash_and_a_drain() {
    let Some(tally) = tortured(System::Mlfs, STATES, false) else { return };
    let crashed = |phase| tally.phases.iter().any(|(p, states)| p == phase && states > 0);
    for phase in [Phase::Append, Phase::Bypass, Phase::Checkpoint, Phase::Supersede, Phase::Reset] {
        assert!(crashed(phase), "{phase:?} is not crashed");
    }
    assert!(tally.judged_by_e2fsck >= STATES / 100);
    assert!(tally.nested >= STATES / 10);
}

#[test]
fn metadata_that_stays_in_the_logs_is_there_in_every_mode() {
    let Some(tally) = tortured(System::MlfsLazy, LAZY_STATES, false) else { return };
    let crashed = |phase| tally.phases.iter().any(|(p, states)| p == phase && states > 0);
    for phase in [Phase::Append, Phase::Checkpoint, Phase::Supersede] {
        assert!(crashed(phase), "{phase:?} is not crashed");
    }
    assert!(tally.nested >= LAZY_STATES / 20);
}

#[test]
fn what_was_synced_is_there_whatever_the_device_fails() {
    let Some(tally) = tortured(System::Mlfs, TROUBLED_STATES, true) else { return };
    assert!(tally.failed_requests > tally.histories);
    for (count, name) in [
        (tally.troubled, "device that fails in use"),
        (tally.transient_errors, "error that passes"),
        (tally.troubled_openings, "mount in spite of errors"),
        (tally.refused_openings, "mount that errors prevent"),
    ] {
        assert!(count > 0, "there is no {name}");
    }
}
