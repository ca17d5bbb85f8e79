//! The file system with its journal near the head on arrays, crashed by the campaign.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use manylogs_torture::ext4::{Templates, has_program};
use manylogs_torture::{Campaign, Ext4Campaign, Progress, System, Tally};

/// Runs the histories of some seeds on arrays; `None`, and a report, if a program is missing.
fn tortured(
    system: System,
    trouble: bool,
    arrays: &[(&str, std::ops::RangeInclusive<u64>)],
) -> Option<Tally> {
    if !["mkfs.ext4", "debugfs", "e2fsck"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4, debugfs and e2fsck");
        return None;
    }
    let images = Templates::make().unwrap();
    let mut all = Tally::default();
    for (array, seeds) in arrays {
        let campaign = Campaign {
            system,
            seeds: seeds.clone(),
            states: None,
            jobs: 2,
            faults: false,
            trouble,
            array: Some(array.parse().unwrap()),
            ext4: Some(Ext4Campaign { images: images.clone(), e2fsck_every: 40, mutate: false }),
        };
        let summary = campaign.run(&Progress::default());
        let (lazy, failing) = (system == System::MlfsLazy, trouble);
        let lazy = if lazy { " --lazy" } else { "" };
        let failing = if failing { " --trouble" } else { "" };
        let repeated =
            format!("manylogs torture --system mlfs{lazy}{failing} --array {array} --seeds N..N");
        assert_eq!(summary.failure, None, "repeat it with: {repeated}");
        assert!(summary.tally.phases.total() > 10, "{array}: {:?}", summary.tally.phases);
        println!("{array}: {:#?}", summary.tally);
        all.add(&summary.tally);
    }
    Some(all)
}

#[test]
fn what_was_synced_is_there_on_arrays_that_lack_members() {
    let arrays = [
        ("raid0:4", 1..=1),
        ("raid1:2", 105..=105),
        ("raid10:4", 203..=204),
        ("raid5:4", 306..=306),
        ("raid6:8", 401..=401),
    ];
    let Some(tally) = tortured(System::Mlfs, false, &arrays) else { return };
    assert!(tally.judged_by_e2fsck > 0 && tally.nested > 0);
    // Arrays resynchronised while the file system was used, and members left.
    for (count, name) in [
        (tally.resyncs, "resynchronisation"),
        (tally.resyncs_ended, "end of one"),
        (tally.members_left, "member that leaves"),
    ] {
        assert!(count > 0, "there is no {name}");
    }
}

#[test]
fn metadata_that_stays_in_the_logs_is_there_on_arrays() {
    tortured(System::MlfsLazy, false, &[("raid10:4", 1..=1), ("raid5:4", 2..=2)]);
}

#[test]
fn what_was_synced_is_there_whatever_members_fail() {
    let arrays = [("raid0:4", 1..=1), ("raid10:4", 101..=101), ("raid5:4", 201..=201)];
    let Some(tally) = tortured(System::Mlfs, true, &arrays) else { return };
    assert!(tally.failed_requests > 0);
}

/// Bugs of arrays and of logs on them that must show below a file system.
#[cfg(feature = "plant")]
#[test]
fn every_bug_of_arrays_is_noticed_below_a_file_system() {
    use crate::common::every_bug_is_noticed;
    use manylogs_plant::Bug;
    use manylogs_torture::ext4::{Ext4Plan, Journal};

    const FIRST: u64 = 9000;
    const BUGS: &[Bug] = &[
        Bug::FlushSkipsMember,
        Bug::PartsNotDurable,
        Bug::MirrorFlushSkipsMember,
        Bug::ParityFlushSkipsMember,
        Bug::RecordsShareRow,
    ];
    let plan_for = |bug: Bug, seed: u64| {
        let array = match bug {
            Bug::MirrorFlushSkipsMember => "raid10:4",
            Bug::ParityFlushSkipsMember | Bug::RecordsShareRow => "raid5:4",
            _ => "raid0:3",
        };
        let plan = Ext4Plan::of_seed(FIRST + seed).with_journal(Journal::Near);
        plan.on(&array.parse().unwrap()).with_e2fsck(0).with_homes(0)
    };
    every_bug_is_noticed("mlfs-array", BUGS, plan_for);
}
