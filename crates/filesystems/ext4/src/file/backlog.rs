//! What waits to be written back, and whether the task that writes it makes progress.

use std::cell::Cell;

use manylogs_block::{Signal, TaskLock};

/// The dirty pages of all files.
#[derive(Default)]
pub(crate) struct Backlog {
    pages: Cell<usize>,
    /// Whether a file may be dirty; it may have been cleaned since.
    may_be_dirty: Cell<bool>,
    /// Whether a file has so many dirty pages that write-back begins at once.
    streams: Cell<bool>,
    /// Whether the write-back task runs, and its last pass succeeded.
    is_written: Cell<bool>,
    /// Notified when write-back fails or ends.
    pub(super) stuck: Signal,
    /// Held while small files are written together.
    pub(super) together: TaskLock,
}

impl Backlog {
    /// Dirty pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages.get()
    }

    pub(crate) fn add(&self, pages: usize) {
        self.pages.set(self.pages.get() + pages);
    }

    pub(crate) fn remove(&self, pages: usize) {
        self.pages.set(self.pages.get() - pages);
    }

    /// Notes that something waits to be written.
    pub(crate) fn note_dirty(&self) {
        self.may_be_dirty.set(true);
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_clean(&self) -> bool {
        !self.may_be_dirty.get()
    }

    /// Notes that a file has many dirty pages.
    pub(super) fn note_stream(&self) {
        self.streams.set(true);
    }

    /// Whether a file has many dirty pages, or all files have more than `most`.
    pub(crate) fn is_much(&self, most: usize) -> bool {
        self.streams.get() || self.pages() > most
    }

    /// Notes that a pass over all files begins. What becomes dirty from now on is noted anew.
    pub(super) fn begin_pass(&self) {
        self.may_be_dirty.set(false);
        self.streams.set(false);
    }

    /// Whether the task runs, and its last pass succeeded.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.get()
    }

    /// Notes how the task's last pass ended, or that the task begins or ends.
    pub(crate) fn note_written(&self, is_written: bool) {
        self.is_written.set(is_written);
        if !is_written {
            self.stuck.notify();
        }
    }

    /// Whether there are pages that the task does not write.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_written() && self.pages() > 0
    }
}
