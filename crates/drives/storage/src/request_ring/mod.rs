//! Requests of FUSE that the kernel puts into memory of ours, through the reactor's ring (FUSE over
//! io_uring, Linux 6.14): one system call hands over an answer and waits for the next request.
//!
//! Facts are from the kernel's `Documentation/filesystems/fuse-io-uring.rst` and its public header.
//! The kernel has a queue of entries for each possible processor, and uses the queue of the
//! processor that the asking thread runs on. An entry belongs to
//!
//! * the kernel, from the command that hands it over until that command is complete. The kernel
//!   touches its memory only while the ring's thread is in a system call for the ring;
//! * then to the [`RingAnswer`] of its request, and its payload is lent to the [`RingRequest`] for
//!   as long as that lives;
//! * then to the list of answers, and to the command that hands it over.
//!
//! The kernel names an entry by its memory, once and for all. The ring holds the memory until it is
//! closed.

#![expect(unsafe_code, reason = "memory is shared with the kernel")]

mod answer;
mod layout;
mod memory;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::opcode::UringCmd80;
use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use manylogs_block::{Signal, Wait};
use manylogs_plant::{Bug, is};

pub use answer::RingAnswer;

use crate::watcher::Watcher;
use answer::{Answered, Desk};
use layout::{
    COMMIT_AND_FETCH, HEADERS_BYTES, ID_AT, IN_HEADER_BYTES, OPERATION_AT, OPERATION_BYTES,
    PAYLOAD_LEN_AT, REGISTER, command,
};
use memory::Memory;

/// How many entries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Queues: as many as the machine may have processors.
    pub queues: u16,
    /// Entries of each queue: so many requests of one processor can be under way.
    pub depth: u16,
    /// Bytes of the longest payload, in whole pages.
    pub payload_bytes: usize,
}

/// The kernel's requests in a reactor's ring. It belongs to the reactor's thread.
#[derive(Debug)]
pub struct RequestRing(Rc<Entries>);

/// A request of the kernel, for as long as it is read.
pub struct RingRequest<'r> {
    desk: &'r Desk,
    slot: u32,
    head: [u8; IN_HEADER_BYTES + OPERATION_BYTES],
    payload_len: usize,
}

/// The entries, as the ring's thread sees them.
pub(crate) struct Entries {
    desk: Arc<Desk>,
    device: Arc<File>,
    depth: u16,
    /// What the kernel is told of each entry's memory: headers and payload.
    places: Box<[[libc::iovec; 2]]>,
    /// Entries with requests.
    arrived: RefCell<VecDeque<u32>>,
    arrival: Signal,
    /// Whether requests have arrived since the last signal.
    untold: Cell<bool>,
    /// Entries of each queue that the kernel has not refused.
    usable: RefCell<Vec<u16>>,
    /// The kernel's last refusal.
    refused: Cell<i32>,
}

impl RequestRing {
    /// Whether the kernel may take commands through the ring of this reactor. Whether `FUSE` does,
    /// the kernel says when it introduces itself.
    #[must_use]
    pub fn is_possible(watcher: &Watcher) -> bool {
        watcher.driver().takes_commands()
    }

    /// Hands the entries to the kernel, for the connection `device`. The kernel waits for that, or
    /// for a refusal, before it sends requests: so it must follow the agreement.
    ///
    /// # Errors
    /// If there is no memory for the entries, or the kernel refuses them: then requests come by the
    /// device alone.
    pub fn register(watcher: &Watcher, device: Arc<File>, shape: RingShape) -> io::Result<Self> {
        let driver = watcher.driver();
        let slots = usize::from(shape.queues) * usize::from(shape.depth);
        let planted = usize::from(is(Bug::RingEntriesTooSmall)) * shape.payload_bytes / 2;
        let made = Memory::new(slots, shape.payload_bytes - planted).and_then(|memory| {
            let desk = Arc::new(Desk::new(memory, Arc::clone(driver.event())));
            let entries = Rc::new(Entries::new(desk, Arc::clone(&device), shape));
            driver.take_requests(&entries).map(|()| entries)
        });
        let entries = made.or_else(|error| {
            // Else the kernel would wait for entries for ever.
            driver.refuse_requests(&refusal(&device))?;
            Err(error)
        })?;
        if entries.usable.borrow().contains(&0) {
            return Err(io::Error::from_raw_os_error(-entries.refused.get()));
        }
        Ok(Self(entries))
    }

    /// The next request that has arrived. Its answer must follow, from whichever thread.
    #[must_use]
    pub fn next(&self) -> Option<(RingRequest<'_>, RingAnswer)> {
        let slot = self.0.arrived.borrow_mut().pop_front()?;
        Some(self.0.request(slot))
    }

    /// Whether a request has arrived.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.0.arrived.borrow().is_empty()
    }

    /// Resolves when the next request arrives.
    pub fn arrival(&self) -> Wait {
        self.0.arrival.wait()
    }

    /// Bytes of address space for entries. Only what requests and answers have touched is memory.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.0.desk.memory.bytes()
    }
}

