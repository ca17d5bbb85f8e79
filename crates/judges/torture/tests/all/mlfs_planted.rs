//! Bugs planted in the journal near the head. The campaign must notice each bug, or it proves
//! nothing.

#![cfg(feature = "plant")]

use crate::common::every_bug_is_noticed;
use manylogs_plant::{Bug, NEAR, NEAR_LAZY, NEAR_TROUBLE};
use manylogs_torture::ext4::{Ext4Plan, Journal};

const FIRST: u64 = 9000;

/// Bugs of the file system that these histories must show as well.
const OTHERS: &[Bug] = &[
    Bug::Ext4DataAfterMetadata,
    Bug::Ext4ReuseBeforeDurable,
    Bug::Ext4SyncNotAwaited,
    Bug::Ext4OrphansNotEnded,
    Bug::Ext4JournalledContentUnread,
];

/// Histories of any kind. e2fsck is not needed to notice these bugs.
fn plan_for(_: Bug, seed: u64) -> Ext4Plan {
    let plan = Ext4Plan::of_seed(FIRST + seed);
    plan.with_journal(Journal::Near).with_e2fsck(0)
}

/// Bugs of kept versions that must show where metadata stays in the logs.
const OF_KEPT: &[Bug] = &[
    Bug::KeptFloorOverKept,
    Bug::DrainLeavesKept,
    Bug::NearDrainForgetsMetadata,
    Bug::Ext4ReuseBeforeDurable,
];

fn lazy_plan_for(_: Bug, seed: u64) -> Ext4Plan {
    Ext4Plan::of_seed(FIRST + seed).with_journal(Journal::NearLazy).with_e2fsck(0)
}

/// Bugs of the volume that must show below a file system on a failing device.
const OF_THE_VOLUME: &[Bug] =
    &[Bug::FailedRecordSettled, Bug::KeptDropped, Bug::TransientIsLoss, Bug::FloorOverUnread];

fn troubled_plan_for(_: Bug, seed: u64) -> Ext4Plan {
    Ext4Plan::of_seed(FIRST + seed).in_trouble().with_e2fsck(0)
}

/// Prints what was noticed of each.
#[test]
fn every_planted_bug_of_the_journal_near_the_head_is_noticed() {
    every_bug_is_noticed("mlfs", &[NEAR, OTHERS].concat(), plan_for);
}

#[test]
fn every_planted_bug_of_metadata_that_stays_in_the_logs_is_noticed() {
    every_bug_is_noticed("mlfs-lazy", &[NEAR_LAZY, OF_KEPT].concat(), lazy_plan_for);
}

#[test]
fn every_planted_bug_is_noticed_that_shows_while_the_device_fails() {
    every_bug_is_noticed(
        "mlfs-trouble",
        &[NEAR_TROUBLE, OF_THE_VOLUME].concat(),
        troubled_plan_for,
    );
}
