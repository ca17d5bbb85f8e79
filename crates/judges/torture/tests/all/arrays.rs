//! Crash histories of volumes on arrays, and bugs planted there.

use manylogs_torture::{Campaign, Progress, System};

#[test]
fn nothing_is_lost_on_arrays() {
    let (mut resyncs, mut ended, mut left) = (0, 0, 0);
    let (mut fillings, mut filled) = (0, 0);
    // Those with parity have several times as many states.
    for (array, seeds) in [
        ("raid0:2", 1..=2),
        ("raid0:3", 101..=102),
        ("raid0:4", 201..=202),
        ("raid0:5", 301..=302),
        // A table in non-volatile RAM, which keeps some bytes for each log of each column.
        ("raid0:4", 3_000_009..=3_000_009),
        ("raid10:4", 401..=402),
        ("raid10:4", 3_000_009..=3_000_009),
        ("raid10:6", 501..=502),
        ("raid1:2", 601..=602),
        ("raid1:3", 701..=702),
        ("raid5:3", 801..=801),
        ("raid5:4", 901..=901),
        ("raid6:5", 1001..=1001),
        ("raid6:8", 1101..=1101),
    ] {
        let campaign = Campaign {
            system: System::Volume,
            seeds,
            states: None,
            jobs: 2,
            faults: false,
            trouble: false,
            array: Some(array.parse().unwrap()),
            ext4: None,
        };
        let summary = campaign.run(&Progress::default());
        let repeated = format!("manylogs torture --array {array} --seeds SEED..SEED");
        assert_eq!(summary.failure, None, "repeat it with: {repeated}");
        assert!(summary.tally.phases.total() > 40, "{:?}", summary.tally.phases.total());
        resyncs += summary.tally.resyncs;
        ended += summary.tally.resyncs_ended;
        left += summary.tally.members_left;
        fillings += summary.tally.fillings;
        filled += summary.tally.fillings_ended;
    }
    // Arrays resynchronised while they were used, and members left.
    assert!(ended > 0 && resyncs > ended && left > 0, "{resyncs}, {ended}, {left}");
    // New members were filled, some of them to the end.
    assert!(filled > 0 && fillings >= filled, "{fillings}, {filled}");
}

#[test]
fn members_that_fail_are_borne() {
    for (array, seeds) in
        [("raid0:4", 801..=840), ("raid10:4", 601..=640), ("raid1:2", 1..=40), ("raid1:3", 41..=80)]
            .into_iter()
            // An array with parity fails requests as a whole, and in part.
            .chain([("raid5:4", 3_000_000..=3_000_015)])
    {
        let campaign = Campaign {
            system: System::Volume,
            seeds,
            states: None,
            jobs: 2,
            faults: false,
            trouble: true,
            array: Some(array.parse().unwrap()),
            ext4: None,
        };
        let summary = campaign.run(&Progress::default());
        let repeated = format!("manylogs torture --trouble --array {array} --seeds SEED..SEED");
        assert_eq!(summary.failure, None, "repeat it with: {repeated}");
        assert!(summary.tally.failed_requests > 20, "{array}: {}", summary.tally.failed_requests);
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

#[cfg(feature = "plant")]
#[test]
fn every_bug_planted_on_arrays_with_copies_is_caught() {
    use crate::common::Hunt;
    use manylogs_plant::{Bug, COPIES};
    use manylogs_torture::{Plan, run_plan};

    const FIRST: u64 = 9000;
    let plan_for = |bug: Bug, seed: u64| {
        let plan = Plan::plain(FIRST + seed);
        match bug {
            // Shown only if clients write between an opening and the loss of the drives it read.
            Bug::StructuresNotInDoubt => plan.on_raid1(2).in_short_lives(),
            _ => plan.on_raid10(4),
        }
    };
    let hunt = Hunt { histories: "copies", bugs: COPIES, patience: 1000 };
    hunt.run(|| (), |bug, seed, ()| run_plan(&plan_for(bug, seed), false));
}

#[cfg(feature = "plant")]
#[test]
fn every_bug_planted_on_arrays_with_parity_is_caught() {
    use crate::common::Hunt;
    use manylogs_plant::{Bug, PARITY};
    use manylogs_torture::{Plan, run_plan};

    const FIRST: u64 = 9000;
    const TORN: u64 = 1102;
    let plan_for = |bug: Bug, seed: u64| {
        match bug {
            // A log must begin anew over records that are not below the floor.
            Bug::TornRowIsDamage => Plan::of_seed(TORN + seed).on_parity(8, 2),
            _ => Plan::plain(FIRST + seed).on_parity(4, 1),
        }
    };
    let hunt = Hunt { histories: "parity", bugs: PARITY, patience: 1000 };
    hunt.run(|| (), |bug, seed, ()| run_plan(&plan_for(bug, seed), false));
}

#[cfg(feature = "plant")]
#[test]
fn every_bug_planted_in_a_closed_write_hole_is_caught() {
    use crate::common::Hunt;
    use manylogs_plant::HOLE;
    use manylogs_torture::{Plan, run_plan};

    const FIRST: u64 = 9000;
    let hunt = Hunt { histories: "hole", bugs: HOLE, patience: 1000 };
    hunt.run(
        || (),
        |_, seed, ()| run_plan(&Plan::plain(FIRST + seed).on_parity(4, 1).closing_hole(), false),
    );
}

#[cfg(feature = "plant")]
#[test]
fn every_bug_planted_in_an_array_that_changes_in_use_is_caught() {
    use crate::common::Hunt;
    use manylogs_plant::{Bug, RESYNC};
    use manylogs_torture::{Plan, run_plan};

    const FIRST: u64 = 9000;
    let plan_for = |bug: Bug, seed: u64| {
        let plan = Plan::plain(FIRST + seed);
        match bug {
            Bug::ResyncOvertakesWrite if seed.is_multiple_of(2) => plan.on_parity(4, 1).resyncing(),
            Bug::ResyncOvertakesWrite | Bug::MirrorReadBeforeResync => {
                plan.on_raid10(4).resyncing()
            }
            Bug::LostReadTakenAsZeroes => plan.on_parity(4, 1).losing_members(),
            _ => plan.on_parity(4, 1),
        }
    };
    let hunt = Hunt { histories: "resync", bugs: RESYNC, patience: 1000 };
    hunt.run(|| (), |bug, seed, ()| run_plan(&plan_for(bug, seed), false));
}

#[cfg(feature = "plant")]
#[test]
fn every_bug_planted_in_an_array_that_fills_new_members_is_caught() {
    use crate::common::Hunt;
    use manylogs_plant::{Bug, FILLING};
    use manylogs_torture::{Plan, run_plan};

    type OnArray = fn(Plan) -> Plan;
    const FIRST: u64 = 9000;
    // Each bug must show on every level that can fill a member.
    let levels: [(&str, OnArray); 3] = [
        ("filling-10", |plan| plan.on_raid10(4)),
        ("filling-5", |plan| plan.on_parity(4, 1)),
        ("filling-6", |plan| plan.on_parity(6, 2)),
    ];
    for (histories, on) in levels {
        let plan_for = |_: Bug, seed| on(Plan::plain(FIRST + seed)).filling_members();
        let hunt = Hunt { histories, bugs: FILLING, patience: 1000 };
        hunt.run(|| (), |bug, seed, ()| run_plan(&plan_for(bug, seed), false));
    }
}
