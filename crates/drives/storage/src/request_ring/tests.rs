//! Entries without a kernel: the tests put the requests into them.
//! `crates/cli/tests/fs_ring.rs` has the kernel's side.

use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::layout::OUT_HEADER_BYTES;
use super::*;
use crate::event::Event;

const PAYLOAD_BYTES: usize = 8192;
const HEADER: [u8; OUT_HEADER_BYTES] = *b"an answer's head";

/// Two queues of two entries.
fn entries() -> (Entries, Arc<Event>) {
    let shape = RingShape { queues: 2, depth: 2, payload_bytes: PAYLOAD_BYTES };
    let event = Arc::new(Event::new().unwrap());
    let memory = Memory::new(4, PAYLOAD_BYTES).unwrap();
    let desk = Arc::new(Desk::new(memory, Arc::clone(&event)));
    let device = Arc::new(tempfile::tempfile().unwrap());
    (Entries::new(desk, device, shape), event)
}

/// Puts a request into an entry, as the kernel does.
fn put(entries: &Entries, slot: u32, id: u64, payload: &[u8]) {
    let memory = &entries.desk.memory;
    let len = u32::try_from(payload.len()).unwrap();
    // SAFETY: within the entry, which the test treats as the kernel's.
    unsafe {
        memory.head(slot).write_bytes(7, IN_HEADER_BYTES);
        memory.head(slot).add(OPERATION_AT).write_bytes(8, OPERATION_BYTES);
        memory.head(slot).add(ID_AT).cast::<u64>().write(id);
        memory.head(slot).add(PAYLOAD_LEN_AT).cast::<u32>().write(len);
        std::ptr::copy_nonoverlapping(payload.as_ptr(), memory.payload(slot), payload.len());
    }
    entries.complete(slot, 0);
}

/// What the kernel finds in an entry: the header of the answer, and its payload.
fn answered(entries: &Entries) -> Option<(u32, u64, Vec<u8>, Vec<u8>)> {
    let (_, answered) = entries.next_commit()?;
    let memory = &entries.desk.memory;
    let slot = answered.slot;
    // SAFETY: within the entry, which the test treats as the kernel's.
    unsafe {
        let len = memory.head(slot).add(PAYLOAD_LEN_AT).cast::<u32>().read() as usize;
        let head = std::slice::from_raw_parts(memory.head(slot), OUT_HEADER_BYTES).to_vec();
        let payload = std::slice::from_raw_parts(memory.payload(slot), len).to_vec();
        Some((slot, answered.id, head, payload))
    }
}

fn is_notified(event: &Event) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

#[test]
fn an_answer_takes_the_place_of_its_request_once_nobody_reads_that() {
    let (entries, event) = entries();
    put(&entries, 3, 77, b"name\0");
    let ring = RequestRing(Rc::new(entries));
    assert!(ring.has_arrived());
    let (request, answer) = ring.next().unwrap();
    assert!(ring.next().is_none() && !ring.has_arrived());
    assert_eq!(request.head(), [[7; IN_HEADER_BYTES].as_slice(), &[8; OPERATION_BYTES]].concat());
    answer.send(&HEADER, [b"long", b"er than the request"]).unwrap();
    assert_eq!(request.payload(), b"name\0");
    assert!(ring.0.any_answered() && answered(&ring.0).is_none(), "it is still read");
    drop(request);
    let all = b"longer than the request".to_vec();
    assert_eq!(answered(&ring.0), Some((3, 77, HEADER.to_vec(), all)));
    assert!(!ring.0.any_answered() && answered(&ring.0).is_none(), "it is answered once");
    assert!(!is_notified(&event), "the ring's thread need not wake itself");
}

