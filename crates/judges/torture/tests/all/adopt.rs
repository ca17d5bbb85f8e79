//! File systems that MLFS takes over and gives back are crashed on the way.

use manylogs_torture::ext4::{Templates, has_program};
use manylogs_torture::{Campaign, Ext4Campaign, Progress, System};

/// Number of crash states that a test run must see at least.
const STATES: u64 = 1500;

#[test]
fn no_file_is_lost_on_the_way_to_mlfs_and_back() {
    if !has_program("mkfs.ext4") || !has_program("e2fsck") {
        manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
        return;
    }
    let campaign = Campaign {
        system: System::Adopt,
        seeds: 1..=u64::MAX - 1,
        states: Some(STATES),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        faults: false,
        trouble: false,
        array: None,
        ext4: Some(Ext4Campaign {
            images: Templates::make().unwrap(),
            e2fsck_every: 20,
            mutate: false,
        }),
    };
    let summary = campaign.run(&Progress::default());
    for (phase, states) in summary.tally.phases.iter().filter(|(_, states)| *states > 0) {
        println!("{}: {states}", phase.name());
    }
    assert_eq!(summary.failure, None);
    let of_each: Vec<u64> = summary
        .tally
        .phases
        .iter()
        .map(|(_, states)| states)
        .filter(|states| *states > 0)
        .collect();
    assert_eq!(of_each.len(), 4, "taking over, using, giving back, and going on are crashed");
    assert!(of_each.iter().all(|states| *states >= STATES / 20), "{of_each:?}");
    assert!(summary.tally.judged_by_e2fsck >= STATES / 50);
}
