//! The io_uring: one for each reactor.
//!
//! Memory that the kernel may still write to or read from stays in `in_flight` until the kernel has
//! finished. It never belongs to a future, which could be dropped.

#![expect(unsafe_code, reason = "the kernel is given pointers")]

mod requests;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{Probe, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::buffer::{Buffer, Source};
use crate::event::Event;
use crate::file_io::{Done, Op, WriteMode};
use crate::priority::REAL_TIME_IO;
use crate::request_ring::Entries;
use crate::slab::Slab;
use crate::uring::Uring;

/// Registered memory: 4 MiB, half of what an ordinary user may lock.
const REGISTERED: u16 = 32;
const REGISTERED_BYTES: usize = 128 << 10;
/// The number of the event; operations have those of their slots.
const EVENT_KEY: u64 = u64::MAX;
/// The number of requests that end waits; their own end is ignored.
const FORGET_KEY: u64 = u64::MAX - 1;
/// Added to the number of an entry for requests: the number of its commands.
const REQUEST_KEY: u64 = 1 << 62;
/// Longer than a wait takes to end.
const FORGET_WAIT: Duration = Duration::from_millis(10);
/// Tries before a kernel queue that stays full is an error.
const SUBMIT_TRIES: u32 = 10_000;

/// An io_uring with its operations in flight. Dropping it waits for them.
pub(crate) struct Ring {
    // Declared first, dropped first: no registration outlives its memory.
    uring: Uring,
    in_flight: Slab<InFlight>,
    arrived: VecDeque<(usize, Done)>,
    /// Registered buffers that are not in use.
    spare: Vec<Buffer>,
    event: Arc<Event>,
    event_armed: bool,
    /// Whether the event was notified, or a request came, since the wait began.
    notified: bool,
    /// Entries for the kernel's requests. Their commands never end by themselves.
    requests: Option<Rc<Entries>>,
}

struct InFlight {
    key: usize,
    memory: Option<Source>,
    /// Keeps the file open until its last operation ends.
    _file: Arc<File>,
}

impl Ring {
    /// A ring whose waits end when `event` is notified.
    pub(crate) fn new(event: Arc<Event>) -> io::Result<Self> {
        let uring = Uring::new()?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let codes = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        let params = uring.params();
        if !params.is_feature_ext_arg()
            || !params.is_feature_nodrop()
            || codes.iter().any(|code| !probe.is_supported(*code))
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut ring = Self {
            uring,
            in_flight: Slab::default(),
            arrived: VecDeque::new(),
            spare: Vec::new(),
            event,
            event_armed: false,
            notified: false,
            requests: None,
        };
        ring.register();
        Ok(ring)
    }

    /// Registers buffers, if the limit on locked memory allows it: they only save time.
    fn register(&mut self) {
        let mut buffers: Vec<Buffer> =
            (0..REGISTERED).map(|index| Buffer::registered(REGISTERED_BYTES, index)).collect();
        let slices: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec {
                iov_base: buffer.bytes_mut().as_mut_ptr().cast(),
                iov_len: REGISTERED_BYTES,
            })
            .collect();
        // SAFETY: the memory is not freed before the ring: spare buffers live in it, and those in
        // use are handed back or, if they are dropped, never named to the kernel again (a pinned
        // page outlives its mapping).
        let registered = unsafe { self.uring.submitter().register_buffers(&slices) };
        if registered.is_ok() {
            self.spare = buffers;
        }
    }

    /// A registered buffer of `len` bytes, if one is free.
    pub(crate) fn buffer(&mut self, len: usize) -> Option<Buffer> {
        if len > REGISTERED_BYTES {
            return None;
        }
        let mut buffer = self.spare.pop()?;
        buffer.set_len(len);
        Some(buffer)
    }

