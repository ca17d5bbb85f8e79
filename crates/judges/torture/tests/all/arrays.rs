//! Crash histories of volumes on arrays, and bugs planted there.

use manylogs_torture::{Campaign, Plan, Progress, System, run_plan};

const FIRST: u64 = 9000;

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
    use manylogs_plant::{ARRAY, plant};

    const PATIENCE: u64 = 200;
    let plan = |seed: u64| Plan::plain(seed).on_raid0(3);
    for seed in FIRST..FIRST + 3 {
        assert_eq!(run_plan(&plan(seed), false).err(), None, "without a bug: {seed}");
    }
    // A panic in a history is one way of noticing.
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for bug in ARRAY {
        plant(Some(*bug));
        let caught = (0..PATIENCE).find(|seed| run_plan(&plan(FIRST + seed), false).is_err());
        plant(None);
        match caught {
            Some(seed) => println!("{bug:?}: caught by history {}", seed + 1),
            None => missed.push(*bug),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not noticed in {PATIENCE} histories: {missed:?}");
}
