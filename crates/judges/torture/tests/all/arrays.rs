//! Crash histories of volumes on arrays, and bugs planted there.

use manylogs_torture::{Campaign, Progress, System};

#[test]
fn nothing_is_lost_on_arrays_of_two_to_five() {
    for (members, first) in [(2, 1), (3, 101), (4, 201), (5, 301)] {
        let campaign = Campaign {
            system: System::Volume,
            seeds: first..=first + 1,
            states: None,
            jobs: 2,
            faults: false,
            trouble: false,
            members: Some(members),
            ext4: None,
        };
        let summary = campaign.run(&Progress::default());
        let repeated = format!("manylogs torture --array raid0:{members} --seeds");
        assert_eq!(summary.failure, None, "repeat it with: {repeated} SEED..SEED");
        assert!(summary.tally.phases.total() > 40, "{:?}", summary.tally.phases.total());
    }
}

#[cfg(feature = "plant")]
#[test]
fn every_bug_planted_on_arrays_is_caught() {
    use crate::common::Hunt;
    use manylogs_plant::ARRAY;
    use manylogs_torture::{Plan, run_plan};

    const FIRST: u64 = 9000;
    let hunt = Hunt { histories: "array", bugs: ARRAY, patience: 200 };
    hunt.run(|| (), |_, seed, ()| run_plan(&Plan::plain(FIRST + seed).on_raid0(3), false));
}