impl RingRequest<'_> {
    /// The request's header and that of its operation, which follow one another. The lengths are
    /// not checked; what lies behind the operation's header has no meaning.
    #[must_use]
    pub const fn head(&self) -> &[u8] {
        &self.head
    }

    /// What follows the operation's header: names or content.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        // SAFETY: within the payload. It is lent: nobody writes to it while this lives.
        unsafe { std::slice::from_raw_parts(self.desk.memory.payload(self.slot), self.payload_len) }
    }
}

impl Drop for RingRequest<'_> {
    fn drop(&mut self) {
        self.desk.lent[self.slot as usize].store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for RingRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingRequest(entry {}, {} bytes of payload)", self.slot, self.payload_len)
    }
}

impl Entries {
    fn new(desk: Arc<Desk>, device: Arc<File>, shape: RingShape) -> Self {
        let slots = 0..u32::from(shape.queues) * u32::from(shape.depth);
        let place = |base: *mut u8, iov_len| libc::iovec { iov_base: base.cast(), iov_len };
        let places = slots.map(|slot| {
            let payload = place(desk.memory.payload(slot), desk.memory.payload_bytes());
            [place(desk.memory.head(slot), HEADERS_BYTES), payload]
        });
        Self {
            places: places.collect(),
            desk,
            device,
            depth: shape.depth,
            arrived: RefCell::default(),
            arrival: Signal::default(),
            untold: Cell::default(),
            usable: RefCell::new(vec![shape.depth; shape.queues.into()]),
            refused: Cell::default(),
        }
    }

    fn queue(&self, slot: u32) -> u16 {
        u16::try_from(slot / u32::from(self.depth)).unwrap_or(u16::MAX)
    }

    /// The numbers of all entries.
    pub(crate) fn slots(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// The command that makes an entry known to the kernel.
    pub(crate) fn registration(&self, slot: u32) -> Entry128 {
        let entry = UringCmd80::new(Fd(self.device.as_raw_fd()), REGISTER)
            .cmd(command(self.queue(slot), 0))
            .addr(Some(self.places[slot as usize].as_ptr() as u64));
        with_len(entry.build(), 2)
    }

    /// The command for the next answer, and the number of its entry.
    pub(crate) fn next_commit(&self) -> Option<(Entry128, Answered)> {
        let answered = self.desk.next_answered()?;
        let command = command(self.queue(answered.slot), answered.id);
        let device = Fd(self.device.as_raw_fd());
        Some((UringCmd80::new(device, COMMIT_AND_FETCH).cmd(command).build(), answered))
    }

    /// Takes back an answer whose command was not queued.
    pub(crate) fn put_back(&self, answered: Answered) {
        self.desk.put_back(answered);
    }

    /// Whether there are answers for the kernel.
    pub(crate) fn any_answered(&self) -> bool {
        self.desk.any_answered()
    }

    /// Notes that the command of an entry is complete: the entry holds a request, unless the kernel
    /// refused the command or the connection has ended.
    pub(crate) fn complete(&self, slot: u32, result: i32) {
        if result < 0 {
            self.refused.set(result);
            let queue = usize::from(self.queue(slot));
            if let Some(usable) = self.usable.borrow_mut().get_mut(queue) {
                *usable = usable.saturating_sub(1);
            }
            return;
        }
        self.arrived.borrow_mut().push_back(slot);
        self.untold.set(true);
    }

    /// Wakes who waits for requests that have arrived. Not called while the thread counts as
    /// asleep, because then it would be woken by another system call.
    pub(crate) fn tell(&self) {
        if self.untold.take() {
            self.arrival.notify();
        }
    }

    fn request(&self, slot: u32) -> (RingRequest<'_>, RingAnswer) {
        let mut head = [0; IN_HEADER_BYTES + OPERATION_BYTES];
        let from = self.desk.memory.head(slot);
        // SAFETY: within the headers, which belong to us as the command of the entry is complete.
        let (id, payload_len) = unsafe {
            std::ptr::copy_nonoverlapping(from, head.as_mut_ptr(), IN_HEADER_BYTES);
            let operation = from.add(OPERATION_AT);
            let to = head.as_mut_ptr().add(IN_HEADER_BYTES);
            std::ptr::copy_nonoverlapping(operation, to, OPERATION_BYTES);
            let payload_len = from.add(PAYLOAD_LEN_AT).cast::<u32>().read();
            (from.add(ID_AT).cast::<u64>().read(), payload_len as usize)
        };
        let payload_len = payload_len.min(self.desk.memory.payload_bytes());
        self.desk.lent[slot as usize].store(true, Ordering::Release);
        let answer = RingAnswer::new(Arc::clone(&self.desk), slot, id);
        (RingRequest { desk: &self.desk, slot, head, payload_len }, answer)
    }
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entries({} of {} a queue)", self.places.len(), self.depth)
    }
}

/// A command that the kernel refuses. After it the kernel sends requests through the device.
fn refusal(device: &File) -> Entry128 {
    UringCmd80::new(Fd(device.as_raw_fd()), REGISTER).cmd(command(0, 0)).build()
}

/// The entry with the field `len` set, which the library leaves at zero.
fn with_len(mut entry: Entry128, len: u32) -> Entry128 {
    /// Where the field lies (`struct io_uring_sqe`).
    const LEN_AT: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: within the entry, which consists of numbers alone.
    unsafe { (&raw mut entry).cast::<u8>().add(LEN_AT).cast::<u32>().write(len) };
    entry
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
