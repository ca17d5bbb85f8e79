//! Raising the floor: entries below it are dead from then on.

use manylogs_block::IoError;
use manylogs_logstore::DataSequence;
use manylogs_plant::{self as plant, Bug};

use crate::phase::Phase;
use crate::root::update_root;
use crate::system::System;
use crate::wait::wait_durable;

/// Makes `floor` durable: entries below it are dead from then on.
///
/// # Errors
/// If the root cannot be written: see [`update_root`].
pub async fn raise_floor<S: System>(
    system: &S,
    phase: Phase,
    floor: DataSequence,
) -> Result<(), IoError> {
    let apart =
        system.engine().with_store(|store| store.is_apart().then(|| store.keep_floor(floor)));
    match apart {
        Some(kept) => kept,
        None => update_root(system, phase, |root| root.floor = floor).await,
    }
}

/// Raises the floor as far as possible without loss: logs that only supersede entries kept can
/// then be reset. For systems whose logs are emptied from the oldest end.
///
/// # Errors
/// If the root cannot be written, or the store stopped taking entries.
pub async fn raise_floor_to_oldest<S: System>(system: &S) -> Result<(), IoError> {
    let engine = system.engine();
    // Logs need what was displaced until the entries that displaced it are durable.
    let last = engine.with_store(|store| store.entries().tickets.last());
    if let Some(last) = last
        && !plant::is(Bug::FloorWithoutBarrier)
    {
        wait_durable(system, last).await?;
    }
    let floor = engine.with_store(|store| store.oldest_needed());
    if floor > engine.with_store(|store| store.floor()) {
        raise_floor(system, Phase::Checkpoint, floor).await?;
        engine.with_store(|store| store.floor_raised(floor));
    }
    Ok(())
}
