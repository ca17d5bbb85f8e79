//! Requests over NBD as they reach the volume.

use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use manylogs_block::{BlockDevice, Capabilities, Extent, ExtentKind};
use manylogs_filters::Reported;

use super::client::{DISCONNECT, FAST_ZERO, FLUSH, FUA, READ, TRIM, WRITE, ZERO};
use super::{Bench, Seen};

#[test]
pub(super) fn a_flush_is_answered_after_a_flush() {
    let bench = Bench::start();
    let mut client = bench.client();
    assert_eq!(client.ask(0, WRITE, 4096, 4096, &[1; 4096]), 0);
    assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
    assert_eq!(bench.seen(), [Seen::Write(Extent::new(8, 8), false), Seen::Flush]);
}

#[test]
pub(super) fn a_flush_of_any_connection_flushes_the_writes_of_all() {
    let bench = Bench::start();
    let (mut writer, mut other) = (bench.client(), bench.client());
    assert_eq!(writer.ask(0, WRITE, 4096, 4096, &[1; 4096]), 0);
    assert_eq!(other.ask(0, FLUSH, 0, 0, &[]), 0);
    assert_eq!(bench.seen(), [Seen::Write(Extent::new(8, 8), false), Seen::Flush]);
}

/// Flags, command, offset and length of a request, and the requests that must reach the device.
type Case = (u16, u16, u64, u32, &'static [Seen]);

const WHOLE: Extent = Extent::new(8, 8);
/// The sectors around bytes 1000 to 1600.
const AROUND: Extent = Extent::new(1, 3);
const CASES: [Case; 13] = [
    (0, READ, 4096, 4096, &[Seen::Read(WHOLE)]),
    (0, WRITE, 4096, 4096, &[Seen::Write(WHOLE, false)]),
    (FUA, WRITE, 4096, 4096, &[Seen::Write(WHOLE, true)]),
    (0, WRITE, 1000, 600, &[Seen::Read(AROUND), Seen::Write(AROUND, false)]),
    (FUA, WRITE, 1000, 600, &[Seen::Read(AROUND), Seen::Write(AROUND, true)]),
    (0, ZERO, 4096, 4096, &[Seen::Zero(WHOLE, false)]),
    (FUA, ZERO, 4096, 4096, &[Seen::Zero(WHOLE, true)]),
    (FUA, ZERO, 1000, 600, &[Seen::Read(AROUND), Seen::Write(AROUND, true)]),
    (0, TRIM, 4096, 4096, &[Seen::Discard(WHOLE, false)]),
    (FUA, TRIM, 4096, 4096, &[Seen::Discard(WHOLE, true)]),
    // Whole sectors within the range only: sector 2 of bytes 1000 to 1600; none of bytes 10 to 110.
    (0, TRIM, 1000, 600, &[Seen::Discard(Extent::new(2, 1), false)]),
    (0, TRIM, 10, 100, &[]),
    (FUA, TRIM, 10, 100, &[]),
];

#[test]
pub(super) fn requests_reach_the_volume_with_their_flags_and_no_more_than_their_sectors() {
    let bench = Bench::start();
    let mut client = bench.client();
    for (flags, command, offset, len, wanted) in CASES {
        let data = if command == WRITE { vec![7; len as usize] } else { Vec::new() };
        assert_eq!(client.ask(flags, command, offset, len, &data), 0);
        let what = format!("command {command} flags {flags}, {len} bytes at {offset}");
        assert_eq!(bench.seen(), wanted, "{what}");
    }
}

#[test]
pub(super) fn parts_of_one_sector_that_are_written_together_are_all_there() {
    let bench = Bench::start();
    let mut client = bench.client();
    // Sent in one piece, so that they are under way together.
    let mut together = Vec::new();
    let mut wanted = vec![0; 512];
    for i in 0..8_u8 {
        let at = usize::from(i) * 60;
        wanted[at..at + 50].fill(i + 1);
        together.extend(client.request(0, WRITE, at as u64, 50, &[i + 1; 50]).0);
    }
    client.stream.write_all(&together).unwrap();
    for _ in 0..8 {
        assert_eq!(client.answer().1, 0);
    }
    assert_eq!(client.read(0, 512), wanted);
}

#[test]
pub(super) fn a_whole_sector_written_beside_a_part_of_it_is_not_lost() {
    let bench = Bench::start();
    let mut client = bench.client();
    let mut together = client.request(0, WRITE, 0, 100, &[1; 100]).0;
    together.extend(client.request(0, WRITE, 0, 512, &[2; 512]).0);
    client.stream.write_all(&together).unwrap();
    assert_eq!((client.answer().1, client.answer().1), (0, 0));
    // Either may be the last, but the rest of the sector is the second one's.
    assert_eq!(client.read(100, 412), [2; 412]);
}

#[test]
pub(super) fn a_change_is_answered_when_the_volume_has_it() {
    let bench = Bench::start();
    bench.hold_writes(true);
    let (mut client, mut other) = (bench.client(), bench.client());
    let (request, cookie) = client.request(FUA, WRITE, 0, 512, &[1; 512]);
    client.stream.write_all(&request).unwrap();
    // Another client is served meanwhile, so that an answer would have come.
    assert!((0..100).all(|_| other.ask(0, READ, 4096, 512, &[]) == 0));
    client.stream.set_nonblocking(true).unwrap();
    let early = client.stream.read(&mut [0; 16]).map_err(|error| error.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock));
    client.stream.set_nonblocking(false).unwrap();
    bench.hold_writes(false);
    assert_eq!(client.answer(), (cookie, 0));
}

