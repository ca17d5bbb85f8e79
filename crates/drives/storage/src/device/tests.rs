//! Checks which operations a device sends to the kernel, and how it treats the results.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use manylogs_block::{Rng, Sectors, to_usize};

use super::*;
use crate::pool::carry_out;

/// Records each operation. Answers with the next scripted result, or else carries it out.
#[derive(Default)]
struct Scripted(Rc<Script>);

#[derive(Default)]
struct Script {
    answers: RefCell<VecDeque<Result<usize, Errno>>>,
    asked: RefCell<Vec<String>>,
    started: RefCell<VecDeque<(Arc<File>, Op, Callback)>>,
    /// Picks the operation under way that ends next; without it the oldest one ends.
    order: RefCell<Option<Rng>>,
}

impl FileIo for Scripted {
    fn buffer(&self, len: usize) -> Buffer {
        Buffer::new(len)
    }

    fn recycle(&self, _buffer: Buffer) {}

    fn start(&self, file: &Arc<File>, op: Op, then: Callback) {
        self.0.started.borrow_mut().push_back((Arc::clone(file), op, then));
    }

    fn wait(&self) {
        let under_way = self.0.started.borrow().len() as u64;
        let drawn = self.0.order.borrow_mut().as_mut().map(|rng| to_usize(rng.below(under_way)));
        let next = self.0.started.borrow_mut().remove(drawn.unwrap_or(0));
        let Some((file, op, then)) = next else { return };
        let asked = match &op {
            Op::Read { at, into } => format!("read {at}+{}", into.bytes().len()),
            Op::Write { at, from, mode } => {
                let how = if mode.durable { "durably" } else { "lazily" };
                let first = if mode.urgent { " and first" } else { "" };
                format!("write {at}+{} {how}{first}", from.bytes().len())
            }
            Op::Sync => "sync".to_owned(),
            Op::Call(_) => "call".to_owned(),
        };
        self.0.asked.borrow_mut().push(asked);
        let answer = self.0.answers.borrow_mut().pop_front();
        then(match answer {
            Some(result) => Done { result, buffer: buffer_of(op) },
            None => carry_out(&file, op),
        });
    }
}

fn buffer_of(op: Op) -> Option<Buffer> {
    match op {
        Op::Read { into, .. } => Some(into),
        Op::Write { from, .. } => from.into_buffer(),
        Op::Sync | Op::Call(_) => None,
    }
}

struct Bench {
    core: Rc<Core>,
    script: Rc<Script>,
}

fn bench_with(access: Access, answers: impl IntoIterator<Item = Result<usize, Errno>>) -> Bench {
    let script = Rc::new(Script::default());
    script.answers.borrow_mut().extend(answers);
    let file = tempfile::tempfile().unwrap();
    let capacity = Sectors(2 << 31);
    file.set_len(capacity.bytes()).unwrap();
    let capabilities = Capabilities {
        capacity,
        physical_sector: Sectors(1),
        untorn: Sectors(1),
        rotational: true,
        volatile_cache: true,
        native_fua: false,
        discard: true,
        fast_zero: true,
    };
    let core = Core {
        file: Arc::new(file),
        io: Box::new(Scripted(Rc::clone(&script))),
        capabilities,
        medium: Medium::File,
        writable: true,
        access,
        priorities: false,
        gate: Rc::default(),
        in_flight: 0.into(),
        flush_failed: false.into(),
        spindle: None,
    };
    Bench { core: Rc::new(core), script }
}

/// A disk that serves commands with priority first.
fn bench_with_priorities() -> Bench {
    let Bench { core, script } = bench(true, []);
    let core = Rc::into_inner(core).unwrap();
    Bench { core: Rc::new(Core { priorities: true, ..core }), script }
}

fn bench(direct: bool, answers: impl IntoIterator<Item = Result<usize, Errno>>) -> Bench {
    let access = if direct { Access::Direct { unit: Sectors(1) } } else { Access::Cached };
    bench_with(access, answers)
}

impl Bench {
    fn answer(&self, request: Request) -> IoResult {
        let completion = self.core.submit(request);
        self.core.drain();
        now(completion)
    }

    fn asked(&self) -> Vec<String> {
        self.script.asked.take()
    }
}

fn now(completion: Completion) -> IoResult {
    let mut completion = std::pin::pin!(completion);
    match completion.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("still under way"),
    }
}

