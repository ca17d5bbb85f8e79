//! Volumes with their table in non-volatile RAM: what they promise in any crash, and what becomes
//! of them without that memory.
//!
//! The crashes are power cuts and killed processes at arbitrary instants of virtual time: at events
//! of the disk, and between any two operations on the memory, of which a power cut takes any
//! aligned 8-byte words that are not persisted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod history;
mod losing;

use std::cell::RefCell;
use std::rc::Rc;

use history::{Plan, Tally, run_history};

/// States that `cargo test` must see at least; `MANYLOGS_STATES` asks for more.
const STATES: u64 = 6000;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost_in_any_crash() {
    let tally = Rc::new(RefCell::new(Tally::default()));
    if let Some(seed) = number_from_env("MANYLOGS_SEED") {
        return run_history(&Plan::of_seed(seed), &tally);
    }
    let wanted = number_from_env("MANYLOGS_STATES").unwrap_or(STATES);
    let mut seed = number_from_env("MANYLOGS_FIRST_SEED").unwrap_or(0);
    while tally.borrow().states < wanted {
        run_history(&Plan::of_seed(seed), &tally);
        seed += 1;
    }
    println!("{:?}", tally.borrow());
    tally.borrow().assert_covers_everything();
}

/// Every planted bug must be noticed; prints how many histories it took.
#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_is_caught() {
    use manylogs::plant::{NVRAM_BUGS, plant};
    const PATIENCE: u64 = 1000;
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for bug in NVRAM_BUGS {
        plant(Some(bug));
        let caught = (0..PATIENCE).find(|seed| {
            let history = || run_history(&Plan::of_seed(5000 + seed), &Rc::default());
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
