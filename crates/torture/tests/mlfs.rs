//! The file system with its journal near the head, crashed by the campaign.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use manylogs::Phase;
use manylogs_torture::ext4::{Templates, has_program};
use manylogs_torture::{Campaign, Ext4Campaign, Progress, System};

/// Crash states that a test run must see at least.
const STATES: u64 = 5_000;

#[test]
fn what_was_synced_is_there_after_every_crash_and_a_drain() {
    if !["mkfs.ext4", "debugfs", "e2fsck"].into_iter().all(has_program) {
        eprintln!("skipped: needs mkfs.ext4, debugfs and e2fsck");
        return;
    }
    let images = Templates::make().unwrap();
    let campaign = Campaign {
        system: System::Mlfs,
        seeds: 1..=u64::MAX - 1,
        states: Some(STATES),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        faults: false,
        trouble: false,
        ext4: Some(Ext4Campaign { images, e2fsck_every: 40, mutate: false }),
    };
    let summary = campaign.run(&Progress::default());
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert!(tally.phases.total() >= STATES);
    let crashed = |phase| tally.phases.iter().any(|(p, states)| p == phase && states > 0);
    for phase in [Phase::Append, Phase::Bypass, Phase::Checkpoint, Phase::Supersede, Phase::Reset] {
        assert!(crashed(phase), "{phase:?} is not crashed");
    }
    assert!(tally.judged_by_e2fsck >= STATES / 100);
    assert!(tally.nested >= STATES / 10);
}
