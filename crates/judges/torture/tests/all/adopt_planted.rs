//! Bugs planted in taking file systems over and giving them back: the crash histories must notice
//! each, or they prove nothing.

#![cfg(feature = "plant")]

use manylogs_plant::{MLFS, plant};
use manylogs_torture::ext4::{Images, Templates, has_program};
use manylogs_torture::{AdoptPlan, run_adopt};

/// Histories after which a bug counts as missed.
const PATIENCE: u64 = 200;
const FIRST: u64 = 9000;

/// Why a history does not hold; e2fsck is not needed to notice anything.
fn problem(seed: u64, images: &Images) -> Option<String> {
    let plan = AdoptPlan::of_seed(FIRST + seed).with_e2fsck(0);
    run_adopt(&plan, images).err().map(|violation| violation.to_string())
}

/// Prints how many histories each took, and what was noticed.
#[test]
fn every_planted_bug_of_taking_over_and_giving_back_is_noticed() {
    if !has_program("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    let images = Templates::make().unwrap().images().unwrap();
    assert_eq!(problem(0, &images), None, "without a bug");
    let mut missed = Vec::new();
    for bug in MLFS {
        plant(Some(*bug));
        let noticed = (0..PATIENCE).find_map(|seed| Some((seed, problem(seed, &images)?)));
        plant(None);
        match noticed {
            Some((seed, problem)) => {
                let first = problem.lines().next().unwrap_or("");
                println!("{bug:?}: noticed by history {}: {first}", seed + 1);
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
