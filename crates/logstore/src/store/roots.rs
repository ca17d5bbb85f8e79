//! The root on the disk, and changes of it that are being prepared.

use manylogs_block::TaskLock;

use crate::ondisk::log_bitmap::LogBitmap;
use crate::ondisk::root::Root;

/// The root on the disk and its updates.
#[derive(Debug)]
pub struct Roots {
    /// The root as it is on the disk.
    pub on_disk: Root,
    /// The newest generation that was ever sent to the disk.
    pub generation: u64,
    /// The slot that holds the newest root.
    pub slot: usize,
    /// Held while the root is changed: changes follow one another.
    pub changing: TaskLock,
    /// While a snapshot is captured and written: the logs appended to since.
    pub capturing: Option<LogBitmap>,
    /// While the root that names the snapshot is written: the set of opened logs it will have.
    pub next_opened: Option<LogBitmap>,
}

impl Roots {
    /// Of a volume whose newest root is `on_disk`, found in `slot`.
    pub fn new(on_disk: Root, slot: usize) -> Self {
        let (generation, changing) = (on_disk.generation, TaskLock::default());
        Self { on_disk, generation, slot, changing, capturing: None, next_opened: None }
    }
}
