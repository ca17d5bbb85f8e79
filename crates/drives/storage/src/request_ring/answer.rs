//! Answers to requests of the ring, which any thread may give.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use manylogs_plant::{Bug, is};
use rustix::io::Errno;

use super::layout::{OUT_HEADER_BYTES, PAYLOAD_LEN_AT};
use super::memory::Memory;
use crate::event::Event;

/// The entries, and which of them wait to be handed to the kernel.
pub(super) struct Desk {
    pub(super) memory: Memory,
    /// Whether the payload of an entry is lent to whoever reads the request.
    pub(super) lent: Box<[AtomicBool]>,
    answered: Mutex<Vec<Answered>>,
    /// Number of these, as a hint.
    waiting: AtomicUsize,
    event: Arc<Event>,
    /// The thread of the ring.
    thread: ThreadId,
}

/// An entry whose answer is to be handed to the kernel.
pub(crate) struct Answered {
    pub(super) slot: u32,
    /// Number of the request.
    pub(super) id: u64,
    /// What belongs into the payload, if it was lent when the answer was given.
    staged: Option<Box<[u8]>>,
}

impl Answered {
    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }
}

impl Desk {
    /// Entries for the ring of this thread, which `event` wakes.
    pub(super) fn new(memory: Memory, event: Arc<Event>) -> Self {
        let lent = (0..memory.slots()).map(|_| AtomicBool::new(false)).collect();
        let thread = std::thread::current().id();
        let (answered, waiting) = (Mutex::default(), AtomicUsize::new(0));
        Self { memory, lent, answered, waiting, event, thread }
    }

    fn answered(&self) -> MutexGuard<'_, Vec<Answered>> {
        // No code that may panic runs under the lock.
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_lent(&self, slot: u32) -> bool {
        self.lent[slot as usize].load(Ordering::Acquire)
    }

    fn add(&self, answered: Answered) {
        let mut list = self.answered();
        list.push(answered);
        self.waiting.store(list.len(), Ordering::Release);
        drop(list);
        if std::thread::current().id() != self.thread {
            self.event.notify();
        }
    }

    /// Whether answers wait. Other threads that add one wake the ring's thread.
    pub(super) fn any_answered(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// The next answer for the kernel. Its content is in the entry's memory.
    pub(super) fn next_answered(&self) -> Option<Answered> {
        let mut list = self.answered();
        let found = list.iter().position(|answered| !self.is_lent(answered.slot))?;
        let mut answered = list.remove(found);
        self.waiting.store(list.len(), Ordering::Release);
        drop(list);
        if let Some(staged) = answered.staged.take() {
            self.fill(answered.slot, 0, &staged);
        }
        Some(answered)
    }

    /// Takes back an answer that could not be handed to the kernel.
    pub(super) fn put_back(&self, answered: Answered) {
        self.add(answered);
    }

    /// Writes to a payload that belongs to the caller.
    fn fill(&self, slot: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.memory.payload_bytes());
        // SAFETY: within the payload. It belongs to whoever answers, and is lent to nobody.
        unsafe {
            let to = self.memory.payload(slot).add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Writes the headers of an answer.
    fn head(&self, slot: u32, header: &[u8; OUT_HEADER_BYTES], payload_len: u32) {
        let head = self.memory.head(slot);
        // SAFETY: within the headers, which belong to whoever answers.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), head, header.len());
            head.add(PAYLOAD_LEN_AT).cast::<u32>().write(payload_len);
        }
    }
}

/// The right and the duty to answer one request. Any thread may do so. If it is dropped the answer
/// is `EIO`, so that nobody waits for ever. After the end of the ring an answer goes nowhere.
pub struct RingAnswer {
    /// `None` once it is answered.
    desk: Option<Arc<Desk>>,
    slot: u32,
    id: u64,
}

impl RingAnswer {
    pub(super) const fn new(desk: Arc<Desk>, slot: u32, id: u64) -> Self {
        Self { desk: Some(desk), slot, id }
    }

    /// Answers with a header (`fuse_out_header`) and the bytes that follow it, in two parts.
    ///
    /// # Errors
    /// The answer is returned if the parts do not fit the entry.
    pub fn send(
        mut self,
        header: &[u8; OUT_HEADER_BYTES],
        [first, second]: [&[u8]; 2],
    ) -> Result<(), Self> {
        let Some(desk) = self.desk.take() else { return Ok(()) };
        let len = first.len() + second.len();
        let Some(told) = u32::try_from(len).ok().filter(|_| len <= desk.memory.payload_bytes())
        else {
            self.desk = Some(desk);
            return Err(self);
        };
        let told = if is(Bug::RingAnswerCutShort) { told.saturating_sub(1) } else { told };
        desk.head(self.slot, header, told);
        // The caller may still read the request, whose place the answer takes.
        let staged = if len > 0 && desk.is_lent(self.slot) {
            Some([first, second].concat().into_boxed_slice())
        } else {
            desk.fill(self.slot, 0, first);
            desk.fill(self.slot, first.len(), second);
            None
        };
        desk.add(Answered { slot: self.slot, id: self.id, staged });
        Ok(())
    }
}

impl Drop for RingAnswer {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.take() {
            let len = 16_u32.to_ne_bytes();
            let error = (-Errno::IO.raw_os_error()).to_ne_bytes();
            let mut header = [0; OUT_HEADER_BYTES];
            header[..4].copy_from_slice(&len);
            header[4..8].copy_from_slice(&error);
            header[8..].copy_from_slice(&self.id.to_ne_bytes());
            desk.head(self.slot, &header, 0);
            desk.add(Answered { slot: self.slot, id: self.id, staged: None });
        }
    }
}

impl std::fmt::Debug for RingAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingAnswer(request {}, entry {})", self.id, self.slot)
    }
}
