//! Histories with files that need durability and no place. The property is set and cleared, and
//! blocks move between such files and plain ones. And bugs planted in that.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use manylogs_torture::ext4::{Ext4Plan, Images, Templates, has_program};
use manylogs_torture::run_ext4;

/// Number of states that each thread of a test run must see at least.
const STATES: usize = 1_250;
const THREADS: u64 = 2;
const FIRST: u64 = 40_000;

fn plan_of(seed: u64) -> Ext4Plan {
    Ext4Plan::of_seed(FIRST + seed).with_durable_files()
}

fn states_of(seed: u64, images: &Images) -> usize {
    let report = run_ext4(&plan_of(seed), images);
    let again = format!("repeat: DURABLE_FILES={seed} cargo test --test all durable_files");
    report.unwrap_or_else(|problem| panic!("{problem}\n{again}")).states.len()
}

#[test]
fn nothing_is_lost_and_nothing_old_rises() {
    if !["mkfs.ext4", "debugfs", "e2fsck"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4, debugfs and e2fsck");
        return;
    }
    let templates = Templates::make().unwrap();
    if let Ok(seed) = std::env::var("DURABLE_FILES") {
        states_of(seed.parse().unwrap(), &templates.images().unwrap());
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let templates = &templates;
            scope.spawn(move || {
                let images = templates.images().unwrap();
                let (mut states, mut seed) = (0, thread);
                while states < STATES {
                    states += states_of(seed, &images);
                    seed += THREADS;
                }
                println!("{states} states in {} histories", seed / THREADS);
            });
        }
    });
}

#[cfg(feature = "plant")]
mod planted {
    use manylogs_plant::{Bug, DURABLE_FILES};
    use manylogs_torture::ext4::Ext4Plan;

    use super::plan_of;
    use crate::common::every_bug_is_noticed;

    /// Bugs of the volume below that these histories must show as well.
    const OF_THE_VOLUME: &[Bug] =
        &[Bug::KeptNotBuried, Bug::KeptFloorOverKept, Bug::DrainLeavesKept, Bug::DeadBuryNothing];

    /// Histories of any kind. e2fsck is not needed to notice these bugs.
    fn plan_for(_: Bug, seed: u64) -> Ext4Plan {
        plan_of(seed).with_e2fsck(0)
    }

    #[test]
    fn every_planted_bug_of_durable_files_is_noticed() {
        every_bug_is_noticed("durable", &[DURABLE_FILES, OF_THE_VOLUME].concat(), plan_for);
    }
}
