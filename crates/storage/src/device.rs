//! Disks, partitions and files as block devices.

use std::cell::Cell;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::{
    Capabilities, Completer, Completion, Extent, IoError, IoResult, Payload, Request, SECTOR_BYTES,
    Sectors, completion,
};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::engine::{Callback, Done, Engine, Op};
use crate::failure::{io_error, is_unsupported};
use crate::ioctl;
use crate::transfer::{Transfer, Work, has_bytes};

/// Zeroes up to this long are written as data, beside other writes; longer ones are one call that
/// may take its time.
const ZEROES_WRITTEN: Sectors = Sectors((128 << 10) / SECTOR_BYTES);
/// Zeroes written at a time where the system has no call for them.
const ZEROES_AT_A_TIME: u64 = 1 << 20;

/// What lies under a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// An ordinary file.
    File,
    /// A disk or a partition.
    Disk {
        /// Whether it takes discards that say nothing of the content afterwards.
        discards: bool,
    },
}

/// What a device does its work with.
pub(crate) struct Core {
    pub(crate) file: Arc<File>,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) capabilities: Capabilities,
    pub(crate) medium: Medium,
    pub(crate) writable: bool,
    /// Whether I/O bypasses the page cache.
    pub(crate) direct: bool,
    pub(crate) in_flight: Cell<usize>,
    pub(crate) flush_failed: Cell<bool>,
}

impl Core {
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.engine.buffer(len)
    }

    pub(crate) fn recycle(&self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer {
            self.engine.recycle(buffer);
        }
    }

    pub(crate) fn start(self: Rc<Self>, op: Op, then: impl FnOnce(Done) + 'static) {
        self.in_flight.set(self.in_flight.get() + 1);
        let this = Rc::clone(&self);
        let counted: Callback = Box::new(move |done| {
            then(done);
            this.in_flight.set(this.in_flight.get() - 1);
        });
        self.engine.start(&self.file, op, counted);
    }

    /// Waits for everything in flight.
    pub(crate) fn drain(&self) {
        while self.in_flight.get() > 0 {
            self.engine.wait();
        }
    }

    /// The error that `errno` stands for, which may spoil later flushes.
    pub(crate) fn failure(&self, errno: Errno, extent: Extent, durable: bool) -> IoError {
        if self.shrank_below(extent) {
            return IoError::Shrunk { extent };
        }
        let error = io_error(errno, extent);
        // A durable write is a write and a flush in one call, which does not say what failed. Past
        // the page cache a lack of space shows before anything is flushed.
        let flush_is_blameless = match error {
            IoError::NoSpace { .. } => self.direct,
            IoError::Medium { .. } | IoError::Transient { .. } | IoError::Gone => false,
            _ => true,
        };
        if durable && !flush_is_blameless {
            self.flush_failed.set(true);
        }
        error
    }

    /// Whether the device ends before `extent` does. A disk answers a write behind its end with
    /// "no space", a file grows by it.
    fn shrank_below(&self, extent: Extent) -> bool {
        self.size().is_some_and(|size| size < extent.end().0 * SECTOR_BYTES)
    }

    /// Size in bytes as it is now.
    fn size(&self) -> Option<u64> {
        match self.medium {
            Medium::File => self.file.metadata().ok().map(|metadata| metadata.len()),
            // Nothing uses the position that this sets.
            Medium::Disk { .. } => rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::End(0)).ok(),
        }
    }

    fn flush(self: Rc<Self>, completer: Completer) {
        if self.flush_failed.get() {
            return completer.complete(Err(IoError::FlushFailed));
        }
        let this = Rc::clone(&self);
        self.start(Op::Sync, move |done| completer.complete(this.flushed(&done)));
    }

    fn flushed(&self, done: &Done) -> IoResult {
        if done.result.is_err() {
            self.flush_failed.set(true);
        }
        // The kernel reports a failure once: this flush may have missed what another one saw.
        if self.flush_failed.get() {
            return Err(IoError::FlushFailed);
        }
        let whole = Extent { len: self.capabilities.capacity, ..Extent::default() };
        if self.shrank_below(whole) {
            return Err(IoError::Shrunk { extent: whole });
        }
        Ok(Payload::default())
    }

    fn zero(self: Rc<Self>, extent: Extent, durable: bool, completer: Completer) {
        if extent.len <= ZEROES_WRITTEN {
            let work = Work::Write { payload: Payload::zeroes(extent.len), durable };
            return Transfer::start(self, extent, work, completer);
        }
        self.call(extent, durable, completer, zero_range);
    }

    fn discard(self: Rc<Self>, extent: Extent, completer: Completer) {
        if self.capabilities.discard {
            return self.call(extent, false, completer, punch);
        }
        if self.medium == (Medium::Disk { discards: true }) {
            // Advice that the disk does not take is no failure.
            return self.call(extent, false, completer, |file, at, len| {
                ioctl::discard(file, at, len)
                    .or_else(|errno| if is_unsupported(errno) { Ok(()) } else { Err(errno) })
            });
        }
        completer.complete(Ok(Payload::default()));
    }

    /// Lets a thread call `call` for the extent in bytes, and flushes after it if asked to.
    fn call(
        self: Rc<Self>,
        extent: Extent,
        durable: bool,
        completer: Completer,
        call: impl FnOnce(&File, u64, u64) -> Result<(), Errno> + Send + 'static,
    ) {
        let (at, len) = (extent.start.0 * SECTOR_BYTES, extent.len.bytes());
        let op = Op::Call(Box::new(move |file| call(file, at, len)));
        let this = Rc::clone(&self);
        self.start(op, move |done| match done.result {
            Ok(_) if durable => this.flush(completer),
            Ok(_) => completer.complete(Ok(Payload::default())),
            Err(errno) => completer.complete(Err(this.failure(errno, extent, false))),
        });
    }
}

