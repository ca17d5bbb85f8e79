//! Setting sequences aside while a store is in use.

use std::rc::Rc;

use crate::phase::Phase;
use crate::root::update_root;
use crate::system::System;

/// Sets more sequences aside whenever they run low, until the engine is closed.
///
/// Where the root cannot be written the store takes no more entries; an error needs no other
/// handling.
pub async fn reserve_sequences<S: System>(system: Rc<S>) {
    let engine = system.engine();
    let low = engine.with_store(|store| store.sequences_low());
    loop {
        let asked = low.wait();
        if engine.is_closed() {
            return;
        }
        if engine.with_store(|store| store.are_sequences_low()) {
            let limit = engine.with_store(|store| store.root().sequence_limit);
            let Some(limit) = limit.extended() else { return };
            let _ = update_root(&*system, Phase::Open, |root| root.sequence_limit = limit).await;
        }
        asked.await;
    }
}
