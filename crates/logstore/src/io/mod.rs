//! The steps with I/O that every system over a store takes in the same way.
//!
//! [`crate::store`] does no I/O. A system that owns a store submits the reads and writes itself,
//! as only the system knows what each is for and when it may go. Three steps are the same in every
//! system all the same: finding the newest root and changing it, setting sequences aside, and
//! waiting until an entry is durable. They are here, and reach the devices through [`StoreIo`].

mod root;
mod sequences;
mod wait;

pub use root::{FoundRoot, find_root, read_copy, update_root};
pub use sequences::reserve_sequences;
pub use wait::{wait_durable, wait_until};

use manylogs_block::{Completion, Extent, Request, Signal};

use crate::store::Store;

/// A system that owns a store and does its I/O.
pub trait StoreIo {
    /// What a write is for, in the words of the system.
    type Purpose: Copy;

    /// Lends the store. It is not lent a second time before `work` returns.
    fn with_store<R>(&self, work: impl FnOnce(&mut Store) -> R) -> R;

    /// Where the two slots of the root are, on the device of [`StoreIo::submit_root`].
    fn root_slots(&self) -> [Extent; 2];

    /// Submits a write to a slot of the root.
    fn submit_root(&self, purpose: Self::Purpose, write: Request) -> Completion;

    /// Notified when an entry became durable, room became free, or the store stopped taking
    /// entries.
    fn progress(&self) -> &Signal;

    /// Wakes the tasks that wait for progress, as the store stopped taking entries.
    fn notify_progress(&self);

    /// Whether the tasks of the system are to end.
    fn is_closed(&self) -> bool;
}
