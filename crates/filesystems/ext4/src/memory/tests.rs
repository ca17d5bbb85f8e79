use std::pin::pin;

use super::*;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn used(memory: &Memory) -> u64 {
    memory.used(Part::Pages)
}

#[test]
fn the_shares_are_all_of_the_bound() {
    for bound in [Memory::LEAST, 100 * MIB, 256 * MIB, Memory::USUAL, 1 << 40] {
        let memory = Memory::new(bound);
        let parts = memory.parts();
        assert_eq!(parts.iter().map(|part| part.most).sum::<u64>(), bound);
        assert!(parts.iter().all(|part| part.most >= 4 * MIB), "{parts:?}");
    }
    assert_eq!(Memory::new(0).bound(), Memory::LEAST);
}

#[test]
fn who_waits_is_let_in_in_order_and_nobody_passes() {
    let memory = Memory::new(Memory::LEAST);
    let share = memory.most(Part::Pages);
    let first = memory.try_take(Part::Pages, share - 10).expect("there is room");
    let mut large = pin!(memory.take(Part::Pages, 100));
    let mut small = pin!(memory.take(Part::Pages, 5));
    assert!(poll(large.as_mut()).is_pending() && poll(small.as_mut()).is_pending());
    assert!(memory.try_take(Part::Pages, 5).is_none(), "two wait");
    drop(first);
    let Poll::Ready(large) = poll(large.as_mut()) else { panic!("the first in the queue") };
    let Poll::Ready(small) = poll(small.as_mut()) else { panic!("there is room for both") };
    assert_eq!((used(&memory), memory.is_wanted(Part::Pages)), (105, false));
    drop((large, small));
    let pages = memory.parts()[Part::Pages as usize];
    assert_eq!((pages.used, pages.peak, pages.waits), (0, share - 10, 2));
}

#[test]
fn who_stops_waiting_leaves_nothing_behind() {
    let memory = Memory::new(Memory::LEAST);
    let share = memory.most(Part::Pages);
    let mut held = memory.hold(Part::Pages, share);
    let mut behind = pin!(memory.take(Part::Pages, 10));
    {
        let mut ahead = pin!(memory.take(Part::Pages, 1000));
        let mut granted = pin!(memory.take(Part::Pages, 1));
        assert!(poll(granted.as_mut()).is_pending());
        assert!(poll(ahead.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
        held.set(share - 10);
        // One request was granted, and is dropped without being polled again. The other waits for
        // more.
    }
    let Poll::Ready(behind) = poll(behind.as_mut()) else { panic!("nobody is ahead") };
    assert_eq!(used(&memory), share);
    drop((held, behind));
    assert_eq!(used(&memory), 0);
}

#[test]
fn what_is_larger_than_the_share_comes_alone() {
    let memory = Memory::new(Memory::LEAST);
    let share = memory.most(Part::Pages);
    let one = memory.hold(Part::Pages, 1);
    let mut huge = pin!(memory.take(Part::Pages, 3 * share));
    assert!(poll(huge.as_mut()).is_pending());
    drop(one);
    assert!(poll(huge.as_mut()).is_ready());
    assert_eq!(used(&memory), 0, "it was dropped");
}

#[test]
fn a_permit_is_split_without_a_change_of_the_account() {
    let memory = Memory::new(Memory::LEAST);
    let mut room = memory.hold(Part::Pages, 10);
    let (one, rest) = (room.split(4), room.split(100));
    assert_eq!((one.bytes(), rest.bytes(), room.bytes(), used(&memory)), (4, 6, 0, 10));
    drop(one);
    assert_eq!(used(&memory), 6);
    drop((room, rest));
    assert_eq!(used(&memory), 0);
}

#[cfg(feature = "plant")]
#[test]
fn a_permit_that_leaks_is_noticed() {
    manylogs_plant::plant(Some(Bug::MemoryPermitLeaks));
    let memory = Memory::default();
    drop(memory.hold(Part::Requests, 10));
    manylogs_plant::plant(None);
    assert_eq!(memory.used(Part::Requests), 10);
}