fn write(fua: bool) -> Request {
    let extent = Extent::new(8, 2);
    let hint = manylogs_block::Hint::None;
    Request::Write { extent, payload: Payload::zeroes(extent.len), fua, hint }
}

#[test]
fn urgent_writes_have_priority_where_the_disk_knows_it() {
    let first = "write 4096+1024 durably and first";
    for (bench, how) in [(bench_with_priorities(), first), (bench(true, []), &first[..23])] {
        let urgent = bench.core.submit_urgent(write(true));
        let plain = bench.core.submit(write(true));
        bench.core.drain();
        assert!(now(urgent).is_ok() && now(plain).is_ok());
        assert_eq!(bench.asked(), [how, "write 4096+1024 durably"]);
    }
}

#[test]
fn after_a_failed_flush_no_flush_succeeds() {
    let bench = bench(true, [Err(Errno::IO)]);
    assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
    assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
    assert_eq!(bench.asked(), ["sync"], "the second is not even tried");
    assert!(bench.answer(write(true)).is_ok(), "durable by itself");
    assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
}

#[test]
fn a_flush_under_way_when_another_fails_fails_too() {
    let bench = bench(true, [Err(Errno::IO), Ok(0)]);
    let both = [bench.core.submit(Request::Flush), bench.core.submit(Request::Flush)];
    bench.core.drain();
    for completion in both {
        assert_eq!(now(completion), Err(IoError::FlushFailed));
    }
}

#[test]
fn a_failed_durable_write_spoils_flushes_unless_there_was_merely_no_room() {
    let extent = Extent::new(8, 2);
    for (direct, fua, errno, error, spoilt) in [
        (true, true, Errno::IO, IoError::Transient { extent }, true),
        (true, false, Errno::IO, IoError::Transient { extent }, false),
        (true, true, Errno::TIMEDOUT, IoError::Transient { extent }, true),
        (true, true, Errno::NODATA, IoError::Medium { extent }, true),
        (true, true, Errno::ILSEQ, IoError::Medium { extent }, true),
        (true, true, Errno::NODEV, IoError::Gone, true),
        (true, true, Errno::NOSPC, IoError::NoSpace { extent }, false),
        (true, true, Errno::DQUOT, IoError::NoSpace { extent }, false),
        (false, true, Errno::NOSPC, IoError::NoSpace { extent }, true),
        (true, true, Errno::OPNOTSUPP, IoError::Unsupported, false),
    ] {
        let bench = bench(direct, [Err(errno)]);
        assert_eq!(bench.answer(write(fua)), Err(error), "{errno}");
        assert_eq!(bench.answer(Request::Flush).is_err(), spoilt, "{errno}");
    }
}

#[test]
fn what_was_cut_short_or_interrupted_goes_on() {
    let bench = bench(true, [Err(Errno::INTR), Ok(700), Err(Errno::AGAIN)]);
    assert!(bench.answer(write(true)).is_ok());
    let (whole, rest) = ("write 4096+1024 durably", "write 4608+512 durably");
    assert_eq!(bench.asked(), [whole, whole, rest, rest]);
}

#[test]
fn what_does_not_get_on_ends() {
    let stuck = bench(true, [Ok(512), Ok(0)]);
    let read = Request::Read { extent: Extent::new(8, 2) };
    assert_eq!(stuck.answer(read), Err(IoError::Shrunk { extent: Extent::new(9, 1) }));
    let interrupted = bench(true, [Err(Errno::INTR); 100]);
    let extent = Extent::new(8, 2);
    assert_eq!(interrupted.answer(write(false)), Err(IoError::Transient { extent }));
}

#[test]
fn durable_zeroes_are_flushed_and_a_failure_of_that_spoils_flushes() {
    let zeroes = |len| Request::write_zeroes(Extent::new(0, len), true);
    let bench = bench(true, [Ok(0), Ok(0), Ok(0), Err(Errno::IO)]);
    assert!(bench.answer(zeroes(2048)).is_ok());
    assert_eq!(bench.asked(), ["call", "sync"]);
    assert_eq!(bench.answer(zeroes(2048)), Err(IoError::FlushFailed));
    assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
    bench.asked();
    assert!(bench.answer(zeroes(1)).is_ok());
    let discard = |fua| Request::Discard { extent: Extent::new(0, 2048), fua };
    let bench_of_discards = self::bench(true, [Ok(0); 3]);
    assert!(bench_of_discards.answer(discard(true)).is_ok());
    assert_eq!(bench_of_discards.asked(), ["call", "sync"]);
    assert!(bench_of_discards.answer(discard(false)).is_ok());
    assert_eq!(bench_of_discards.asked(), ["call"]);
    assert_eq!(bench.asked(), ["write 0+512 durably"]);
}

