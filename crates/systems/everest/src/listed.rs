//! The stores that may hold data of a base volume: an opening waits for each of these.

use manylogs_block::IoError;

use crate::call::StoreId;
use crate::header::{Content, Header, STORES_MAX};

impl Header {
    /// Notes durably that a store may hold data.
    pub(crate) async fn list(&self, store: StoreId) -> Result<(), IoError> {
        if self.is_listed(store) && self.unlisting.get() != Some(store) {
            return Ok(());
        }
        let list = |content: &mut Content| {
            let is_new = !content.stores.contains(&store) && content.stores.len() < STORES_MAX;
            if is_new {
                content.stores.push(store);
            }
            is_new
        };
        self.update(list).await?;
        match self.is_listed(store) {
            true => Ok(()),
            false => Err(IoError::ReadOnly { reason: "too many stores hold data" }),
        }
    }

    /// Whether a store may hold data.
    pub(crate) fn is_listed(&self, store: StoreId) -> bool {
        self.content().stores.contains(&store)
    }

    /// Takes a store off the list if it is `unused`.
    pub(crate) async fn unlist(
        &self,
        store: StoreId,
        unused: impl FnOnce() -> bool,
    ) -> Result<(), IoError> {
        let change = |content: &mut Content| {
            if !unused() {
                return false;
            }
            // A task that calls `list` from now on waits for the end of this change, and lists the
            // store again.
            self.unlisting.set(Some(store));
            content.stores.retain(|listed| *listed != store);
            content.notes.retain(|note| note.store != store);
            true
        };
        let result = self.update(change).await;
        self.unlisting.set(None);
        result.map(drop)
    }
}
