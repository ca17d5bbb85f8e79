//! Giving up versions that the logs have lost.

use manylogs::Volume;
use manylogs_block::{Extent, IoResult};
use manylogs_logstore::store::Batch;

use crate::sink::{ORDER, supersede};

/// Most extents that one record gives up.
const EXTENTS: usize = 64;

/// Gives up the lost newest versions of extents: reads then find the older versions at home. This
/// is durable when the call returns. A crash before may leave some extents as they were.
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
