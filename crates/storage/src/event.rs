//! The eventfd that ends the reactor's sleep.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::EventfdFlags;

/// Remembers that it was notified until somebody looks.
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    /// Ends a wait that is under way, or else the next one.
    pub(crate) fn notify(&self) {
        // This fails only when it was notified 2^64 - 1 times and nobody looked.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Forgets notifications.
    pub(crate) fn clear(&self) {
        // This fails only when there were none.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
