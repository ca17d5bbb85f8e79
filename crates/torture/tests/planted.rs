//! Bugs planted in the engine: the campaign must notice each, or it proves nothing.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_plant::{Bug, NVRAM, VOLUME, plant};
use manylogs_torture::{Plan, run_plan};

/// Histories after which a bug counts as missed.
const PATIENCE: u64 = 400;
const FIRST: u64 = 5000;

/// A bug, and the plans of the histories that may show it.
type Case = (Bug, fn(u64) -> Plan);

fn cases() -> Vec<Case> {
    let of_any = |bug: &Bug| match *bug {
        Bug::RootHalfWritten => (*bug, troubled as fn(u64) -> Plan),
        _ => (*bug, Plan::of_seed as fn(u64) -> Plan),
    };
    let of_nvram = |bug: &Bug| (*bug, in_nvram as fn(u64) -> Plan);
    VOLUME.iter().map(of_any).chain(NVRAM.iter().map(of_nvram)).collect()
}

fn in_nvram(seed: u64) -> Plan {
    Plan::of_seed(seed).with_nvram()
}

fn troubled(seed: u64) -> Plan {
    Plan::of_seed(seed).with_trouble()
}

/// Prints how many histories each took.
#[test]
fn every_planted_bug_is_caught() {
    // Without a bug the same histories hold.
    for plan in [Plan::of_seed, in_nvram, troubled] {
        (FIRST..FIRST + 50).for_each(|seed| assert_eq!(run_plan(&plan(seed), false).err(), None));
    }
    // A panic in a history is one way of noticing.
    std::panic::set_hook(Box::new(|_| ()));
    let (cases, missed) = (cases(), Mutex::new(Vec::new()));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((bug, plan)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    plant(Some(*bug));
                    let caught =
                        (0..PATIENCE).find(|seed| run_plan(&plan(FIRST + seed), false).is_err());
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
