//! Commands for the entries of [`crate::request_ring`].

#![expect(unsafe_code, reason = "the kernel is given pointers")]

use std::io;
use std::rc::Rc;

use io_uring::squeue::Entry128;

use super::{FORGET_KEY, REQUEST_KEY, Ring};
use crate::request_ring::Entries;
use crate::uring::Full;

impl Ring {
    /// Whether the kernel takes commands of drivers.
    pub(crate) const fn takes_commands(&self) -> bool {
        self.uring.is_wide()
    }

    /// Hands entries for requests to the kernel. They stay here until the ring is closed.
    pub(crate) fn take_requests(&mut self, entries: &Rc<Entries>) -> io::Result<()> {
        if self.requests.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.requests = Some(Rc::clone(entries));
        for slot in entries.slots() {
            self.push_wide(&entries.registration(slot).user_data(key(slot)))?;
        }
        self.enter()?;
        self.collect();
        Ok(())
    }

    /// Gives the kernel a command that it refuses.
    pub(crate) fn refuse_requests(&mut self, refusal: &Entry128) -> io::Result<()> {
        self.push_wide(&refusal.clone().user_data(FORGET_KEY))?;
        self.enter()
    }

    /// Whether there are answers for the kernel.
    pub(crate) fn any_answered(&self) -> bool {
        self.requests.as_ref().is_some_and(|entries| entries.any_answered())
    }

    /// Wakes who waits for requests that have arrived.
    pub(crate) fn tell_requests(&self) {
        if let Some(entries) = &self.requests {
            entries.tell();
        }
    }

    /// Queues the answers that the kernel has not been given.
    pub(super) fn queue_answers(&mut self) -> io::Result<()> {
        let Some(requests) = self.requests.clone().filter(|entries| entries.any_answered()) else {
            return Ok(());
        };
        while let Some((command, answered)) = requests.next_commit() {
            if let Err(error) = self.push_wide(&command.user_data(key(answered.slot()))) {
                requests.put_back(answered);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A command of an entry is complete.
    pub(super) fn end_request(&mut self, slot: u64, result: i32) {
        if let (Some(requests), Ok(slot)) = (&self.requests, u32::try_from(slot)) {
            requests.complete(slot, result);
            self.notified = true;
        }
    }

    fn push_wide(&mut self, entry: &Entry128) -> io::Result<()> {
        if !self.takes_commands() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        loop {
            // SAFETY: the ring holds memory and descriptor of all entries until it is closed; a
            // refusal has none, and is over when it was submitted.
            match unsafe { self.uring.push_wide(entry) } {
                Ok(()) => return Ok(()),
                Err(Full) => self.enter()?,
            }
        }
    }
}

/// The number of an entry's commands.
fn key(slot: u32) -> u64 {
    REQUEST_KEY + u64::from(slot)
}
