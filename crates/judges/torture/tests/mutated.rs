//! Volumes that were changed at random, with right and wrong checksums, cause no panic, no hang, no
//! unbounded I/O, and take no memory for sizes that a header only claims.
//!
//! `MANYLOGS_MUTATIONS=N` tries this many, `MANYLOGS_SEED=N` that one alone. cargo-fuzz goes on
//! where this ends (`fuzz/README.md`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Rng, Sectors};
use manylogs_sim::{Sim, TaskOrder};
use manylogs_torture::fuzz::{Image, exercise, mutate};

const DEVICE: Sectors = Sectors(9000);
const MUTATIONS: u64 = 12_000;
/// Number of steps of the executor after which it counts as a hang.
const STEPS_MAX: u64 = 1_000_000;
/// The most memory that the test may use, threads included.
const MEMORY_MAX: u64 = 512 << 20;

/// Prints the seed that failed.
struct Naming(u64);

impl Drop for Naming {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}: MANYLOGS_SEED={0} runs it alone", self.0);
        }
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Exercises the image; returns whether the volume could be opened.
fn run(image: Image, physical: Sectors) -> bool {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let handle = sim.handle(sim.node());
    let outcome = Rc::new(Cell::new(None));
    let (told, runtime) = (Rc::clone(&outcome), handle.clone());
    handle.spawn(async move { told.set(Some(exercise(runtime, image, physical).await)) });
    for _ in 0..STEPS_MAX {
        if let Some(opened) = outcome.get() {
            return opened;
        }
        assert!(sim.step(), "it waits for ever");
    }
    panic!("it does not end");
}

fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Tries all seeds of one parity: even seeds change one volume, odd seeds the other.
fn try_all(physical: Sectors, golden: &str, parity: u64) {
    let golden = Image::from_text(golden, DEVICE);
    assert!(run(golden.clone(), physical), "what was not changed opens");
    let seeds = match from_env("MANYLOGS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("MANYLOGS_MUTATIONS").unwrap_or(MUTATIONS),
    };
    let (mut opened, mut all) = (0u64, 0u64);
    for seed in seeds.filter(|seed| seed % 2 == parity) {
        let _naming = Naming(seed);
        let mut image = golden.clone();
        mutate(&mut image, &mut Rng::new(seed));
        opened += u64::from(run(image, physical));
        all += 1;
    }
    println!("{opened} of {all} mutated volumes could be opened");
    if let Some(peak) = peak_memory() {
        assert!(peak < MEMORY_MAX, "peak memory {peak}");
    }
}

#[test]
fn no_image_of_512_byte_sectors_makes_it_panic_hang_or_take_memory() {
    try_all(Sectors(1), include_str!("../../../systems/manylogs/tests/golden/volume-512.txt"), 0);
}

#[test]
fn no_image_of_4096_byte_sectors_makes_it_panic_hang_or_take_memory() {
    try_all(Sectors(8), include_str!("../../../systems/manylogs/tests/golden/volume-4096.txt"), 1);
}
