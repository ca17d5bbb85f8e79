//! Writing the root.

use manylogs_block::{IoError, Payload, Request};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::{DataSequence, VolumeId};

use crate::ondisk::layout::Layout;
use crate::phase::{Below, Phase};
use crate::state::Inner;
use manylogs_plant::{self as plant, Bug};

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

    /// Changes the root, durably in both slots. Changes follow one another.
    ///
    /// # Errors
    /// If one of the slots cannot be written. A crash may then find the old root or the new one:
    /// the volume takes no more writes, as no log is sure to be looked at.
    pub(crate) async fn update_root(
        &self,
        phase: Phase,
        change: impl FnOnce(&mut Root),
    ) -> Result<(), IoError> {
        let _turn = self.root_lock.take().await;
        let (root, first) = {
            let mut state = self.state.borrow_mut();
            let mut root = state.store.roots.on_disk.clone();
            change(&mut root);
            state.store.roots.generation += 1;
            root.generation = state.store.roots.generation;
            (root, 1 - state.store.roots.slot)
        };
        for slot in [first, 1 - first] {
            if let Err(error) = self.write_root_slot(phase, &root, slot).await {
                if !plant::is(Bug::RootHalfWritten) {
                    self.state.borrow_mut().store.fail_for(&error, "the root cannot be written");
                    self.notify_progress();
                }
                return Err(error);
            }
            self.state.borrow_mut().store.roots.slot = slot;
        }
        let mut state = self.state.borrow_mut();
        // In non-volatile RAM it may have risen meanwhile.
        let floor = root.floor.max(state.store.roots.on_disk.floor);
        state.store.roots.on_disk = Root { floor, ..root };
        Ok(())
    }

    /// Tries twice: drives replace a bad sector when it is written again.
    async fn write_root_slot(&self, phase: Phase, root: &Root, slot: usize) -> Result<(), IoError> {
        let write = || write_root(&self.device, phase, root, self.volume, &self.layout, slot);
        match write().await {
            Err(error) if error.is_local() => write().await,
            result => result,
        }
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
    let payload = Payload::bytes(root.encode(volume));
    device.submit(phase, Request::write_fua(layout.roots()[slot], payload)).await.map(drop)
}
