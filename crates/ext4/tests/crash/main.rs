//! Crashes in virtual time: clients work on a disk whose power is cut at its events, and what is
//! found then is judged by e2fsck and by what each client was promised.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod history;
mod judge;
mod model;

use common::{SMALL, SMALL_MIB, mkfs};
use history::{Plan, run};
use manylogs_sim::DiskImage;

/// Crash states that one run of the tests judges at least; `EXT4_STATES` asks for more.
const STATES: u64 = 400;

fn wanted() -> u64 {
    std::env::var("EXT4_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(STATES)
}

/// Images of several kinds; none if they cannot be made here.
fn images() -> Vec<DiskImage> {
    let kinds: [&[&str]; 3] = [
        &["-G", "4"],
        &["-G", "4", "-O", "^metadata_csum,^64bit"],
        &["-O", "^flex_bg", "-I", "128"],
    ];
    let made = kinds.iter().map(|kind| mkfs(SMALL_MIB, &[SMALL, kind].concat()));
    made.collect::<Option<_>>().unwrap_or_default()
}

/// A failure names the seed that repeats it: `EXT4_SEED`.
#[test]
fn what_was_synced_is_there_after_every_crash() {
    let images = images();
    if images.is_empty() {
        return;
    }
    let only = std::env::var("EXT4_SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut states, mut nested, mut seed) = (0, 0, only.unwrap_or(1));
    while states < wanted() {
        let plan = Plan::of_seed(seed);
        let image = &images[manylogs_block::to_usize(seed) % images.len()];
        let report = run(&plan, image).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        states += report.states;
        nested += report.nested;
        seed += 1;
        if only.is_some() {
            break;
        }
    }
    println!("{states} crash states, {nested} nested, {seed} histories");
}

/// The histories that show a bug soonest.
#[cfg(feature = "plant")]
fn plan_for(bug: manylogs_plant::Bug, seed: u64) -> Plan {
    match bug {
        // Long ones bring much home, on a disk that does not flush for one durable write.
        manylogs_plant::Bug::Ext4TailBeforeHome => {
            Plan { seed: 2 * seed, clients: 3, steps: 400, fork_every: 25 }
        }
        _ => Plan::of_seed(seed),
    }
}

/// Prints how many histories each took. Without a bug the same histories hold: that is the other
/// test, which begins with them.
#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_is_noticed() {
    use manylogs_plant::{EXT4, plant};
    let images = images();
    if images.is_empty() {
        return;
    }
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for bug in EXT4 {
        plant(Some(*bug));
        let fails = |seed: &u64| {
            let plan = plan_for(*bug, *seed);
            let caught = std::panic::catch_unwind(|| run(&plan, &images[0]).is_err());
            caught.unwrap_or(true)
        };
        match (1..60).find(fails) {
            Some(seed) => println!("{bug:?}: noticed by history {seed}"),
            None => missed.push(*bug),
        }
        plant(None);
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
