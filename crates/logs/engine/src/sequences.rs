//! Setting sequences aside when a store is opened, and later during use.

use std::rc::Rc;

use manylogs_block::IoError;
use manylogs_logstore::Incarnation;
use manylogs_logstore::ondisk::root::Left;

use crate::phase::Phase;
use crate::root::update_root;
use crate::system::System;

/// Counts an opening of a system in its root and sets sequences aside for it, durably in both
/// slots. Until then nothing may be appended. False if the sequences are used up: then nothing was
/// written.
///
/// # Errors
/// If the root cannot be written; the store takes no more entries then.
pub async fn begin_incarnation<S: System>(system: &S) -> Result<bool, IoError> {
    let limit = system.engine().with_store(|store| store.root().sequence_limit);
    let Some(limit) = limit.extended() else { return Ok(false) };
    let update = update_root(system, Phase::Open, |root| {
        root.sequence_limit = limit;
        root.incarnation = Incarnation(root.incarnation.0.saturating_add(1));
        root.left = Left::Open;
    });
    update.await.map(|()| true)
}

/// Sets more sequences aside whenever they run low, until the engine is closed.
///
/// If the root cannot be written, the store takes no more entries, so the error needs no other
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
