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
