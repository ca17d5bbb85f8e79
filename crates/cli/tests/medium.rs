//! The whole program over a disk that loses power: the medium must hold what clients were promised.
//! See `crates/judges/medium`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::served::{MANYLOGS, can_serve};
use manylogs_medium::History;

/// Crash states that `make test` checks; MEDIUM_STATES sets another number.
const STATES: u64 = 400;
const FIRST: u64 = 1;

fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The seeds to run, and the number of states after which to stop.
fn wanted() -> (Range<u64>, u64) {
    if let Some(seed) = of_environment("MEDIUM_SEED") {
        let seed: u64 = seed.parse().expect("MEDIUM_SEED is a number");
        return (seed..seed + 1, u64::MAX);
    }
    let states = of_environment("MEDIUM_STATES").map(|states| states.parse());
    let states = states.transpose().expect("MEDIUM_STATES is a number").unwrap_or(STATES);
    (FIRST..u64::MAX, states)
}

#[test]
fn what_the_medium_holds_after_a_power_cut_is_what_was_promised() {
    if !can_serve(true) {
        return;
    }
    let (seeds, enough) = wanted();
    let (next, states, histories) =
        (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicU64::new(0));
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while states.load(Ordering::Relaxed) < enough && problems.lock().unwrap().is_empty()
                {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    match History::of_seed(seed).run(Path::new(MANYLOGS)) {
                        Ok(report) => {
                            histories.fetch_add(1, Ordering::Relaxed);
                            states.fetch_add(report.states, Ordering::Relaxed);
                        }
                        Err(problem) => problems.lock().unwrap().push(format!(
                            "{problem}\nAgain, though threads may interleave otherwise: \
                             MEDIUM_SEED={seed} cargo test -p manylogs-cli --test medium"
                        )),
                    }
                }
            });
        }
    });
    let (states, histories) = (states.into_inner(), histories.into_inner());
    println!("{states} crash states of {histories} histories hold");
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
