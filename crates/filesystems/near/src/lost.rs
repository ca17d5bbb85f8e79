//! Giving up what the logs have lost.

use manylogs::Volume;
use manylogs_block::{Extent, IoResult};
use manylogs_logstore::store::Batch;

use crate::sink::{ORDER, supersede};

/// Extents that one record gives up.
const EXTENTS: usize = 64;

/// Gives up the newest versions of extents, which are lost: reads find what is at home, which is
/// older. That is durable when the call returns; a crash before may leave some as they were.
///
/// # Errors
/// Those of [`Volume::append`].
pub async fn give_up_lost(volume: &Volume, lost: &[Extent]) -> IoResult<()> {
    for extents in lost.chunks(EXTENTS) {
        let entries = extents.iter().copied().map(supersede).collect();
        volume.append(Batch { entries, after: Some(ORDER) }).await?;
    }
    Ok(())
}
