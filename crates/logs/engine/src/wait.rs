//! Waiting until entries are durable.

use manylogs_block::IoError;

use manylogs_logstore::store::{Store, Ticket};

use crate::system::System;

/// Resolves when the entry with this ticket and all entries before it are durable.
///
/// # Errors
/// [`IoError::ReadOnly`] if the store stopped taking entries before.
pub async fn wait_durable<S: System>(system: &S, ticket: Ticket) -> Result<(), IoError> {
    wait_until(system, |store| store.entries().tickets.all_done(ticket)).await
}

/// Resolves when the entry with this ticket is durable, even if older ones are not.
///
/// # Errors
/// [`IoError::ReadOnly`] if the store stopped taking entries before.
pub async fn wait_done<S: System>(system: &S, ticket: Ticket) -> Result<(), IoError> {
    wait_until(system, |store| store.entries().tickets.is_done(ticket)).await
}

/// Resolves when `done` holds for the store. It is checked at each progress.
///
/// # Errors
/// [`IoError::ReadOnly`] if the store stopped taking entries before.
pub async fn wait_until<S: System>(
    system: &S,
    done: impl Fn(&Store) -> bool,
) -> Result<(), IoError> {
    let engine = system.engine();
    loop {
        let progress = engine.progress.wait();
        let is_done = |store: &mut Store| match done(store) {
            true => Ok(true),
            false => store.writable().map(|()| false),
        };
        if engine.with_store(is_done)? {
            return Ok(());
        }
        progress.await;
    }
}
