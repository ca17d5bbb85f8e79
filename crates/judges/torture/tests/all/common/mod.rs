//! Planting bugs, and running histories until one is noticed.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_plant::{Bug, plant};
use manylogs_torture::ext4::{Ext4Plan, Images, Templates, has_program};
use manylogs_torture::run_ext4;

/// Histories after which a bug counts as missed.
const PATIENCE: u64 = 1000;

/// Plants each bug, and runs the histories that `plan_for` makes of it until one does not hold.
pub(crate) fn every_bug_is_noticed(bugs: &[Bug], plan_for: fn(Bug, u64) -> Ext4Plan) {
    if !["mkfs.ext4", "debugfs"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4 and debugfs");
        return;
    }
    let problem = |bug: Bug, seed: u64, images: &Images| {
        run_ext4(&plan_for(bug, seed), images).err().map(|violation| violation.to_string())
    };
    let templates = Templates::make().unwrap();
    // A panic in a history is one way of noticing.
    std::panic::set_hook(Box::new(|_| ()));
    let (wrong, next) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let images = templates.images().unwrap();
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
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
