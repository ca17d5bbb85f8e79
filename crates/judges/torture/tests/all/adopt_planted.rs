//! Bugs planted in taking file systems over and giving them back. The crash histories must notice
//! each bug, or they prove nothing.

#![cfg(feature = "plant")]

use crate::common::Hunt;
use manylogs_plant::{Bug, MLFS};
use manylogs_torture::ext4::{Images, Templates, has_program};
use manylogs_torture::{AdoptPlan, run_adopt};

/// Number of histories after which a bug counts as missed.
const PATIENCE: u64 = 200;
const FIRST: u64 = 9000;

/// Prints what was noticed of each. e2fsck is not needed to notice anything.
#[test]
fn every_planted_bug_of_taking_over_and_giving_back_is_noticed() {
    if !has_program("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    let templates = Templates::make().unwrap();
    let history = |_: Bug, seed: u64, images: &Images| {
        run_adopt(&AdoptPlan::of_seed(FIRST + seed).with_e2fsck(0), images)
    };
    let hunt = Hunt { histories: "adopt", bugs: MLFS, patience: PATIENCE };
    hunt.run(|| templates.images().unwrap(), history);
}
