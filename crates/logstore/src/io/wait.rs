//! Waiting until entries are durable.

use manylogs_block::IoError;

use super::StoreIo;
use crate::store::{Store, Ticket};

/// Resolves when the entry with this ticket and all entries before it are durable.
///
/// # Errors
/// [`IoError::ReadOnly`] if the store stopped taking entries before.
pub async fn wait_durable<S: StoreIo>(system: &S, ticket: Ticket) -> Result<(), IoError> {
    wait_until(system, |store| store.entries.tickets.all_done(ticket)).await
}

/// Resolves when `done` holds for the store. It is asked again at each progress.
///
/// # Errors
/// [`IoError::ReadOnly`] if the store stopped taking entries before.
pub async fn wait_until<S: StoreIo>(
    system: &S,
    done: impl Fn(&Store) -> bool,
) -> Result<(), IoError> {
    loop {
        let progress = system.progress().wait();
        let is_done = |store: &mut Store| match done(store) {
            true => Ok(true),
            false => store.writable().map(|()| false),
        };
        if system.with_store(is_done)? {
            return Ok(());
        }
        progress.await;
    }
}
