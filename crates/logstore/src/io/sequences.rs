//! Setting sequences aside while a store is in use.

use std::rc::Rc;

use super::{StoreIo, update_root};

/// Sets more sequences aside whenever they run low, until the system is closed. Whoever closes it
/// notifies `sequences.low`.
///
/// Where the root cannot be written the store takes no more entries; an error needs no other
/// handling.
pub async fn reserve_sequences<S: StoreIo>(system: Rc<S>, purpose: S::Purpose) {
    let low = system.with_store(|store| store.sequences.low.clone());
    loop {
        let asked = low.wait();
        if system.is_closed() {
            return;
        }
        if system.with_store(|store| store.are_sequences_low()) {
            let limit = system.with_store(|store| store.roots.on_disk.sequence_limit);
            let Some(limit) = limit.extended() else { return };
            let _ = update_root(&*system, purpose, |root| root.sequence_limit = limit).await;
        }
        asked.await;
    }
}
