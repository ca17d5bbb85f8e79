//! Bugs planted in the volume: the campaign must notice each, or it proves nothing.

#![cfg(feature = "plant")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_plant::{Bug, KEPT, NVRAM, VOLUME, plant};
use manylogs_torture::{Plan, run_plan};

/// Histories after which a bug counts as missed.
const PATIENCE: u64 = 400;
const FIRST: u64 = 5000;

/// A bug, the plans of the histories that may show it, and whether images are damaged too.
struct Case {
    bug: Bug,
    plan: fn(u64) -> Plan,
    faults: bool,
}

fn cases() -> Vec<Case> {
    let of_volume =
        |bug: &Bug| Case { bug: *bug, plan: plan_for(*bug), faults: is_for_faults(*bug) };
    let with_nvram: fn(u64) -> Plan = |seed| Plan::plain(seed).with_nvram();
    let of_nvram = |bug: &Bug| Case { bug: *bug, plan: with_nvram, faults: false };
    let keeping: fn(u64) -> Plan = |seed| Plan::plain(seed).keeping();
    let of_kept = |bug: &Bug| Case { bug: *bug, plan: keeping, faults: false };
    let volume = VOLUME.iter().map(of_volume);
    volume.chain(NVRAM.iter().map(of_nvram)).chain(KEPT.iter().map(of_kept)).collect()
}

/// The histories that show a bug soonest.
fn plan_for(bug: Bug) -> fn(u64) -> Plan {
    match bug {
        Bug::RootHalfWritten
        | Bug::FailedFlushTakesWrites
        | Bug::FailedRecordSettled
        | Bug::KeptDropped => |seed| Plan::plain(seed).with_trouble().sparse(),
        Bug::TransientIsLoss | Bug::FloorOverUnread | Bug::LostForgotten => {
            |seed| Plan::plain(seed).with_passing_trouble().sparse()
        }
        Bug::RenewOverNewer | Bug::ZeroesTakenForGranted => {
            |seed| Plan::plain(seed).zeroing_long_ranges()
        }
        Bug::BandWithoutLock => |seed| Plan::plain(seed).banded().sparse(),
        Bug::ZeroesTornSectors => {
            |seed| Plan::plain(seed).zeroing_long_ranges().on_large_sectors().forked_everywhere()
        }
        Bug::FailedRunForgotten => |seed| Plan::plain(seed).with_trouble().writing_runs().sparse(),
        Bug::RunOverOlderVersion | Bug::RunOverNewerVersion | Bug::RunNotAwaited => {
            |seed| Plan::plain(seed).writing_runs()
        }
        Bug::RateNotHurried => |seed| Plan::plain(seed).rate_limited().sparse(),
        Bug::SettingsInOneCopy => |seed| Plan::plain(seed).setting(),
        Bug::GrowTakesHome => |seed| Plan::plain(seed).growing(),
        Bug::DiscardNotDurable => |seed| Plan::plain(seed).discarding_durably(),
        _ => Plan::plain,
    }
}

/// Bugs that do nothing while the medium keeps what it is given.
fn is_for_faults(bug: Bug) -> bool {
    matches!(bug, Bug::LogReadNotVerified | Bug::SettingsInOneCopy)
}

/// Prints how many histories each took.
#[test]
fn every_planted_bug_is_caught() {
    // Without a bug the same histories hold.
    for Case { bug, plan, faults } in cases() {
        let holds = run_plan(&plan(FIRST), faults).err();
        assert_eq!(holds, None, "without {bug:?}");
    }
    // A panic in a history is one way of noticing.
    std::panic::set_hook(Box::new(|_| ()));
    let (mut cases, missed) = (cases(), Mutex::new(Vec::new()));
    // PLANTED=Zeroes tries the bugs with that in their names.
    if let Ok(part) = std::env::var("PLANTED") {
        cases.retain(|case| format!("{:?}", case.bug).contains(&part));
        assert!(!cases.is_empty(), "no bug is called {part}");
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Case { bug, plan, faults } = case;
                    plant(Some(*bug));
                    let caught =
                        (0..PATIENCE).find(|seed| run_plan(&plan(FIRST + seed), *faults).is_err());
                    plant(None);
                    match caught {
                        Some(seed) => println!("{bug:?}: caught by history {}", seed + 1),
                        None => missed.lock().unwrap().push(*bug),
                    }
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not noticed in {PATIENCE} histories: {missed:?}");
}