#[test]
fn other_threads_answer_and_wake_the_ring() {
    let (entries, event) = entries();
    put(&entries, 0, 5, &[]);
    put(&entries, 2, 6, &[]);
    let ring = RequestRing(Rc::new(entries));
    let (tell, told) = mpsc::channel::<RingAnswer>();
    let thread = std::thread::spawn(move || {
        let answers: Vec<_> = told.into_iter().collect();
        answers.into_iter().for_each(|answer| answer.send(&HEADER, [&[9; 3], &[]]).unwrap());
    });
    while let Some((_, answer)) = ring.next() {
        tell.send(answer).unwrap();
    }
    drop(tell);
    thread.join().unwrap();
    assert!(is_notified(&event));
    let expected = |slot, id| Some((slot, id, HEADER.to_vec(), vec![9; 3]));
    assert_eq!(answered(&ring.0), expected(0, 5));
    assert_eq!(answered(&ring.0), expected(2, 6));
}

#[test]
fn an_answer_that_is_dropped_is_an_error_and_one_that_is_too_long_is_given_back() {
    let (entries, _) = entries();
    put(&entries, 1, 8, b"name\0");
    put(&entries, 0, 9, b"name\0");
    let ring = RequestRing(Rc::new(entries));
    let (first, second) = (ring.next().unwrap(), ring.next().unwrap());
    let long = [0; PAYLOAD_BYTES];
    let answer = second.1.send(&HEADER, [&long, b"x"]).unwrap_err();
    answer.send(&HEADER, [&long[1..], b"x"]).unwrap();
    drop((first, second.0));
    let mut errors = [answered(&ring.0), answered(&ring.0)].map(Option::unwrap);
    errors.sort_by_key(|found| found.0);
    assert_eq!(errors[0].3.len(), PAYLOAD_BYTES);
    let error = [16_i32.to_ne_bytes(), (-5_i32).to_ne_bytes()].concat();
    assert_eq!(errors[1].2, [error, 8_u64.to_ne_bytes().to_vec()].concat());
    assert!(errors[1].3.is_empty());
}

#[test]
fn an_answer_after_the_end_goes_nowhere() {
    let (entries, _) = entries();
    put(&entries, 0, 5, b"name\0");
    let ring = RequestRing(Rc::new(entries));
    let (request, answer) = ring.next().unwrap();
    drop(request);
    drop(ring);
    std::thread::spawn(move || answer.send(&HEADER, [b"late", &[]]).unwrap()).join().unwrap();
}

#[test]
fn commands_name_the_queue_and_the_request() {
    let (entries, _) = entries();
    assert_eq!([0, 1, 2, 3].map(|slot| entries.queue(slot)), [0, 0, 1, 1]);
    assert_eq!(entries.slots(), 0..4);
    let bytes = command(1, 0x0102_0304_0506_0708);
    assert_eq!(bytes[8..16], 0x0102_0304_0506_0708_u64.to_ne_bytes());
    assert_eq!((bytes[16..18].to_vec(), bytes[18..] == [0; 62]), (vec![1, 0], true));
}

#[test]
fn a_refused_entry_is_not_usable() {
    let (entries, _) = entries();
    entries.complete(1, -22);
    assert_eq!((entries.usable.borrow().clone(), entries.refused.get()), (vec![1, 2], -22));
    assert!(entries.arrived.borrow().is_empty());
    // Lengths of the kernel are not trusted.
    put(&entries, 0, 5, b"name\0");
    // SAFETY: within the entry.
    unsafe { entries.desk.memory.head(0).add(PAYLOAD_LEN_AT).cast::<u32>().write(u32::MAX) };
    let ring = RequestRing(Rc::new(entries));
    assert_eq!(ring.next().unwrap().0.payload().len(), PAYLOAD_BYTES);
}

#[test]
fn a_ring_refuses_entries_of_what_is_no_connection_of_fuse() {
    let reactor = crate::Reactor::new().unwrap();
    let watcher = reactor.watcher();
    if !RequestRing::is_possible(&watcher) {
        return manylogs_testkit::skip("the kernel has no io_uring with commands for us");
    }
    let shape = RingShape { queues: 1, depth: 1, payload_bytes: PAYLOAD_BYTES };
    let file = Arc::new(tempfile::tempfile().unwrap());
    let refused = RequestRing::register(&watcher, Arc::clone(&file), shape).unwrap_err();
    assert!(refused.raw_os_error().is_some_and(|errno| errno > 0), "{refused}");
    let again = RequestRing::register(&watcher, file, shape).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
}
