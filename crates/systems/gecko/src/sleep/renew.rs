//! Keeps the newest root on two links, whichever drive leaves.
//!
//! While halves sleep, the newest root may be on one drive alone of each of the first two links:
//! see the module `pair::root`. If one of these leaves, the other would be the last that has it.

use std::rc::Rc;

use manylogs_block::IoError;
use manylogs_engine::{Phase, update_root};
use manylogs_plant::{self as plant, Bug};

use crate::keeper::NotChanged;
use crate::roster::Change;
use crate::state::Inner;

impl Inner {
    /// Writes the root anew whenever a drive has left, as long as the chain is open.
    pub(crate) async fn run_renewer(self: Rc<Self>) {
        loop {
            let left = self.keeper.left().wait();
            if self.engine.is_closed() {
                return;
            }
            if self.keeper.take_left() && !plant::is(Bug::RootNotRenewed) {
                // If that fails, the store takes no writes any more.
                let _ = self.renew_root().await;
                continue;
            }
            left.await;
        }
    }

    /// Writes the root as it is to all halves that are awake, at least one of each of its links.
    ///
    /// # Errors
    /// If a link fails to take it: then the chain takes no writes any more.
    pub(crate) async fn renew_root(&self) -> Result<(), IoError> {
        if self.engine.state.borrow().store.read_only().is_some() {
            return Ok(());
        }
        update_root(self, Phase::OpenedSet, |_| ()).await
    }

    /// Says in all labels, durably, that halves may sleep. Whether they do.
    pub(super) async fn let_sleep(&self) -> bool {
        if self.keeper.roster().has_sleepers {
            return true;
        }
        if self.is_noting_sleepers.replace(true) {
            return false;
        }
        let noted = self.keeper.change(Change::Sleepers(true)).await;
        self.is_noting_sleepers.set(false);
        noted.is_ok()
    }

    /// Says in all labels, durably, that all halves have the newest root: they are awake, and it
    /// was written since.
    ///
    /// # Errors
    /// If a link fails to take it. Then its labels say that halves may sleep, which does no harm.
    pub(crate) async fn note_awake(&self) -> Result<(), IoError> {
        if self.engine.state.borrow().store.read_only().is_some() {
            return Ok(());
        }
        match self.keeper.change(Change::Sleepers(false)).await {
            Err(NotChanged::Io(error)) => Err(error),
            Ok(()) | Err(NotChanged::Impossible(_)) => Ok(()),
        }
    }
}
