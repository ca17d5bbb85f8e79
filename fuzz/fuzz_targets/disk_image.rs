//! A small volume, changed as the fuzzer says: looked at, opened, read, written and drained.
#![no_main]

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::Sectors;
use manylogs_sim::{Order, Sim};
use manylogs_torture::fuzz::{FromBytes, Image, exercise, mutate};

const DEVICE: Sectors = Sectors(9000);
/// Steps of the executor after which it counts as a hang.
const STEPS_MAX: u64 = 1_000_000;
/// Volumes of 512-byte and of 4096-byte sectors.
const GOLDEN: [(u64, &str); 2] = [
    (1, include_str!("../../crates/systems/manylogs/tests/golden/volume-512.txt")),
    (8, include_str!("../../crates/systems/manylogs/tests/golden/volume-4096.txt")),
];

fn run(image: Image, physical: Sectors) {
    let sim = Sim::new(1, Order::Fifo);
    let handle = sim.handle(sim.node());
    let done = Rc::new(Cell::new(false));
    let (told, runtime) = (Rc::clone(&done), handle.clone());
    handle.spawn(async move {
        exercise(runtime, image, physical).await;
        told.set(true);
    });
    for _ in 0..STEPS_MAX {
        if done.get() {
            return;
        }
        assert!(sim.step(), "it waits for ever");
    }
    panic!("it does not end");
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, decisions)) = bytes.split_first() else { return };
    let (physical, text) = GOLDEN[usize::from(first & 1)];
    let mut image = Image::from_text(text, DEVICE);
    mutate(&mut image, &mut FromBytes(decisions));
    run(image, Sectors(physical));
});
