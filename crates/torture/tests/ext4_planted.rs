//! Bugs planted in the file system ext4: the campaign must notice each, or it proves nothing.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_plant::{Bug, EXT4, plant};
use manylogs_torture::ext4::{Ext4Plan, Images, Shape, Templates, has_program};
use manylogs_torture::run_ext4;

/// Histories after which a bug counts as missed.
const PATIENCE: u64 = 1000;
const FIRST: u64 = 7000;

/// The histories that show a bug soonest; e2fsck is not needed to notice any.
fn plan_for(bug: Bug, seed: u64) -> Ext4Plan {
    let plan = match bug {
        // On a disk that does not flush for one durable write.
        Bug::Ext4TailBeforeHome => Ext4Plan::of_seed(2 * seed).long(),
        Bug::Ext4SplitLosesName => Ext4Plan::shaped(seed, Shape::ManyNames),
        Bug::Ext4PieceLost => Ext4Plan::shaped(seed, Shape::Scattered),
        _ => Ext4Plan::of_seed(seed),
    };
    plan.with_e2fsck(0)
}

/// Why a history of the bug does not hold.
fn problem(bug: Bug, seed: u64, images: &Images) -> Option<String> {
    run_ext4(&plan_for(bug, FIRST + seed), images).err().map(|violation| violation.to_string())
}

/// Prints how many histories each took, and what was noticed.
#[test]
fn every_planted_bug_of_ext4_is_noticed() {
    if !has_program("mkfs.ext4") {
        eprintln!("skipped: needs mkfs.ext4");
        return;
    }
    let templates = Templates::make().unwrap();
    // A panic in a history is one way of noticing.
    std::panic::set_hook(Box::new(|_| ()));
    let (wrong, next) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let images = templates.images().unwrap();
                while let Some(bug) = EXT4.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Without a bug the same history holds.
                    if let Some(problem) = problem(*bug, 0, &images) {
                        wrong.lock().unwrap().push(format!("without {bug:?}: {problem}"));
                    }
                    plant(Some(*bug));
                    let found = |seed| Some((seed, problem(*bug, seed, &images)?));
                    let noticed = (0..PATIENCE).find_map(found);
                    plant(None);
                    match noticed {
                        Some((seed, problem)) => {
                            let first = problem.lines().next().unwrap_or("");
                            println!("{bug:?}: noticed by history {}: {first}", seed + 1);
                        }
                        None => wrong.lock().unwrap().push(format!("{bug:?} is not noticed")),
                    }
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
