//! Power cuts and killed processes at arbitrary instants, in virtual time.
//!
//! A history runs clients against a tiny volume on a simulated disk. At its events the world is
//! forked: the disk loses its power there (any subset of unflushed sectors survives, multi-sector
//! writes torn) or its user is killed, the volume is recovered, from its snapshot and from the
//! logs alone, and every sector is compared with what the rules allow. At its end the history
//! suffers the crash itself, recovers, and goes on.

mod history;
mod recovery;

use history::{Plan, Tally, run_history};

/// States that `cargo test` must see at least; `MANYLOGS_STATES` asks for more.
const STATES: u64 = 12_000;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost_in_any_crash() {
    let mut tally = Tally::default();
    if let Some(seed) = number_from_env("MANYLOGS_SEED") {
        run_history(&Plan::of_seed(seed), &mut tally);
        println!("seed {seed}: {} distinct crash states", tally.states.len());
        return;
    }
    let wanted = number_from_env("MANYLOGS_STATES").unwrap_or(STATES);
    let first = number_from_env("MANYLOGS_FIRST_SEED").unwrap_or(0);
    let mut histories = 0;
    while (tally.states.len() as u64) < wanted {
        run_history(&Plan::of_seed(first + histories), &mut tally);
        histories += 1;
    }
    let states = std::mem::take(&mut tally.states).len();
    println!("{states} distinct crash states in {histories} histories; {tally:?}");
    tally.assert_covers_everything();
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let run = |seed| {
        let mut tally = Tally::default();
        run_history(&Plan::of_seed(seed), &mut tally);
        tally.states
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

/// Every planted bug must be noticed; prints how many histories it took.
#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_is_caught() {
    use manylogs::plant::{BUGS, plant};
    const PATIENCE: u64 = 400;
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for bug in BUGS {
        plant(Some(bug));
        let first = 5000;
        let caught = (0..PATIENCE).find(|seed| {
            let history = || run_history(&Plan::of_seed(first + seed), &mut Tally::default());
            std::panic::catch_unwind(history).is_err()
        });
        plant(None);
        match caught {
            Some(seed) => println!("{bug:?}: caught by history {}", seed + 1),
            None => missed.push(bug),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not noticed in {PATIENCE} histories: {missed:?}");
}
