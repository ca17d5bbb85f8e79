//! Histories with files that need durability and no place. The property is set and cleared, and
//! blocks move between such files and plain ones. And bugs planted in that.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use std::sync::Mutex;

use manylogs_torture::ext4::{Ext4Plan, Images, Templates, has_program};
use manylogs_torture::{Report, Tally, run_ext4};

/// Number of states that each thread of a test run must see at least.
const STATES: usize = 1_250;
const THREADS: u64 = 2;
const FIRST: u64 = 40_000;

fn plan_of(seed: u64) -> Ext4Plan {
    Ext4Plan::of_seed(FIRST + seed).with_durable_files()
}

fn report_of(seed: u64, images: &Images) -> Report {
    let report = run_ext4(&plan_of(seed), images);
    let again = format!("repeat: DURABLE_FILES={seed} cargo test --test all durable_files");
    report.unwrap_or_else(|problem| panic!("{problem}\n{again}"))
}

#[test]
fn nothing_is_lost_and_nothing_old_rises() {
    if !["mkfs.ext4", "debugfs", "e2fsck"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4, debugfs and e2fsck");
        return;
    }
    let templates = Templates::make().unwrap();
    if let Ok(seed) = std::env::var("DURABLE_FILES") {
        report_of(seed.parse().unwrap(), &templates.images().unwrap());
        return;
    }
    let sum = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let sum = &sum;
            let templates = &templates;
            scope.spawn(move || {
                let images = templates.images().unwrap();
                let (mut states, mut seed) = (0, thread);
                while states < STATES {
                    let report = report_of(seed, &images);
                    states += report.states.len();
                    seed += THREADS;
                    sum.lock().unwrap().add(&report.tally);
                }
                println!("{states} states in {} histories", seed / THREADS);
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    for (count, name) in [
        (sum.homes_files, "file in homes without logs"),
        (sum.kept_home_sectors, "sector beyond the budget"),
        (sum.kept_moved_sectors, "sector that moves"),
        (sum.nested, "crash in recovery"),
    ] {
        println!("{count} of: {name}");
        assert!(count > 0, "there is no {name}");
    }
}

#[cfg(feature = "plant")]
mod planted {
    use manylogs_plant::{Bug, DURABLE_FILES};
    use manylogs_torture::ext4::Ext4Plan;

    use super::plan_of;
    use crate::common::every_bug_is_noticed;

    /// Other bugs that these histories must show as well.
    const OTHERS: &[Bug] = &[
        Bug::OthersNotRenewed,
        Bug::KeptNotBuried,
        Bug::ClassLostByMove,
        Bug::KeptFloorOverKept,
        Bug::DrainLeavesKept,
        Bug::DeadBuryNothing,
    ];

    /// Bugs that show in the homes alone.
    const OF_HOMES: &[Bug] = &[Bug::DurableHomeFormWritten, Bug::LeadingWithContent];

    /// One state in this number is read without the logs, for bugs that show there.
    const HOMES_EVERY: u64 = 3;

    /// Histories of any kind.
    fn plan_for(bug: Bug, seed: u64) -> Ext4Plan {
        let homes = if OF_HOMES.contains(&bug) { HOMES_EVERY } else { 0 };
        plan_of(seed).with_e2fsck(0).with_homes(homes)
    }

    #[test]
    fn every_planted_bug_of_durable_files_is_noticed() {
        let bugs = [DURABLE_FILES, OTHERS].concat();
        every_bug_is_noticed("durable", &bugs, plan_for);
    }

    #[test]
    fn every_planted_bug_of_the_homes_alone_is_noticed() {
        every_bug_is_noticed("durable", OF_HOMES, plan_for);
    }
}
