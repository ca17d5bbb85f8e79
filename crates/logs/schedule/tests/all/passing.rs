//! Requests that still wait when no record is expected any more.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, MemoryDevice, Nanos, Payload, Request, RequestKind, Sectors,
};
use manylogs_filters::Stop;
use manylogs_schedule::{Class, Scheduler, Targets};
use manylogs_sim::{Sim, TaskOrder};

/// Targets that hold requests back from the beginning.
const TARGETS: Targets = Targets { latency: Nanos::from_millis(10), contended_after: Nanos(0) };

fn read(start: u64) -> Request {
    Request::Read { extent: Extent::new(start, 8) }
}

fn write(start: u64, tag: u64) -> Request {
    Request::write_fua(Extent::new(start, 8), Payload::tags(tag, Sectors(8)))
}

/// A device is busy for longer than records are expected. A request that waits for room then goes
/// before a later one that writes to the same place.
#[test]
fn nobody_passes_who_waits_when_no_record_is_expected_any_more() {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let device = Rc::new(Stop::new(MemoryDevice::new(Sectors(1 << 20))));
        let scheduler = Scheduler::new(runtime.clone(), device.clone(), TARGETS);
        scheduler.submit(Class::Record, write(0, 1)).await.unwrap();
        device.hold(&[RequestKind::Read]);
        let reads: Vec<_> =
            (1..=20).map(|n| scheduler.submit(Class::Small, read(1000 * n))).collect();
        let waiting = || scheduler.stats().classes[Class::Stream as usize].waiting;
        let first = scheduler.submit(Class::Stream, write(500_000, 2));
        runtime.sleep(Nanos::from_secs(60)).await;
        assert_eq!(waiting(), 1, "the device is full of reads");
        let second = scheduler.submit(Class::Stream, write(500_000, 3));
        device.hold(&[]);
        device.release().await;
        for answer in reads.into_iter().chain([first, second]) {
            answer.await.unwrap();
        }
        assert_eq!(device.submit(read(500_000)).await.unwrap(), Payload::tags(3, Sectors(8)));
    });
}
