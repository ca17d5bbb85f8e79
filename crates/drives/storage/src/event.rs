//! An eventfd that ends the sleep of a thread waiting for descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::EventfdFlags;

/// Stays notified until it is cleared. Its descriptor is readable meanwhile. Any thread may notify
/// it.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// An event that is not notified yet.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    /// Ends a wait that is under way, or else the next one.
    pub fn notify(&self) {
        // This fails only after 2^64 - 1 notifications without a reset.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears all notifications.
    pub fn clear(&self) {
        // This fails only if there was no notification.
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

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(event: &Event) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&at_once)) == Ok(1)
    }

    #[test]
    fn it_is_readable_from_the_first_notification_to_the_next_look() {
        let event = Event::new().unwrap();
        event.clear();
        assert!(!is_readable(&event));
        event.notify();
        event.notify();
        assert!(is_readable(&event));
        event.clear();
        assert!(!is_readable(&event));
    }
}
