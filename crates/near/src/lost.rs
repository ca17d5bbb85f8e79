//! Giving up what the logs have lost.

use manylogs::Volume;
use manylogs_block::{Extent, IoResult};
use manylogs_logstore::store::Batch;
use manylogs_logstore::{Class, EntryKind};

use crate::sink::{ORDER, entry};

/// Extents that one record gives up.
const EXTENTS: usize = 64;

/// Gives up the newest versions of extents, which are lost: reads find what is at home, which is
/// older. Durable when it returns; a crash before leaves some as they were.
///
/// # Errors
/// Those of [`Volume::append`].
pub async fn give_up_lost(volume: &Volume, lost: &[Extent]) -> IoResult<()> {
    for extents in lost.chunks(EXTENTS) {
        let entries = extents
            .iter()
            .map(|extent| entry(EntryKind::Supersede, Class::Metadata, *extent, None));
        volume.append(Batch { entries: entries.collect(), after: Some(ORDER) }).await?;
    }
    Ok(())
}
