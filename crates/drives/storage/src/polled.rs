//! Waiting for descriptors where there is no ring.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::event::Event;

/// Descriptors that are waited for until they can be read or written, or their other end is gone.
#[derive(Default)]
pub(crate) struct Polled(Vec<Waiting>);

struct Waiting {
    key: usize,
    file: Arc<File>,
    events: PollFlags,
}

impl Polled {
    pub(crate) fn add(&mut self, key: usize, file: Arc<File>, events: PollFlags) {
        self.0.push(Waiting { key, file, events });
    }

    /// Ends a wait. Returns whether there was one for `key`.
    pub(crate) fn remove(&mut self, key: usize) -> bool {
        let at = self.0.iter().position(|waiting| waiting.key == key);
        at.map(|at| self.0.swap_remove(at)).is_some()
    }

    /// The keys of the descriptors that are ready now. They are not waited for any longer.
    pub(crate) fn take_ready(&mut self) -> Vec<usize> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut polled = self.descriptors();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0) {
            return Vec::new();
        }
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let gone = self.0.extract_if(.., |_| ready.next().unwrap_or(false));
        gone.map(|waiting| waiting.key).collect()
    }

    /// Sleeps until a descriptor is ready, `event` is notified or `timeout` is over.
    pub(crate) fn wait(&self, event: &Event, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
        let mut polled = self.descriptors();
        polled.push(PollFd::new(event, PollFlags::IN));
        // An interrupted wait is only shorter, and the caller checks again anyway.
        let _ = poll(&mut polled, timeout.as_ref());
        event.clear();
    }

    fn descriptors(&self) -> Vec<PollFd<'_>> {
        self.0.iter().map(Waiting::descriptor).collect()
    }
}

impl Waiting {
    fn descriptor(&self) -> PollFd<'_> {
        PollFd::new(&self.file, self.events)
    }
}