/// Zeroes a range and keeps its space.
fn zero_range(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, at, len) {
        Err(errno) if is_unsupported(errno) => write_zeroes(file, at, len),
        other => other,
    }
}

/// Zeroes a range and gives its space up.
fn punch(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, at, len) {
        Err(errno) if is_unsupported(errno) => zero_range(file, at, len),
        other => other,
    }
}

fn write_zeroes(file: &File, at: u64, len: u64) -> Result<(), Errno> {
    let zeroes = Buffer::new(manylogs_block::to_usize(len.min(ZEROES_AT_A_TIME)));
    let end = at + len;
    let mut at = at;
    while at < end {
        let part = manylogs_block::to_usize((end - at).min(ZEROES_AT_A_TIME));
        match rustix::io::pwrite(file, &zeroes.bytes()[..part], at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Core {
    pub(crate) fn submit(self: &Rc<Self>, request: Request) -> Completion {
        if let Err(error) = self.refuse(&request) {
            return Completion::ready(Err(error));
        }
        let (completer, completion) = completion();
        let core = Rc::clone(self);
        match request {
            Request::Read { extent } => {
                Transfer::start(core, extent, Work::Read(Payload::default()), completer);
            }
            Request::Write { extent, payload, fua, .. } => {
                Transfer::start(core, extent, Work::Write { payload, durable: fua }, completer);
            }
            Request::Flush => core.flush(completer),
            Request::Discard { extent } => core.discard(extent, completer),
            Request::WriteZeroes { extent, fua } => core.zero(extent, fua, completer),
        }
        completion
    }

    fn refuse(&self, request: &Request) -> Result<(), IoError> {
        self.capabilities.check(request)?;
        match request {
            Request::Read { .. } | Request::Flush => Ok(()),
            _ if !self.writable => Err(IoError::ReadOnly { reason: "it was opened for reading" }),
            Request::Write { payload, .. } if !has_bytes(payload) => Err(IoError::Unsupported),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// An engine that answers as it was told, and notes what it was asked.
    #[derive(Default)]
    struct Scripted(Rc<Script>);

    #[derive(Default)]
    struct Script {
        answers: RefCell<VecDeque<Result<usize, Errno>>>,
        asked: RefCell<Vec<String>>,
        started: RefCell<VecDeque<(Op, Callback)>>,
    }

    impl Engine for Scripted {
        fn buffer(&self, len: usize) -> Buffer {
            Buffer::new(len)
        }

        fn recycle(&self, _buffer: Buffer) {}

        fn start(&self, _file: &Arc<File>, op: Op, then: Callback) {
            self.0.started.borrow_mut().push_back((op, then));
        }

        fn wait(&self) {
            let Some((op, then)) = self.0.started.borrow_mut().pop_front() else { return };
            let (asked, buffer) = match op {
                Op::Read { at, into } => (format!("read {at}+{}", into.bytes().len()), Some(into)),
                Op::Write { at, from, durable } => {
                    let how = if durable { "durably" } else { "lazily" };
                    (format!("write {at}+{} {how}", from.bytes().len()), from.into_buffer())
                }
                Op::Sync => ("sync".to_owned(), None),
                Op::Call(_) => ("call".to_owned(), None),
            };
            self.0.asked.borrow_mut().push(asked);
            let whole = buffer.as_ref().map_or(0, |buffer| buffer.bytes().len());
            let result = self.0.answers.borrow_mut().pop_front().unwrap_or(Ok(whole));
            then(Done { result, buffer });
        }
    }

    struct Bench {
        core: Rc<Core>,
        script: Rc<Script>,
    }

    fn bench(direct: bool, answers: impl IntoIterator<Item = Result<usize, Errno>>) -> Bench {
        let script = Rc::new(Script::default());
        script.answers.borrow_mut().extend(answers);
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let capabilities = Capabilities {
            capacity: Sectors(2048),
            physical_sector: Sectors(1),
            rotational: true,
            volatile_cache: true,
            native_fua: false,
            discard: true,
        };
        let core = Core {
            file: Arc::new(file),
            engine: Box::new(Scripted(Rc::clone(&script))),
            capabilities,
            medium: Medium::File,
            writable: true,
            direct,
            in_flight: 0.into(),
            flush_failed: false.into(),
        };
        Bench { core: Rc::new(core), script }
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
        let zeroes = |len| Request::WriteZeroes { extent: Extent::new(0, len), fua: true };
        let bench = bench(true, [Ok(0), Ok(0), Ok(0), Err(Errno::IO)]);
        assert!(bench.answer(zeroes(2048)).is_ok());
        assert_eq!(bench.asked(), ["call", "sync"]);
        assert_eq!(bench.answer(zeroes(2048)), Err(IoError::FlushFailed));
        assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
        bench.asked();
        assert!(bench.answer(zeroes(1)).is_ok());
        assert_eq!(bench.asked(), ["write 0+512 durably"]);
    }
}
