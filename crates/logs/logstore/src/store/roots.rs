//! The root on the disk, and changes of it that are being prepared.

use manylogs_block::TaskLock;

use super::Store;
use crate::{DataSequence, Floors};

use crate::ondisk::log_bitmap::LogBitmap;
use crate::ondisk::root::Root;

/// The root on the disk and its updates.
#[derive(Debug)]
pub struct Roots {
    /// The root as it is on the disk.
    pub(super) on_disk: Root,
    /// The newest generation that was ever sent to the disk.
    pub(super) generation: u64,
    /// The slot that holds the newest root.
    pub(super) slot: usize,
    /// Held while the root is changed, so that changes take turns.
    pub(super) changing: TaskLock,
    /// While a snapshot is captured and written: the logs that were appended to since it began.
    pub(super) capturing: Option<LogBitmap>,
    /// While the root that names the snapshot is written: the set of opened logs in that root.
    pub(super) next_opened: Option<LogBitmap>,
}

impl Roots {
    /// The roots of a volume whose newest root is `on_disk`, found in `slot`.
    pub fn new(on_disk: Root, slot: usize) -> Self {
        let (generation, changing) = (on_disk.generation, TaskLock::default());
        Self { on_disk, generation, slot, changing, capturing: None, next_opened: None }
    }
}

impl Store {
    /// The root as it is on the disk.
    #[must_use]
    pub const fn root(&self) -> &Root {
        &self.roots.on_disk
    }

    /// Entries below the floor are dead, wherever they are found.
    #[must_use]
    pub const fn floor(&self) -> DataSequence {
        self.roots.on_disk.floor
    }

    /// The floor, and the floor of kept versions.
    #[must_use]
    pub const fn floors(&self) -> Floors {
        self.roots.on_disk.floors()
    }

    /// Held while the root is changed, so that changes take turns.
    #[must_use]
    pub fn root_lock(&self) -> TaskLock {
        self.roots.changing.clone()
    }

    /// The next root, not yet on the disk, and the slots to write it to, in this order.
    pub fn next_root(&mut self, change: impl FnOnce(&mut Root)) -> (Root, [usize; 2]) {
        let mut root = self.roots.on_disk.clone();
        change(&mut root);
        self.roots.generation += 1;
        root.generation = self.roots.generation;
        (root, [1 - self.roots.slot, self.roots.slot])
    }

    /// Notes that the next root is durable in this slot.
    pub fn root_written(&mut self, slot: usize) {
        self.roots.slot = slot;
    }

    /// Notes that the next root is durable in both slots.
    pub fn root_changed(&mut self, root: Root) {
        // A table in non-volatile RAM may have raised the floor meanwhile.
        let floor = root.floor.max(self.roots.on_disk.floor);
        let kept_floor = root.kept_floor.max(self.roots.on_disk.kept_floor);
        self.roots.on_disk = Root { floor, kept_floor, ..root };
    }

    /// Begins a snapshot of the table. From now on logs that are appended to are noted, beside
    /// those with records in flight.
    pub fn begin_capture(&mut self) {
        let mut opened = LogBitmap::none(self.logs.count());
        for log in self.logs.iter().filter(|log| log.is_busy()) {
            opened.add(log.id());
        }
        self.roots.capturing = Some(opened);
    }

    /// The logs that were appended to since the capture began, and those that `more` adds. From now
    /// on only logs that are in this set and in the old one take records.
    pub fn close_capture(&mut self, more: impl FnOnce(&Self, &mut LogBitmap)) -> LogBitmap {
        let taken = self.roots.capturing.take();
        let mut opened = taken.unwrap_or_else(|| LogBitmap::none(self.logs.count()));
        more(self, &mut opened);
        self.roots.next_opened = Some(opened.clone());
        opened
    }

    /// Ends a capture: the snapshot is in the root, or was given up.
    pub fn end_capture(&mut self) {
        (self.roots.capturing, self.roots.next_opened) = (None, None);
    }

    /// Whether the root that names a snapshot is being written: its set of opened logs is fixed.
    #[must_use]
    pub const fn is_publishing(&self) -> bool {
        self.roots.next_opened.is_some()
    }
}
