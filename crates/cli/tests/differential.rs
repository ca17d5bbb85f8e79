//! The same random system calls on the kernel's ext4 and on ours: their answers, and the files
//! after them, must be the same. `make differential` runs many seeds.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "differential/call.rs"]
mod call;
mod common;
#[path = "differential/known.rs"]
mod known;
#[path = "differential/make.rs"]
mod make;
#[path = "differential/perform.rs"]
mod perform;
#[path = "differential/run.rs"]
mod run;
#[path = "differential/seen.rs"]
mod seen;
#[path = "differential/tree.rs"]
mod tree;
#[path = "differential/worlds.rs"]
mod worlds;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use call::{Call, Step, User};
use common::image::can_mount;
use make::Maker;
use run::{Difference, Run};
use worlds::{KINDS, Worlds};

/// Most attempts to find a shorter sequence.
const ATTEMPTS_MOST: u32 = 400;

/// Held by a test that makes calls: calls change the umask, which belongs to the process.
static CALLS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // A failed test does no harm: each sequence begins with its own umask.
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number from the environment.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The numbers of the only calls to make, if the environment names some.
fn only() -> Option<BTreeSet<u64>> {
    let text = std::env::var("DIFFERENTIAL_ONLY").ok().filter(|text| !text.is_empty())?;
    Some(text.split(',').map(|number| number.parse().unwrap()).collect())
}

/// Runs these steps. Returns the differences, each kind once, and ends at one after which the
/// worlds stay different.
fn differences(worlds: &mut Worlds, name: &str, steps: &[Step]) -> Vec<Difference> {
    let mut run = Run::new(worlds, name);
    let (mut found, mut seen) = (Vec::<Difference>::new(), BTreeSet::new());
    for step in steps {
        let here = run.step(step);
        let ends = here.iter().any(Difference::is_lasting);
        found.extend(here.into_iter().filter(|differs| seen.insert(differs.signature())));
        if ends {
            return found;
        }
    }
    let last = steps.last().unwrap();
    let last = Step { number: last.number, user: User::Root, held: false, call: Call::Remount };
    found.extend(run.step(&last));
    found
}

/// Finds fewer of these steps that show the same difference.
fn shrink(worlds: &mut Worlds, mut steps: Vec<Step>, wanted: &str) -> Vec<Step> {
    let (mut attempts, mut chunk) = (0, steps.len() / 2);
    while chunk > 0 && attempts < ATTEMPTS_MOST {
        let mut at = 0;
        while at < steps.len() && attempts < ATTEMPTS_MOST {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            attempts += 1;
            let mut run = Run::new(worlds, &format!("shrink {attempts}"));
            let same = |found: &Difference| found.signature() == wanted;
            if fewer.iter().any(|step| run.step(step).iter().any(same)) {
                steps = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    steps
}

/// Runs a seed, prints all differences, and returns the number of their kinds.
fn judge(seed: u64, calls: u64) -> Option<usize> {
    let kind = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
    let mut worlds = Worlds::new(kind, None)?;
    let only = only();
    let is_wanted = |step: &Step| only.as_ref().is_none_or(|only| only.contains(&step.number));
    let calls = usize::try_from(calls).unwrap();
    let steps: Vec<_> = Maker::new(seed).take(calls).filter(is_wanted).collect();
    let found = differences(&mut worlds, "run", &steps);
    eprintln!("seed {seed}, {kind:?}: {} differences, meant: {:?}", found.len(), known::counts());
    for difference in &found {
        let most = difference.step.number;
        eprintln!("  {difference}");
        eprintln!("    again: make differential SEED={seed} SEEDS=1 CALLS={most}");
    }
    if asked("DIFFERENTIAL_SHRINK") == Some(1) {
        for difference in &found {
            let last = difference.step.number;
            let until: Vec<_> = steps.iter().filter(|s| s.number <= last).cloned().collect();
            let mut worlds = Worlds::new(kind, None)?;
            let fewer = shrink(&mut worlds, until, &difference.signature());
            eprintln!("  {}", difference.signature());
            let numbers: Vec<_> = fewer.iter().map(|step| step.number.to_string()).collect();
            for step in &fewer {
                eprintln!("    {:?}: {:?}", step.user, step.call);
            }
            let numbers = numbers.join(",");
            eprintln!("    again: make differential SEED={seed} SEEDS=1 ONLY={numbers}");
        }
    }
    if found.is_empty() {
        worlds.check();
    }
    Some(found.len())
}

#[test]
fn system_calls_do_what_they_do_on_the_kernels_ext4() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let first = asked("DIFFERENTIAL_SEED").unwrap_or(1);
    let seeds = asked("DIFFERENTIAL_SEEDS").unwrap_or(2);
    let calls = asked("DIFFERENTIAL_CALLS").unwrap_or(1000);
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        match judge(seed, calls) {
            None => return,
            Some(0) => {}
            Some(_) => failed.push(seed),
        }
    }
    assert!(failed.is_empty(), "differences with the seeds {failed:?}");
}

#[cfg(feature = "plant")]
#[test]
fn slips_that_are_planted_are_noticed() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let steps: Vec<_> = Maker::new(7).take(4000).collect();
    for (bug, noticed) in [
        ("Ext4AllocationTimeless", "Allocate: mtime moved"),
        ("Ext4SetGidKept", "mode: "),
        ("Ext4XattrWrongError", "RemoveXattr: "),
    ] {
        let Some(mut worlds) = Worlds::new(KINDS[0], Some(bug)) else { return };
        let found = differences(&mut worlds, "planted", &steps);
        let is_it = |found: &Difference| found.signature().starts_with(noticed);
        assert!(found.iter().any(is_it), "{bug}: {found:?}");
    }
}
