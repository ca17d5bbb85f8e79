//! Histories with versions that are kept in the logs.

use manylogs_torture::{Plan, run_plan};

/// Number of states that each thread of a test run must see at least.
const STATES: usize = 2500;
const THREADS: u64 = 2;

fn states_of(seed: u64) -> usize {
    let report = run_plan(&Plan::of_seed(seed).keeping(), false);
    let again = format!("repeat: KEEPING={seed} cargo test --test all keeping");
    report.unwrap_or_else(|problem| panic!("{problem}\n{again}")).states.len()
}

#[test]
fn nothing_that_is_kept_is_lost_and_nothing_old_rises() {
    if let Ok(seed) = std::env::var("KEEPING") {
        states_of(seed.parse().unwrap());
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let (mut states, mut seed) = (0, 1 + thread);
                while states < STATES {
                    states += states_of(seed);
                    seed += THREADS;
                }
            });
        }
    });
}
