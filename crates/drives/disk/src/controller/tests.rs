#![allow(clippy::unwrap_used, reason = "a test may panic")]

use manylogs_block::{MemoryDevice, Nanos, RequestKind, Rng};
use manylogs_filters::{Delay, Faults, Rule};
use manylogs_sim::{Sim, TaskOrder};

use super::*;

const MEMORY: ControllerMemory = ControllerMemory { writes: Sectors(64), reads: Sectors(32) };
const TAKES: Nanos = Nanos::from_millis(5);

type Drive = Faults<MemoryDevice>;

fn controlled<F: Future<Output = ()> + 'static>(
    seed: u64,
    test: impl FnOnce(Handle, Rc<Drive>, Controller) -> F,
) {
    let sim = Sim::new(seed, TaskOrder::Shuffled);
    let node = sim.node();
    let runtime = sim.handle(node);
    let drive = Rc::new(Faults::new(MemoryDevice::new(Sectors(256))));
    let slow = Delay::new(runtime.clone(), Rc::clone(&drive), TAKES);
    let controller = Controller::new(runtime.clone(), Rc::new(slow), MEMORY);
    sim.block_on(node, test(runtime, drive, controller));
}

fn write(extent: Extent, tag: u64) -> Request {
    let payload = Payload::tags(tag, extent.len);
    Request::Write { extent, payload, fua: false, hint: Hint::None }
}

#[test]
fn reads_see_what_was_written_and_all_of_it_reaches_the_drive() {
    for seed in 0..40 {
        controlled(seed, |runtime, drive, controller| async move {
            let (mut rng, mut model) = (Rng::new(seed), Media::default());
            for tag in 1..400 {
                let start = rng.below(240);
                let extent = Extent::new(start, 1 + rng.below(256 - start).min(23));
                if rng.below(3) == 0 {
                    let read = controller.submit(Request::Read { extent }).await.unwrap();
                    assert_eq!(read, model.read(extent), "seed {seed}, write {tag}");
                } else {
                    let written = controller.submit(write(extent, tag << 8));
                    // Some are in flight together.
                    if rng.below(2) == 0 {
                        written.await.unwrap();
                    } else {
                        controller.submit(write(extent, tag << 8)).await.unwrap();
                    }
                    model.write(extent, &Payload::tags(tag << 8, extent.len));
                }
                if rng.below(8) == 0 {
                    runtime.sleep(Nanos::from_millis(rng.below(20))).await;
                }
                assert!(controller.unwritten() <= MEMORY.writes);
            }
            runtime.sleep(Nanos::from_secs(1)).await;
            assert_eq!(controller.unwritten(), Sectors(0));
            let all = Extent::new(0, 256);
            let read = drive.submit(Request::Read { extent: all }).await.unwrap();
            assert_eq!(read, model.read(all), "seed {seed}");
        });
    }
}

#[test]
fn writes_wait_for_the_drive_when_the_memory_is_full() {
    controlled(1, |runtime, _, controller| async move {
        let from = runtime.now();
        for number in 0..8 {
            controller.submit(write(Extent::new(number * 16, 8), number << 8)).await.unwrap();
        }
        assert_eq!(runtime.now(), from, "they fit");
        controller.submit(write(Extent::new(200, 8), 9 << 8)).await.unwrap();
        assert_eq!(runtime.now().since(from), TAKES);
        // What is there already needs no room.
        controller.submit(write(Extent::new(200, 8), 10 << 8)).await.unwrap();
        assert_eq!(runtime.now().since(from), TAKES);
    });
}

#[test]
fn what_was_read_is_read_again_at_once_until_others_take_its_room() {
    controlled(1, |runtime, _, controller| async move {
        let took = async |start| {
            let from = runtime.now();
            controller.submit(Request::Read { extent: Extent::new(start, 16) }).await.unwrap();
            runtime.now().since(from)
        };
        assert_eq!((took(0).await, took(0).await), (TAKES, Nanos(0)));
        assert_eq!((took(32).await, took(64).await), (TAKES, TAKES));
        assert_eq!((took(64).await, took(0).await), (Nanos(0), TAKES));
    });
}

#[test]
fn a_drive_that_fails_ends_the_writes() {
    controlled(1, |runtime, drive, controller| async move {
        drive.add(Rule::new(&[RequestKind::Write], |extent| IoError::Medium { extent }));
        controller.submit(write(Extent::new(0, 8), 1 << 8)).await.unwrap();
        for number in 1..8 {
            controller.submit(write(Extent::new(number * 16, 8), number << 8)).await.unwrap();
        }
        let waits = controller.submit(write(Extent::new(200, 8), 9 << 8)).await;
        assert!(matches!(waits, Err(IoError::Medium { .. })), "{waits:?}");
        runtime.sleep(TAKES + TAKES).await;
        let later = controller.submit(write(Extent::new(64, 8), 2 << 8)).await;
        assert!(matches!(later, Err(IoError::Medium { .. })), "{later:?}");
        let read = controller.submit(Request::Read { extent: Extent::new(0, 8) }).await.unwrap();
        assert_eq!(read, Payload::tags(1 << 8, Sectors(8)), "the memory has it still");
    });
}