#[test]
pub(super) fn what_fails_is_not_answered_as_done() {
    let bench = Bench::start();
    bench.watched.fails.store(true, Ordering::SeqCst);
    let mut client = bench.client();
    for (flags, command, offset, len, _) in CASES {
        let data = if command == WRITE { vec![7; len as usize] } else { Vec::new() };
        let touches_nothing = command == TRIM && len < 512;
        let error = client.ask(flags, command, offset, len, &data);
        assert_eq!(error == 0, touches_nothing, "command {command} flags {flags}, {len} bytes");
    }
    assert_ne!(client.ask(0, FLUSH, 0, 0, &[]), 0);
    bench.watched.fails.store(false, Ordering::SeqCst);
}

#[test]
pub(super) fn what_was_sent_before_a_disconnect_is_done_and_answered() {
    let bench = Bench::start();
    let mut client = bench.client();
    let mut together = Vec::new();
    for i in 0..5 {
        together.extend(client.request(FUA, WRITE, i * 512, 512, &[3; 512]).0);
    }
    together.extend(client.request(0, DISCONNECT, 0, 0, &[]).0);
    client.stream.write_all(&together).unwrap();
    let mut answers = Vec::new();
    client.stream.read_to_end(&mut answers).unwrap();
    assert_eq!(answers.len(), 5 * 16);
    let errors = answers.chunks(16).map(|answer| answer[4..8].to_vec());
    assert!(errors.into_iter().all(|error| error == [0; 4]));
    let written = bench.seen();
    assert_eq!(written.len(), 5);
    assert!(written.iter().all(|seen| matches!(seen, Seen::Write(_, true))), "{written:?}");
    assert_eq!(bench.client().read(0, 5 * 512), [3; 5 * 512]);
}

/// NBD's error number for "not supported".
const NOT_SUPPORTED: u32 = 95;

#[test]
fn zeroing_that_must_be_fast_is_refused_where_it_is_not() {
    let bench = Bench::with(
        |_, recorder| {
            let slow = |told| Capabilities { fast_zero: false, ..told };
            (Rc::new(Reported::new(recorder, slow)) as Rc<dyn BlockDevice>, None)
        },
        Box::new(|_, _| ()),
    );
    let mut client = bench.client();
    assert_eq!(client.ask(FAST_ZERO, ZERO, 4096, 4096, &[]), NOT_SUPPORTED);
    assert_eq!(bench.seen(), []);
    assert_eq!(client.ask(0, ZERO, 4096, 4096, &[]), 0);
    assert_eq!(bench.seen(), [Seen::Zero(WHOLE, false)]);
    let bench = Bench::start();
    let mut client = bench.client();
    assert_eq!(client.ask(FAST_ZERO | FUA, ZERO, 4096, 4096, &[]), 0);
    assert_eq!(client.ask(FAST_ZERO, ZERO, 1000, 600, &[]), NOT_SUPPORTED, "parts are written");
    assert_eq!(bench.seen(), [Seen::Zero(WHOLE, true)]);
}

#[test]
fn extents_of_a_device_without_a_volume_are_known_too() {
    let bench = Bench::start();
    assert_eq!(bench.client().ask(FUA, WRITE, 4096, 4096, &[1; 4096]), 0);
    let known = bench.engine().port().extents(Extent::new(4, 20)).unwrap();
    use ExtentKind::{Data, Hole};
    let wanted = [(Extent::new(4, 4), Hole), (WHOLE, Data), (Extent::new(16, 8), Hole)];
    assert_eq!(known.iter().collect::<Vec<_>>(), wanted);
}
