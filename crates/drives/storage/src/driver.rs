//! The ring and the threads on which a reactor waits.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use manylogs_plant::Bug;
use rustix::event::PollFlags;

use crate::buffer::{Buffer, Shelf};
use crate::event::Event;
use crate::file_io::{Callback, Done, FileIo, Op};
use crate::polled::Polled;
use crate::pool::{Pool, carry_out};
use crate::request_ring::Entries;
use crate::ring::Ring;
use crate::slab::Slab;

/// How long to sleep when the ring cannot be waited on (the kernel is out of memory).
const RETRY: Duration = Duration::from_millis(10);

/// Copies up to this length take less time than to wake another thread.
const SHORT_BYTES: usize = 64 << 10;

/// Operations in flight, with the ring and the threads that carry them out.
pub(crate) struct Driver {
    event: Arc<Event>,
    ring: RefCell<Option<Ring>>,
    pool: RefCell<Option<Pool>>,
    /// Operations that the reactor's thread has done itself and has not reported yet.
    at_once: RefCell<Vec<(usize, Done)>>,
    /// Descriptors that are waited for without a ring.
    polled: RefCell<Polled>,
    callbacks: RefCell<Slab<Callback>>,
    /// Memory for buffers that are not registered.
    shelf: Arc<Shelf>,
    /// Whether there may be queued entries that the kernel has not been given.
    queued: Cell<bool>,
}

impl Driver {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Self {
            event,
            ring: RefCell::default(),
            pool: RefCell::default(),
            at_once: RefCell::default(),
            polled: RefCell::default(),
            callbacks: RefCell::default(),
            shelf: Arc::default(),
            queued: Cell::default(),
        }
    }

    /// Makes the ring, unless there is one.
    ///
    /// # Errors
    /// If the kernel gives us no ring: it is too old, or forbids it (containers often do).
    pub(crate) fn open_ring(&self) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        if ring.is_none() {
            *ring = Some(Ring::new(Arc::clone(&self.event))?);
        }
        Ok(())
    }

    fn start(&self, by_ring: bool, file: &Arc<File>, op: Op, then: Callback) {
        let key = self.callbacks.borrow_mut().insert(then);
        let op = if by_ring {
            op.planted(Bug::RingIgnoresFua, Bug::RingSkipsSync)
        } else {
            op.planted(Bug::PoolIgnoresFua, Bug::PoolSkipsSync)
        };
        let mut ring = self.ring.borrow_mut();
        match ring.as_mut().filter(|_| by_ring && !matches!(op, Op::Call(_))) {
            Some(ring) => {
                ring.start(key, Arc::clone(file), op);
                self.queued.set(true);
            }
            None => {
                let mut pool = self.pool.borrow_mut();
                let pool = pool.get_or_insert_with(|| Pool::new(Arc::clone(&self.event)));
                pool.start(key, Arc::clone(file), op);
            }
        }
    }

    /// Calls `then` once one of `events` of the descriptor has come, or its other end is gone.
    /// Until then the returned number may be passed to [`Driver::forget`].
    pub(crate) fn watch(&self, file: &Arc<File>, events: PollFlags, then: Callback) -> usize {
        let key = self.callbacks.borrow_mut().insert(then);
        match self.ring.borrow_mut().as_mut() {
            Some(ring) => {
                ring.watch(key, Arc::clone(file), events);
                self.queued.set(true);
            }
            None => self.polled.borrow_mut().add(key, Arc::clone(file), events),
        }
        key
    }

    /// Ends a wait for a descriptor. The driver then holds the descriptor no longer.
    pub(crate) fn forget(&self, key: usize) {
        if self.polled.borrow_mut().remove(key) {
            self.callbacks.borrow_mut().remove(key);
        } else if let Some(ring) = self.ring.borrow_mut().as_mut() {
            // Its callback is called as if an event had come.
            ring.forget(key);
        }
    }

    /// Carries `op` out in this thread. The next [`Driver::reap`] calls back.
    fn do_at_once(&self, file: &File, op: Op, then: Callback) {
        let key = self.callbacks.borrow_mut().insert(then);
        let op = op.planted(Bug::MemoryIgnoresFua, Bug::MemorySkipsSync);
        let done = carry_out(file, op);
        self.at_once.borrow_mut().push((key, done));
    }

    /// What ends the sleep of the thread.
    pub(crate) const fn event(&self) -> &Arc<Event> {
        &self.event
    }

    /// Whether there is a ring that takes commands of drivers.
    pub(crate) fn takes_commands(&self) -> bool {
        self.ring.borrow().as_ref().is_some_and(Ring::takes_commands)
    }

    /// Hands entries for requests to the kernel.
    ///
    /// # Errors
    /// If there is no ring that can, or it has entries already; those of the kernel's queue.
    pub(crate) fn take_requests(&self, entries: &Rc<Entries>) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        ring.as_mut().ok_or(io::ErrorKind::Unsupported)?.take_requests(entries)
    }

    /// Gives the kernel a command that it refuses, after which it sends requests another way.
    pub(crate) fn refuse_requests(&self, refusal: &Entry128) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        ring.as_mut().ok_or(io::ErrorKind::Unsupported)?.refuse_requests(refusal)
    }

    /// Gives the kernel the queued entries. If it refuses for now, the next round tries again.
    pub(crate) fn submit(&self) {
        if let Some(ring) = self.ring.borrow_mut().as_mut()
            && (self.queued.get() || ring.any_answered())
        {
            self.queued.set(ring.submit().is_err());
        }
    }

    /// Calls the callbacks of all operations that have ended.
    pub(crate) fn reap(&self) {
        while let Some((key, done)) = self.next_from_ring() {
            self.call_back(key, done);
        }
        if let Some(ring) = self.ring.borrow().as_ref() {
            ring.tell_requests();
        }
        for (key, done) in self.at_once.take() {
            self.call_back(key, done);
        }
        for (key, done) in self.done_in_pool() {
            self.call_back(key, done);
        }
        let ready = self.polled.borrow_mut().take_ready();
        for key in ready {
            self.call_back(key, Done { result: Ok(0), buffer: None });
        }
    }

    fn next_from_ring(&self) -> Option<(usize, Done)> {
        self.ring.borrow_mut().as_mut()?.next_done()
    }

    fn done_in_pool(&self) -> Vec<(usize, Done)> {
        self.pool.borrow().as_ref().map(Pool::take_done).unwrap_or_default()
    }

    fn call_back(&self, key: usize, done: Done) {
        let callback = self.callbacks.borrow_mut().remove(key);
        // Called without a borrow, because it may start the next operation.
        if let Some(callback) = callback {
            callback(done);
        }
    }

    /// Sleeps until an operation has ended, the event is notified or `timeout` is over.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        if !self.at_once.borrow().is_empty() {
            return self.submit();
        }
        let mut ring = self.ring.borrow_mut();
        match ring.as_mut() {
            Some(ring) => {
                self.queued.set(false);
                if ring.wait(timeout).is_err() {
                    self.queued.set(true);
                    let timeout = Some(timeout.unwrap_or(RETRY).min(RETRY));
                    self.polled.borrow().wait(&self.event, timeout);
                }
            }
            None => self.polled.borrow().wait(&self.event, timeout),
        }
    }

    /// Waits until all operations in flight have ended, including those that callbacks start.
    pub(crate) fn drain(&self) {
        while self.callbacks.borrow().len() > 0 {
            self.wait(None);
            self.reap();
        }
    }
}

