//! The file system ext4, crashed and damaged by the campaign.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ops::RangeInclusive;

use manylogs_torture::ext4::{Templates, has_program};
use manylogs_torture::{Campaign, Control, Ext4Campaign, Summary, System};

/// Crash states that a test run must see at least.
const STATES: u64 = 10_000;
/// Damaged images that a test run tries.
const MUTANTS: u64 = 6_000;

/// `None`, and a word, if there is no mkfs.ext4 or no e2fsck.
fn templates() -> Option<Templates> {
    if has_program("mkfs.ext4") && has_program("e2fsck") {
        return Some(Templates::make().unwrap());
    }
    eprintln!("skipped: needs mkfs.ext4 and e2fsck");
    None
}

fn run(seeds: RangeInclusive<u64>, states: Option<u64>, mutate: bool) -> Option<Summary> {
    let campaign = Campaign {
        system: System::Ext4,
        seeds,
        states,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        faults: false,
        trouble: false,
        ext4: Some(Ext4Campaign { images: templates()?, e2fsck_every: 40, mutate }),
    };
    Some(campaign.run(&Control::default()))
}

#[test]
fn what_was_synced_is_there_after_every_crash() {
    let Some(summary) = run(1..=u64::MAX - 1, Some(STATES), false) else { return };
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert!(tally.phases.total() >= STATES);
    let of_each = tally.phases.iter().filter(|(_, states)| *states > 0).count();
    assert_eq!(of_each, 5, "mounts, logs, homes, tails and recoveries are crashed");
    // One judged state in 40 is also judged by e2fsck, and half of those are replayed by it.
    assert!(tally.judged_by_e2fsck >= STATES / 100 && tally.replayed_by_e2fsck >= STATES / 200);
    assert!(tally.nested >= STATES / 10);
}

#[test]
fn damaged_images_are_refused_or_used_with_errors() {
    let Some(summary) = run(1..=MUTANTS, None, true) else { return };
    println!("{summary:#?}");
    assert_eq!(summary.failure, None);
    let tally = &summary.tally;
    assert_eq!(tally.mutated, MUTANTS);
    assert!(tally.mutated_mounted >= MUTANTS / 4);
    assert!(tally.mutated_found_by_both >= MUTANTS / 400);
}
