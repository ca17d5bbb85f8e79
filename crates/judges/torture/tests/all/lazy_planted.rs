//! Bugs planted in a journal that keeps its transactions. The campaign must notice each bug, or it
//! proves nothing.

#![cfg(feature = "plant")]

use crate::common::every_bug_is_noticed;
use manylogs_plant::{Bug, LAZY};
use manylogs_torture::ext4::{Ext4Plan, Journal};

const FIRST: u64 = 11_000;

/// Bugs of the file system that these histories must show as well.
const OTHERS: &[Bug] = &[
    Bug::Ext4CommitWithoutFlush,
    Bug::Ext4RevokeForgotten,
    Bug::Ext4ReuseBeforeDurable,
    Bug::Ext4SyncNotAwaited,
    Bug::Ext4OrphansNotEnded,
    Bug::Ext4ReplayIgnoresRevokes,
    Bug::LazyDamageIsTail,
    Bug::LazyLossNotTold,
    Bug::LazyRepairNotNoted,
];

/// Histories of any kind. e2fsck is not needed to notice these bugs.
fn plan_for(bug: Bug, seed: u64) -> Ext4Plan {
    let plan = Ext4Plan::of_seed(FIRST + seed).with_e2fsck(0);
    match bug {
        Bug::ArrangeRenewsHome => plan.arranging(),
        _ => plan.with_journal(Journal::Lazy),
    }
}

/// Prints what was noticed of each. `LazyRenewsFreed` is left out: in these histories blocks are in
/// memory while they are freed, and are not renewed then. `freed_meanwhile.rs` in
/// `crates/filesystems/ext4/tests/all` shows it.
#[test]
fn every_planted_bug_of_a_journal_that_keeps_what_it_holds_is_noticed() {
    let shown = |bug: &Bug| *bug != Bug::LazyRenewsFreed;
    let bugs: Vec<Bug> = [LAZY, OTHERS].concat().into_iter().filter(shown).collect();
    every_bug_is_noticed("lazy", &bugs, plan_for);
}
