//! Bugs planted in the whole program: the judge over the disk must notice each.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::served::{MANYLOGS, can_serve};
use manylogs_medium::{Below, Failure, FrontEnd, History, Stack};

/// Crash states, and histories (which may have none), after which a bug counts as missed. The
/// threads of the real program run as the machine schedules them, so that no seed certainly shows a
/// bug. Most bugs are noticed after less than a hundred states, a few after several hundred.
const PATIENCE: u64 = 3000;
const HISTORIES: u64 = 300;
const FIRST: u64 = 1_000_000;

/// A bug, and the changes to a seed's stack that may make it show.
type Case = (&'static str, fn(Stack) -> Stack);

const RING: fn(Stack) -> Stack = |stack| Stack { ring: true, ..stack };
const THREADS: fn(Stack) -> Stack = |stack| Stack { ring: false, ..stack };
const NBD: fn(Stack) -> Stack = |stack| Stack { front_end: FrontEnd::Nbd, ..stack };
/// Of the devices below, a file has the cache that loses most.
const NBD_ON_FILE: fn(Stack) -> Stack =
    |stack| Stack { front_end: FrontEnd::Nbd, below: Below::File512, ..stack };
const FILE: fn(Stack) -> Stack = |stack| Stack { front_end: FrontEnd::File, ..stack };

const CASES: &[Case] = &[
    ("RingIgnoresFua", RING),
    ("PoolIgnoresFua", THREADS),
    ("RingSkipsSync", RING),
    ("PoolSkipsSync", THREADS),
    ("FileTakenForDurable", |stack| Stack { below: Below::File512, ..stack }),
    ("NbdFlushSkipped", NBD),
    ("NbdFuaIgnored", NBD),
    ("NbdPartsFuaIgnored", NBD),
    ("NbdZeroFuaIgnored", NBD),
    ("NbdTrimFuaIgnored", NBD),
    ("NbdTrimRoundedOutwards", NBD),
    ("NbdPartsWithoutGate", NBD),
    ("FuseFsyncSkipped", FILE),
    ("FuseDsyncIgnored", FILE),
    // Some of the volume's bugs, seen through all layers.
    ("AckBeforeRecord", NBD),
    ("FlushSkipsBuffer", NBD),
    ("FlushSkipsDevice", NBD_ON_FILE),
    ("NoSupersede", NBD),
    ("FloorBeforeHomeDurable", NBD_ON_FILE),
    ("DiscardNotLogged", NBD),
];

/// The number of states until the bug was noticed, and the finding; `None` if it was missed.
fn hunt((bug, with): Case) -> Option<(u64, String)> {
    let mut states = 0;
    for seed in FIRST..FIRST + HISTORIES {
        let plain = History::of_seed(seed);
        let stack = with(plain.stack);
        let history = History { stack, plant: Some(bug.to_owned()), ..plain };
        match history.run(Path::new(MANYLOGS)) {
            Ok(report) => states += report.states,
            Err(Failure::Wrong(problem)) => return Some((states, problem)),
            Err(failure) => panic!("{bug}: {failure}"),
        }
        if states > PATIENCE {
            return None;
        }
    }
    None
}

#[test]
fn every_planted_bug_that_can_show_at_the_medium_is_noticed() {
    if !can_serve(true) {
        return;
    }
    let only = std::env::var("MEDIUM_PLANT").ok();
    let is_wanted = |case: &&Case| only.as_ref().is_none_or(|only| case.0 == only);
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match hunt(**case) {
                        Some((states, problem)) => {
                            println!("{}: noticed after {states} states: {problem}", case.0);
                        }
                        None => missed.lock().unwrap().push(case.0),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(
        missed.is_empty(),
        "not noticed in {PATIENCE} crash states: {missed:?}. One of them again: MEDIUM_PLANT=Name \
         cargo test -p manylogs-cli --features plant --test medium_planted -- --nocapture"
    );
}