#[test]
fn long_ranges_are_worked_through_in_pieces_one_at_a_time() {
    // A tebibyte, 128 MiB at a time; the last piece is shorter.
    let extent = Extent::new(0, (2 << 30) - 9);
    let requests = [Request::write_zeroes(extent, true), Request::Discard { extent, fua: false }];
    for (request, ends) in requests.into_iter().zip([Some("sync"), None]) {
        let bench = bench(true, [Err(Errno::INTR)].into_iter().chain(vec![Ok(0); 8193]));
        let completion = bench.core.submit(request);
        while bench.core.in_flight.get() > 0 {
            assert_eq!(bench.script.started.borrow().len(), 1, "others have their turn");
            bench.core.io.wait();
        }
        assert!(now(completion).is_ok());
        let mut asked = bench.asked();
        assert_eq!(asked.pop_if(|last| last == "sync").as_deref(), ends);
        assert_eq!(asked, vec!["call"; 8193], "one was interrupted and tried again");
    }
    let bench = bench(true, [Ok(0), Err(Errno::NODATA)]);
    let piece = Extent::new(256 << 10, 256 << 10);
    let zeroes = Request::write_zeroes(extent, true);
    assert_eq!(bench.answer(zeroes), Err(IoError::Medium { extent: piece }));
    assert!(bench.answer(Request::Flush).is_ok(), "a failed call spoils nothing else");
}

/// A device with logical sectors of 4096 bytes.
fn large_sectors(answers: impl IntoIterator<Item = Result<usize, Errno>>) -> Bench {
    bench_with(Access::Direct { unit: Sectors(8) }, answers)
}

fn filled(start: u64, len: u64, byte: u8) -> Request {
    let extent = Extent::new(start, len);
    let payload = Payload::bytes(vec![byte; to_usize(extent.len.bytes())]);
    Request::Write { extent, payload, fua: false, hint: manylogs_block::Hint::None }
}

/// The first byte of each of the first `sectors` sectors.
fn first_bytes(bench: &Bench, sectors: u64) -> Vec<u8> {
    let extent = Extent::new(0, sectors);
    let content = bench.answer(Request::Read { extent }).unwrap().to_bytes().unwrap();
    content.iter().copied().step_by(512).collect()
}

/// This holds in whatever order the kernel ends operations.
#[test]
fn writes_into_one_logical_sector_do_not_undo_each_other() {
    const EXPECTED: [u8; 24] =
        [1, 1, 1, 2, 2, 3, 1, 4, 5, 5, 5, 5, 5, 5, 5, 5, 7, 6, 1, 0, 1, 1, 1, 1];
    for seed in 0..50 {
        let bench = large_sectors([]);
        *bench.script.order.borrow_mut() = Some(Rng::new(seed));
        let requests = [
            filled(0, 24, 1),
            filled(3, 2, 2),
            filled(5, 1, 3),
            filled(7, 2, 4),
            filled(8, 8, 5),
            filled(17, 1, 6),
            Request::write_zeroes(Extent::new(19, 1), true),
            filled(16, 1, 7),
        ];
        let completions = requests.map(|request| bench.core.submit(request));
        bench.core.drain();
        for completion in completions {
            assert!(now(completion).is_ok());
        }
        assert_eq!(first_bytes(&bench, 24), EXPECTED, "as if they came one by one: seed {seed}");
    }
}

