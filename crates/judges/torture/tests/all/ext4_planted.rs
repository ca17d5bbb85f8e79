//! Bugs planted in the file system ext4. The campaign must notice each bug, or it proves nothing.

#![cfg(feature = "plant")]

use crate::common::every_bug_is_noticed;
use manylogs_plant::{Bug, EXT4};
use manylogs_torture::ext4::{Ext4Plan, Shape};

const FIRST: u64 = 7000;

/// The histories that show a bug soonest. e2fsck is not needed to notice these bugs.
fn plan_for(bug: Bug, seed: u64) -> Ext4Plan {
    let seed = FIRST + seed;
    let plan = match bug {
        // On a disk that does not flush its cache after a durable write.
        Bug::Ext4TailBeforeHome => Ext4Plan::of_seed(2 * seed).long(),
        Bug::Ext4SplitLosesName => Ext4Plan::shaped(seed, Shape::ManyNames),
        Bug::Ext4PieceLost => Ext4Plan::shaped(seed, Shape::Scattered),
        _ => Ext4Plan::of_seed(seed),
    };
    plan.with_e2fsck(0)
}

/// Prints what was noticed of each.
#[test]
fn every_planted_bug_of_ext4_is_noticed() {
    every_bug_is_noticed("ext4", EXT4, plan_for);
}
