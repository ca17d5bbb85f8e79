//! Writing the root, and what the store's common steps need of a volume for it.

use manylogs_block::{Completion, Extent, IoError, Request, Signal};
use manylogs_logstore::io::{self, StoreIo};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::Store;
use manylogs_logstore::{DataSequence, VolumeId};

use crate::ondisk::layout::Layout;
use crate::phase::{Below, Phase};
use crate::state::Inner;

impl Inner {
    /// Makes `floor` durable: entries below it are dead from then on.
    pub(crate) async fn raise_floor(
        &self,
        phase: Phase,
        floor: DataSequence,
    ) -> Result<(), IoError> {
        if self.state.borrow().store.apart.is_some() {
            return self.state.borrow_mut().store.keep_floor(floor);
        }
        self.update_root(phase, |root| root.floor = floor).await
    }

    /// Changes the root, durably in both slots: see [`io::update_root`].
    pub(crate) async fn update_root(
        &self,
        phase: Phase,
        change: impl FnOnce(&mut Root),
    ) -> Result<(), IoError> {
        io::update_root(self, phase, change).await
    }
}

impl StoreIo for Inner {
    type Purpose = Phase;

    fn with_store<R>(&self, work: impl FnOnce(&mut Store) -> R) -> R {
        work(&mut self.state.borrow_mut().store)
    }

    fn root_slots(&self) -> [Extent; 2] {
        self.layout.roots()
    }

    fn submit_root(&self, phase: Phase, write: Request) -> Completion {
        self.device.submit(phase, write)
    }

    fn progress(&self) -> &Signal {
        &self.progress
    }

    fn notify_progress(&self) {
        Self::notify_progress(self);
    }

    fn is_closed(&self) -> bool {
        self.state.borrow().closed
    }
}

/// Writes a root to one of its slots, durably.
pub(crate) async fn write_root(
    device: &Below,
    phase: Phase,
    root: &Root,
    volume: VolumeId,
    layout: &Layout,
    slot: usize,
) -> Result<(), IoError> {
    device.submit(phase, root.write_to(layout.roots()[slot], volume)).await.map(drop)
}