/// A range is zeroed piece by piece while parts of its logical sectors are written.
#[test]
fn a_write_beside_long_zeroes_is_not_undone() {
    let zeroed = Extent::new(3, (512 << 11) + 2);
    for seed in 0..50 {
        let bench = large_sectors([]);
        let places = [0, 8, zeroed.end().0 - 5].map(|start| Extent::new(start, 8));
        for place in places {
            assert!(bench.answer(filled(place.start.0, 8, 1)).is_ok());
        }
        *bench.script.order.borrow_mut() = Some(Rng::new(seed));
        let requests = [
            Request::write_zeroes(zeroed, true),
            filled(1, 1, 2),
            filled(zeroed.end().0, 1, 3),
            filled(9, 1, 4),
        ];
        let completions = requests.map(|request| bench.core.submit(request));
        bench.core.drain();
        for completion in completions {
            assert!(now(completion).is_ok());
        }
        let [first, mut inside, last] = places.map(|extent| {
            let content = bench.answer(Request::Read { extent }).unwrap().to_bytes().unwrap();
            content.iter().copied().step_by(512).collect::<Vec<_>>()
        });
        assert_eq!(first, [1, 2, 1, 0, 0, 0, 0, 0], "seed {seed}");
        assert_eq!(last, [0, 0, 0, 0, 0, 3, 1, 1], "seed {seed}");
        // Of two changes under way together either may come last.
        assert!([0, 4].contains(&std::mem::take(&mut inside[1])), "seed {seed}");
        assert_eq!(inside, [0; 8], "seed {seed}");
    }
}

#[test]
fn writes_of_other_logical_sectors_do_not_wait_for_each_other() {
    let bench = large_sectors([]);
    let both = [filled(0, 1, 1), filled(8, 1, 2)].map(|request| bench.core.submit(request));
    bench.core.drain();
    for completion in both {
        assert!(now(completion).is_ok());
    }
    let asked = ["read 0+4096", "read 4096+4096", "write 0+4096 lazily", "write 4096+4096 lazily"];
    assert_eq!(bench.asked(), asked);
}

#[test]
fn only_what_is_cut_is_read_before_a_write() {
    for (request, reads) in [
        (filled(8, 8, 1), &[][..]),
        (filled(9, 7, 1), &["read 4096+4096"]),
        (filled(9, 2, 1), &["read 4096+4096"]),
        (filled(8, 9, 1), &["read 8192+4096"]),
        (filled(7, 10, 1), &["read 0+4096", "read 8192+4096"]),
    ] {
        let bench = large_sectors([]);
        assert!(bench.answer(request).is_ok());
        let mut asked = bench.asked();
        asked.pop();
        assert_eq!(asked, reads);
    }
}

#[test]
fn a_write_whose_neighbours_cannot_be_read_fails_and_writes_nothing() {
    let bench = large_sectors([Err(Errno::NODATA), Err(Errno::IO)]);
    let extent = Extent::new(8, 8);
    assert_eq!(bench.answer(write(true)), Err(IoError::Medium { extent }));
    assert_eq!(bench.answer(write(true)), Err(IoError::Transient { extent }));
    assert_eq!(bench.asked(), ["read 4096+4096", "read 4096+4096"]);
    assert!(bench.answer(Request::Flush).is_ok(), "nothing was written that could be lost");
    assert!(bench.answer(write(true)).is_ok(), "the claim ended with the failed write");
}

#[test]
fn an_operation_cut_short_goes_on_at_a_whole_logical_sector() {
    let bench = large_sectors([Ok(5000), Ok(4096)]);
    assert!(bench.answer(filled(0, 16, 1)).is_ok());
    assert_eq!(bench.asked(), ["write 0+8192 lazily", "write 4096+4096 lazily"]);
    let bench = large_sectors([Ok(5000), Ok(4096)]);
    let read = bench.answer(Request::Read { extent: Extent::new(1, 14) }).unwrap();
    assert_eq!(read.len(), Sectors(14));
    assert_eq!(bench.asked(), ["read 0+8192", "read 4096+4096"]);
}

#[test]
fn zeroes_and_discards_leave_the_rest_of_logical_sectors() {
    for request in [
        Request::Discard { extent: Extent::new(3, 2), fua: false },
        Request::Discard { extent: Extent::new(3, 602), fua: false },
        Request::write_zeroes(Extent::new(3, 2), false),
        Request::write_zeroes(Extent::new(3, 602), true),
    ] {
        let bench = large_sectors([]);
        let zeroed = request.extent().unwrap();
        assert!(bench.answer(filled(0, 640, 1)).is_ok());
        assert!(bench.answer(request).is_ok());
        for (sector, byte) in (0..).zip(first_bytes(&bench, 640)) {
            assert_eq!(byte == 0, zeroed.contains(Extent::new(sector, 1)), "{zeroed}: {sector}");
        }
    }
}
