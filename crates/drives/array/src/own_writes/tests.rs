#![allow(clippy::unwrap_used, reason = "a test may panic")]

use manylogs_block::{MemoryDevice, RequestKind};
use manylogs_filters::Trace;
use manylogs_sim::{Sim, TaskOrder};

use super::*;
use crate::{Shape, assemble};

type Member = Rc<Trace<MemoryDevice>>;

/// Writes 4 KiB `pause` apart, at these places of an array, and returns what each member got: all
/// its writes, and its flushes.
fn writes_of(shape: &str, pause: Nanos, places: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let shape: Shape = shape.parse().unwrap();
    let sim = Sim::new(1, TaskOrder::Fifo);
    let runtime = sim.handle(sim.node());
    let member = |_| Rc::new(Trace::new(MemoryDevice::new(Sectors(1 << 16))));
    let members: Vec<Member> = (0..shape.members).map(member).collect();
    let devices = members.iter().map(|member| Rc::clone(member) as Rc<dyn BlockDevice>).collect();
    let array = assemble(&runtime, &shape, devices);
    let places = places.to_vec();
    sim.block_on(sim.node(), async move {
        for place in places {
            let extent = Extent::new(place, PAGE.0);
            let payload = Payload::tags(place, PAGE);
            let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
            array.submit(write).await.unwrap();
            runtime.sleep(pause).await;
        }
        let count = |member: &Member, kind| member.count(kind).requests;
        let counts = |kind| members.iter().map(|member| count(member, kind)).collect();
        (counts(RequestKind::Write), counts(RequestKind::Flush))
    })
}

#[test]
fn an_array_is_marked_dirty_and_clean_on_every_member() {
    let seldom = Nanos::from_millis(600);
    assert_eq!(writes_of("raid1:2", seldom, &[0; 5]), (vec![5; 2], vec![0; 2]));
    // A mark before each write, and one behind it.
    assert_eq!(writes_of("raid1:2:safe-mode=200ms", seldom, &[0; 5]), (vec![15; 2], vec![10; 2]));
    // One before the first.
    let often = Nanos::from_millis(100);
    assert_eq!(writes_of("raid1:2:safe-mode=200ms", often, &[0; 5]), (vec![6; 2], vec![1; 2]));
    let (writes, _) = writes_of("raid10:4:safe-mode=200ms", seldom, &[0; 5]);
    assert_eq!(writes, [15, 15, 10, 10], "the other pair gets the marks alone");
    assert_eq!(writes_of("raid1:2:safe-mode=10s", seldom, &[0; 5]), (vec![6; 2], vec![1; 2]));
}

#[test]
fn a_bit_is_set_before_the_first_write_into_its_chunk() {
    let pause = Nanos::from_millis(100);
    // Chunks of 4 MiB are 8192 sectors.
    let (writes, _) = writes_of("raid1:2:bitmap=4M", pause, &[0, 8, 8192, 16, 8200]);
    assert_eq!(writes, [7; 2], "five writes and two bits");
    let (writes, _) = writes_of("raid1:2:bitmap=4M", Nanos::from_secs(16), &[0, 8]);
    assert_eq!(writes, [6; 2], "each bit is set and cleared");
    // Two columns: a bit stands for twice as much of the array.
    let (writes, _) = writes_of("raid10:4:bitmap=4M", pause, &[0, 8192, 16384]);
    assert_eq!(writes.iter().sum::<u64>(), 3 * 2 + 2 * 4);
}
