//! Raising the floor: entries below it are dead from then on.

use manylogs_block::IoError;
use manylogs_logstore::Floors;
use manylogs_plant::{self as plant, Bug};

use crate::phase::Phase;
use crate::root::update_root;
use crate::system::System;
use crate::wait::wait_durable;

/// Makes the floors durable: entries below them are then dead. No floor is lowered.
///
/// # Errors
/// If the root cannot be written: see [`update_root`].
pub async fn raise_floor<S: System>(
    system: &S,
    phase: Phase,
    floors: Floors,
) -> Result<(), IoError> {
    let apart =
        system.engine().with_store(|store| store.is_apart().then(|| store.keep_floor(floors.home)));
    match apart {
        Some(kept) => kept,
        None => update_root(system, phase, |root| root.raise(floors)).await,
    }
}

/// Raises the floor as far as possible without loss. Logs that only had to keep supersede entries
/// can then be reset. For systems that empty their logs from the oldest end.
///
/// # Errors
/// If the root cannot be written, or the store stopped taking entries.
pub async fn raise_floor_to_oldest<S: System>(system: &S) -> Result<(), IoError> {
    let engine = system.engine();
    // The displaced versions are needed until the entries that displaced them are durable.
    let last = engine.with_store(|store| store.entries().tickets.last());
    if let Some(last) = last
        && !plant::is(Bug::FloorWithoutBarrier)
    {
        wait_durable(system, last).await?;
    }
    let floor = engine.with_store(|store| store.oldest_needed());
    if floor > engine.with_store(|store| store.floor()) {
        let floors = Floors::both(floor);
        raise_floor(system, Phase::Checkpoint, floors).await?;
        engine.with_store(|store| store.floor_raised(floors));
    }
    Ok(())
}