    /// Takes back a buffer that came from this ring.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        if buffer.registration().is_some() {
            self.spare.push(buffer);
        }
    }

    /// Queues `op`. It starts with the next [`Ring::submit`] or wait, which follows soon.
    pub(crate) fn start(&mut self, key: usize, file: Arc<File>, op: Op) {
        let fd = Fd(file.as_raw_fd());
        let slot = self.in_flight.insert(InFlight { key, memory: None, _file: file });
        let entry = match op {
            Op::Read { at, mut into } => {
                // The only place where the kernel gets memory to write to: nobody shares the buffer
                // yet.
                let start = into.bytes_mut().as_mut_ptr();
                let memory = Memory { start, ..self.keep(slot, Source::Own(into)) };
                read_entry(fd, at, memory)
            }
            Op::Write { at, from, mode } => write_entry(fd, at, mode, self.keep(slot, from)),
            Op::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Op::Call(_) => unreachable!("calls go to the threads"),
        };
        self.queue(slot, entry);
    }

    /// Queues a wait for one of `events` of the descriptor, or for its other end to be gone.
    pub(crate) fn watch(&mut self, key: usize, file: Arc<File>, events: PollFlags) {
        let entry = opcode::PollAdd::new(Fd(file.as_raw_fd()), events.bits().into()).build();
        let slot = self.in_flight.insert(InFlight { key, memory: None, _file: file });
        self.queue(slot, entry);
    }

    /// Ends a wait for a descriptor. When this returns, the kernel no longer holds the descriptor.
    pub(crate) fn forget(&mut self, key: usize) {
        let Some(slot) = self.in_flight.find(|in_flight| in_flight.key == key) else { return };
        let entry = opcode::PollRemove::new(slot as u64).build();
        let mut asked = self.push(&entry.user_data(FORGET_KEY));
        while asked.is_ok() && self.in_flight.get_mut(slot).is_some_and(|left| left.key == key) {
            asked = self.wait(Some(FORGET_WAIT));
        }
    }

    fn queue(&mut self, slot: usize, entry: squeue::Entry) {
        if let Err(error) = self.push(&entry.user_data(slot as u64)) {
            self.end(slot, Err(errno(&error)));
        }
    }

    /// Puts the buffer where it stays until the kernel has finished with it.
    fn keep(&mut self, slot: usize, source: Source) -> Memory {
        let bytes = source.bytes();
        let length = u32::try_from(bytes.len());
        let memory = Memory {
            start: bytes.as_ptr().cast_mut(),
            len: length.unwrap_or_else(|_| unreachable!("requests are cut far shorter")),
            registered: source.registration(),
        };
        if let Some(in_flight) = self.in_flight.get_mut(slot) {
            in_flight.memory = Some(source);
        }
        memory
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: memory and file of the entry are kept in `in_flight` until it is complete.
            if let Ok(()) = unsafe { self.uring.push(entry) } {
                return Ok(());
            }
            self.enter()?;
        }
    }

    /// Gives the kernel the queued entries, and answers to its requests.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.queue_answers()?;
        self.enter()
    }

    /// Gives the kernel the queued entries.
    fn enter(&mut self) -> io::Result<()> {
        for _ in 0..SUBMIT_TRIES {
            if self.uring.state().0 {
                return Ok(());
            }
            match self.uring.submitter().submit() {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {
                    self.collect();
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Submits, and waits until an operation has ended, the event is notified or `timeout` is over.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // The caller already knows of earlier notifications. Those that `collect` finds from here
        // on are new to it, so the wait must not swallow them.
        self.notified = false;
        self.collect();
        self.queue_answers()?;
        if !self.event_armed {
            let events = PollFlags::IN.bits().into();
            let entry = opcode::PollAdd::new(Fd(self.event.as_raw_fd()), events).build();
            self.push(&entry.user_data(EVENT_KEY))?;
            self.event_armed = true;
        }
        if self.notified || !self.arrived.is_empty() {
            return self.enter();
        }
        let submitter = self.uring.submitter();
        let waited = match timeout.map(Timespec::from) {
            Some(span) => submitter.submit_with_args(1, &SubmitArgs::new().timespec(&span)),
            None => submitter.submit_and_wait(1),
        };
        self.collect();
        match waited {
            Err(error) if is_passing(&error) || errno(&error) == Errno::TIME => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// The next operation that has ended.
    pub(crate) fn next_done(&mut self) -> Option<(usize, Done)> {
        if self.arrived.is_empty() {
            self.collect();
        }
        self.arrived.pop_front()
    }

    fn collect(&mut self) {
        if self.uring.state().1 {
            // Fetches completions that the kernel holds back. If it refuses, the next check asks
            // again.
            let _ = self.uring.submitter().submit();
        }
        loop {
            let Some(entry) = self.uring.completion().next() else { return };
            if entry.user_data() == EVENT_KEY {
                self.event_armed = false;
                self.notified = true;
                self.event.clear();
                continue;
            }
            if entry.user_data() == FORGET_KEY {
                continue;
            }
            if let Some(slot) = entry.user_data().checked_sub(REQUEST_KEY) {
                self.end_request(slot, entry.result());
                continue;
            }
            let slot = manylogs_block::to_usize(entry.user_data());
            let result = usize::try_from(entry.result())
                .map_err(|_| Errno::from_raw_os_error(-entry.result()));
            self.end(slot, result);
        }
    }

    fn end(&mut self, slot: usize, result: Result<usize, Errno>) {
        if let Some(InFlight { key, memory, .. }) = self.in_flight.remove(slot) {
            let buffer = memory.and_then(Source::into_buffer);
            self.arrived.push_back((key, Done { result, buffer }));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight.len() > 0 {
            if self.wait(None).is_err() {
                // The kernel may still use the memory: it is better leaked than reused.
                std::mem::forget(std::mem::take(&mut self.in_flight));
                return;
            }
        }
    }
}

struct Memory {
    start: *mut u8,
    len: u32,
    registered: Option<u16>,
}

fn read_entry(fd: Fd, at: u64, memory: Memory) -> squeue::Entry {
    let Memory { start, len, registered } = memory;
    match registered {
        Some(index) => opcode::ReadFixed::new(fd, start, len, index).offset(at).build(),
        None => opcode::Read::new(fd, start, len).offset(at).build(),
    }
}

fn write_entry(fd: Fd, at: u64, mode: WriteMode, memory: Memory) -> squeue::Entry {
    let Memory { start, len, registered } = memory;
    let dsync = ReadWriteFlags::DSYNC.bits().cast_signed();
    let flags = if mode.durable { dsync } else { 0 };
    let priority = if mode.urgent { REAL_TIME_IO } else { 0 };
    match registered {
        Some(index) => opcode::WriteFixed::new(fd, start, len, index)
            .offset(at)
            .rw_flags(flags)
            .ioprio(priority)
            .build(),
        None => {
            opcode::Write::new(fd, start, len).offset(at).rw_flags(flags).ioprio(priority).build()
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether the kernel asks to try again later, or a signal came.
fn is_passing(error: &io::Error) -> bool {
    [Errno::INTR, Errno::BUSY, Errno::AGAIN].contains(&errno(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::may_prefer_io;

    #[test]
    fn the_kernel_takes_writes_with_priority_from_those_who_may_ask() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let Ok(mut ring) = Ring::new(Arc::new(Event::new().unwrap())) else {
            manylogs_testkit::skip("the kernel has no io_uring for us");
            return;
        };
        let registered = ring.buffer(512);
        let buffers = [Some(Buffer::new(512)), registered].into_iter().flatten();
        for (key, mut buffer) in buffers.enumerate() {
            buffer.bytes_mut().fill(0xa0 + u8::try_from(key).unwrap());
            let mode = WriteMode { durable: true, urgent: true };
            let at = 512 * key as u64;
            ring.start(key, Arc::clone(&file), Op::Write { at, from: Source::Own(buffer), mode });
            let done = loop {
                match ring.next_done() {
                    Some((of, done)) => break (of, done.result),
                    None => ring.wait(None).unwrap(),
                }
            };
            // A thread without the right gets an error; devices do not ask then.
            let wanted = if may_prefer_io() { Ok(512) } else { Err(Errno::PERM) };
            assert_eq!(done, (key, wanted));
        }
    }
}
