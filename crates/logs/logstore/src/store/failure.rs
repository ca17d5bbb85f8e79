//! Stops a store from taking entries when a device fails.

use manylogs_block::IoError;

use super::{SlotId, Store};
use crate::{Log, LogId};

impl Store {
    /// Logs that went out of use, but are not in the root's list yet.
    #[must_use]
    pub fn newly_retired(&self) -> Vec<LogId> {
        if !self.logs.any_retired() {
            return Vec::new();
        }
        let retired = self.logs.iter().filter(|log| log.is_retired()).map(Log::id);
        retired.filter(|id| !self.roots.on_disk.retired.contains(id)).collect()
    }

    /// Whether the store takes entries.
    ///
    /// # Errors
    /// [`IoError::ReadOnly`] with the reason if it does not.
    pub fn writable(&self) -> Result<(), IoError> {
        self.read_only.map_or(Ok(()), |reason| Err(IoError::ReadOnly { reason }))
    }

    /// Stops taking entries for good after `error`. `medium` is the reason to give for a medium
    /// error, or another one without a text of its own.
    pub fn fail_for(&mut self, error: &IoError, medium: &'static str) {
        self.fail(match error {
            IoError::Gone => "the device is gone",
            IoError::NoSpace { .. } => "no space is left below the volume",
            IoError::Shrunk { .. } => "the device became smaller",
            _ => medium,
        });
    }

    /// Stops taking entries for good. Stored versions stay readable.
    pub fn fail(&mut self, reason: &'static str) {
        self.read_only.get_or_insert(reason);
        let waiting: Vec<SlotId> = self.entries.pending.iter().copied().collect();
        for id in waiting {
            if let Some(waiter) = self.entries.slots.get_mut(id).waiter.take() {
                waiter.complete(Err(IoError::ReadOnly { reason }));
            }
        }
    }
}