/// The driver, as one device uses it.
pub(crate) struct DeviceIo {
    pub(crate) driver: Rc<Driver>,
    pub(crate) by_ring: bool,
    /// Whether the file is in memory. Short operations then do not block, and handing them to
    /// another thread would cost more than doing them.
    pub(crate) in_memory: bool,
}

fn is_short(op: &Op) -> bool {
    match op {
        Op::Read { into, .. } => into.bytes().len() <= SHORT_BYTES,
        Op::Write { from, .. } => from.bytes().len() <= SHORT_BYTES,
        Op::Sync => true,
        Op::Call(_) => false,
    }
}

impl FileIo for DeviceIo {
    fn buffer(&self, len: usize) -> Buffer {
        let mut ring = self.driver.ring.borrow_mut();
        let ring = ring.as_mut().filter(|_| self.by_ring);
        ring.and_then(|ring| ring.buffer(len))
            .unwrap_or_else(|| Buffer::from_shelf(&self.driver.shelf, len))
    }

    fn recycle(&self, buffer: Buffer) {
        if let Some(ring) = self.driver.ring.borrow_mut().as_mut() {
            ring.recycle(buffer);
        }
    }

    fn start(&self, file: &Arc<File>, op: Op, then: Callback) {
        if self.in_memory && is_short(&op) {
            self.driver.do_at_once(file, op, then);
        } else {
            self.driver.start(self.by_ring, file, op, then);
        }
    }

    fn wait(&self) {
        self.driver.wait(None);
        self.driver.reap();
    }
}
