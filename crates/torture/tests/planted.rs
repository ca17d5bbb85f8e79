//! Bugs planted in the engine: the campaign must notice each, or it proves nothing.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs::plant::{BUGS, plant};
use manylogs_torture::run_seed;

/// Histories after which a bug counts as missed.
const PATIENCE: u64 = 400;
const FIRST: u64 = 5000;

/// Prints how many histories each took.
#[test]
fn every_planted_bug_is_caught() {
    // Without a bug the same histories hold.
    (0..50).for_each(|seed| assert!(run_seed(FIRST + seed, false).is_ok(), "{seed}"));
    // A panic in a history is one way of noticing.
    std::panic::set_hook(Box::new(|_| ()));
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(bug) = BUGS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    plant(Some(*bug));
                    let caught = (0..PATIENCE).find(|seed| run_seed(FIRST + seed, false).is_err());
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
